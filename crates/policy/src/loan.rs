//! Loans: leased hits in the hands of clients, and the rules from which none are lent.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::lease::Lease;

use crate::rule::{Imposes, LeaseHolder, Rule};

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
        let Imposes::Limit(limit) = self.imposes() else { return Err(NoLoan::NoLimit) };
        let lease = self.lease_for(LeaseHolder::Client).ok_or(NoLoan::NoLease)?.of(limit);
        if limit.is_ban() {
            return Err(NoLoan::Ban);
        }
        if self.quota_mode() {
            return Err(NoLoan::Quota);
        }
        if !self.record().is_empty() {
            return Err(NoLoan::Records);
        }
        if !self.replaces().is_empty() {
            return Err(NoLoan::Replaces);
        }
        lease.largest(limit).ok_or(NoLoan::TooSmall)?;
        Ok((limit, lease))
    }
}
