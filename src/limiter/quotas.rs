//! Quotas by RLQS: the limit of a bucket, and what is counted of the requests that proxies decide.

use super::{Limiter, Live, LoanTarget};
use crate::algorithm::judge::Hits;
use crate::algorithm::lease::Lease;
use crate::descriptor::{Descriptor, Entry};
use crate::policy::{NoQuota, Policy, UnsupportedQuota};
use crate::store::Store;

/// The treatment of a bucket by the policies in force.
#[derive(Debug)]
pub enum BucketTarget<'a> {
    /// No limit applies.
    Unlimited,
    /// A limit from which hits are lent.
    Limited(LoanTarget<'a>, Lease),
    /// A limit in shadow mode: it denies nothing.
    Shadow(LoanTarget<'a>),
    /// A limit that RLQS cannot enforce.
    Unsupported(LoanTarget<'a>, NoQuota, UnsupportedQuota),
}

impl<'a> BucketTarget<'a> {
    /// Returns the limit with its counter; `None` if no limit applies.
    pub fn counter(&self) -> Option<&LoanTarget<'a>> {
        match self {
            Self::Limited(target, _) | Self::Shadow(target) | Self::Unsupported(target, ..) => {
                Some(target)
            }
            Self::Unlimited => None,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Returns the answer to buckets whose limit RLQS cannot enforce. An unknown domain has no
    /// limits.
    pub fn unsupported_quota(&self, live: &Live, domain: &str) -> UnsupportedQuota {
        let policy = live.in_force.policies.find(domain);
        policy.map_or(UnsupportedQuota::Allow, Policy::unsupported_quota)
    }

    /// Returns the treatment of a bucket, whose ID has these pairs.
    pub fn bucket_target<'a>(
        &self,
        live: &'a Live,
        domain: &str,
        pairs: &[Entry<'_>],
    ) -> BucketTarget<'a> {
        let Some(policy) = live.in_force.policies.find(domain) else {
            return BucketTarget::Unlimited;
        };
        let Some(entries) = policy.bucket_entries(pairs) else { return BucketTarget::Unlimited };
        let descriptor = Descriptor::new(entries.into(), Hits::Peek(0), None, None);
        let Some(target) = self.loan_target(live, domain, &descriptor) else {
            return BucketTarget::Unlimited;
        };
        let rule = target.rule();
        match rule.quota() {
            Err(Some(NoQuota::Holds)) if self.is_shadow(rule) => BucketTarget::Unlimited,
            Ok(_) | Err(Some(_)) if self.is_shadow(rule) => BucketTarget::Shadow(target),
            Ok((_, lease)) => BucketTarget::Limited(target, lease),
            Err(Some(reason)) => {
                BucketTarget::Unsupported(target, reason, policy.unsupported_quota())
            }
            Err(None) => BucketTarget::Unlimited,
        }
    }
}

impl LoanTarget<'_> {
    /// Counts requests that a proxy has decided.
    pub fn count_decided(&self, allowed: u64, denied: u64) {
        if let Some(decisions) = self.decisions {
            decisions.allowed.inc_by(allowed);
            decisions.denied.inc_by(denied);
        }
    }
}
