//! Loans: leased hits in the hands of clients, and the rules from which none are lent.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::lease::Lease;

use crate::rule::{LeaseHolder, Rule};

/// Reason why no hits of a rule are lent to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLoan {
    /// The rule has no limit.
    NoLimit,
    /// The limit has no lease, or one whose `holders` do not include clients.
    NoLease,
    /// The limit is a ban.
    Ban,
    /// The limit is in quota mode: it denies only together with others.
    Quota,
    /// The limit records its callers, of which a holder reports nothing.
    Records,
    /// The limit replaces others of a request, of which a holder knows nothing.
    Replaces,
    /// Blocks of hits would be too small.
    TooSmall,
}

impl NoLoan {
    /// Returns the reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoLimit => "the rule has no limit",
            Self::NoLease => "the limit has no lease for clients",
            Self::Ban => "a ban (`requests_per_unit: 0`) has no hits to lend",
            Self::Quota => "limits in quota mode are always evaluated together, in the store",
            Self::Records => "the limit records its callers, which a holder does not report",
            Self::Replaces => "the limit replaces others of the same request",
            Self::TooSmall => "blocks of hits would be too small",
        }
    }
}

impl Rule {
    /// Returns the limit and the size of the blocks that clients may hold.
    ///
    /// # Errors
    /// The reason why they may not.
    pub fn loan(&self) -> Result<(&Limit, Lease), NoLoan> {
        let limit = self.limit().ok_or(NoLoan::NoLimit)?;
        let lease = self.lease_for(LeaseHolder::Client).ok_or(NoLoan::NoLease)?.of(limit);
        let reasons = [
            (limit.is_ban(), NoLoan::Ban),
            (self.quota_mode(), NoLoan::Quota),
            (!self.record().is_empty(), NoLoan::Records),
            (!self.replaces().is_empty(), NoLoan::Replaces),
            (lease.largest(limit).is_none(), NoLoan::TooSmall),
        ];
        match reasons.into_iter().find(|(applies, _)| *applies) {
            Some((_, reason)) => Err(reason),
            None => Ok((limit, lease)),
        }
    }
}
