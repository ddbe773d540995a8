//! RLQS: rules from which hits are lent to proxies, and the descriptor of a bucket.
//!
//! The ID of a bucket is a map without an order. Its descriptor is found by a walk down the rules:
//! at each level the rule that one of the remaining pairs matches, exact ones before those with `*`
//! before those with a key alone, ties in the order of the file. Without backtracking, as in the
//! match of a descriptor: the bucket of a descriptor in the order found has the descriptor's
//! counter.

mod report;

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::lease::{Lease, ROLLING_LOANS};
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::words;
use tollgate_core::descriptor::Entry;

use super::Policy;
use crate::rule::{LeaseSize, Rule, RuleQuota};

/// Shortest and longest TTL of the hits that a proxy holds: it reports every 5 s.
pub const QUOTA_TTL: [Micros; 2] = [Micros::from_secs(7), Micros::from_secs(300)];
/// Time by which the TTL must be shorter than the period: answers take time to arrive.
pub const QUOTA_GUARD: Micros = Micros::from_secs(2);
/// Shortest period of a limit by windows.
const SHORTEST_PERIOD: Micros = Micros::from_secs(30);
/// Maximum number of pairs in the ID of a bucket.
const MAX_BUCKET_PAIRS: usize = 16;

words! {
    /// The answer to buckets whose limit RLQS cannot enforce.
    #[derive(Default)]
    pub enum UnsupportedQuota {
        /// All requests are denied.
        #[default]
        Deny = "deny",
        /// All requests are allowed.
        Allow = "allow",
    }
}

/// Reason why RLQS cannot enforce a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQuota {
    /// The limit has no `rlqs` in its `lease`.
    NoSection,
    /// The limit is in quota mode: it denies only together with others.
    QuotaMode,
    /// The limit records its callers, of which a proxy reports nothing.
    Records,
    /// The limit replaces others of a request, of which a proxy knows nothing.
    Replaces,
    /// The limit has holds.
    Holds,
    /// The period is too short for reports every 5 s.
    ShortPeriod,
}

impl NoQuota {
    /// Returns the reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoSection => "the limit has no `rlqs` in its `lease`",
            Self::QuotaMode => "limits in quota mode are evaluated together, per request",
            Self::Records => "the limit records its callers, which proxies do not report",
            Self::Replaces => "the limit replaces others of the same request",
            Self::Holds => "the limit has holds, which need a call per request",
            Self::ShortPeriod => "the period is too short for reports every 5s",
        }
    }

    /// Returns a change of the policy with which RLQS can enforce the limit.
    pub const fn help(self) -> &'static str {
        match self {
            Self::NoSection => {
                "add `lease: { size: 1%, ttl: 500ms, rlqs: { ttl: 15s, size: 10% } }`"
            }
            Self::QuotaMode => "remove `quota_mode`, or use the rate limit filter",
            Self::Records => "remove `record`, or use the rate limit filter",
            Self::Replaces => "remove `replaces`, or use the rate limit filter",
            Self::Holds => "use the rate limit filter for this limit",
            Self::ShortPeriod => "use `algorithm: gcra` with a `burst` of at least 10s of its rate",
        }
    }
}

impl RuleQuota {
    /// Returns the bounds of a loan of a limit: for limits other than fixed windows, its time is a
    /// part of the period if that is long enough.
    pub fn of(&self, limit: &Limit) -> Lease {
        let [shortest, _] = QUOTA_TTL;
        let part = Micros::new(limit.refill_time().get() / ROLLING_LOANS);
        let ttl =
            if limit.counts_per_window() { self.ttl } else { self.ttl.min(part.max(shortest)) };
        Lease { hits: self.size.of(limit), ttl }
    }

    /// Returns `true` if the hits end well before the period does.
    pub(crate) fn fits(&self, limit: &Limit) -> bool {
        let time = limit.refill_time();
        (limit.refills_continuously() || time >= SHORTEST_PERIOD) && self.ttl + QUOTA_GUARD <= time
    }
}

impl Rule {
    /// Returns the limit and the bounds of the hits that each proxy may hold. A ban has no bounds
    /// of its own: nothing is ever lent.
    ///
    /// # Errors
    /// The reason why RLQS cannot enforce the limit; `None` if the rule has none.
    pub fn quota(&self) -> Result<(&Limit, Lease), Option<NoQuota>> {
        let limit = self.limit().ok_or(None)?;
        let reasons = [
            (limit.hold().is_some(), NoQuota::Holds),
            (self.quota_mode(), NoQuota::QuotaMode),
            (!self.record().is_empty(), NoQuota::Records),
            (!self.replaces().is_empty(), NoQuota::Replaces),
        ];
        if let Some((_, reason)) = reasons.into_iter().find(|(applies, _)| *applies) {
            return Err(Some(reason));
        }
        if limit.is_ban() {
            let [ttl, _] = QUOTA_TTL;
            return Ok((limit, Lease { hits: 0, ttl }));
        }
        let quota = self.lease().and_then(|lease| lease.quota);
        let any = RuleQuota { size: LeaseSize::Hits(std::num::NonZeroU32::MIN), ttl: QUOTA_TTL[0] };
        if !quota.unwrap_or(any).fits(limit) {
            return Err(Some(NoQuota::ShortPeriod));
        }
        let quota = quota.ok_or(Some(NoQuota::NoSection))?;
        Ok((limit, quota.of(limit)))
    }
}

impl Policy {
    /// Returns the answer to buckets whose limit RLQS cannot enforce.
    pub fn unsupported_quota(&self) -> UnsupportedQuota {
        self.unsupported_quota
    }

    /// Returns the pairs of a bucket in the order of its descriptor; `None` if no rule matches all
    /// of them.
    pub fn bucket_entries<'e>(&self, pairs: &[Entry<'e>]) -> Option<Vec<Entry<'e>>> {
        if pairs.is_empty() || pairs.len() > MAX_BUCKET_PAIRS {
            return None;
        }
        let mut left: Vec<Entry<'e>> = pairs.to_vec();
        let mut entries = Vec::with_capacity(left.len());
        let mut level = &self.top;
        while !left.is_empty() {
            let candidates = left.iter().enumerate().filter_map(|(at, entry)| {
                let rule = level.take(&self.rules, entry)?;
                Some((rank(rule, entry), rule.id(), entry.key, at, rule))
            });
            let (.., at, rule) = candidates.min_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)))?;
            entries.push(left.remove(at));
            level = &rule.children;
        }
        Some(entries)
    }
}

/// Returns the place of a comparison in the order in which a level is searched.
fn rank(rule: &Rule, entry: &Entry<'_>) -> u8 {
    if rule.key.text() == entry.key && rule.value_text() == Some(entry.value) {
        return 0;
    }
    if rule.is_wild() { 1 } else { 2 }
}
