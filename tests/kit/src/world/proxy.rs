//! Envoy's client of RLQS, by its behavior that `tests/rlqs` measures.
//!
//! A bucket is reported at once by its first request, which is denied, and then with all others
//! every 5 s, also while it is idle. Times are whole seconds, from the arrival of an assignment;
//! what is not assigned, or has expired, is denied. A token bucket with the same numbers as the one
//! before is that one: its seconds do not count, only its nanoseconds do. Another one keeps the
//! share that was left, unless another assignment was between them.

use std::collections::BTreeMap;

use tollgate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use tollgate::grpc::proto::quota::rate_limit_quota_response::bucket_action::{
    BucketAction as Action, QuotaAssignmentAction,
};
use tollgate::grpc::proto::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaUsageReports};
use tollgate::grpc::proto::rate_limit_strategy::{BlanketRule, Strategy};
use tollgate::grpc::proto::{RateLimitStrategy, TokenBucket};

use super::server::fleet::Moment;

/// The buckets of a proxy, by their counters.
#[derive(Default)]
pub struct SimProxy {
    buckets: BTreeMap<usize, ProxyBucket>,
}

struct ProxyBucket {
    id: BucketId,
    allowed: u64,
    denied: u64,
    assigned: Assigned,
    expires_at: Moment,
    /// Number of the loan whose hits it has.
    loan: Option<usize>,
}

enum Assigned {
    Allow,
    Deny,
    Tokens { bucket: TokenBucket, left: u64 },
}

/// The decision of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyDecision {
    /// Denied: the first one of a bucket.
    First,
    Denied,
    /// Allowed without a loan.
    Allowed,
    /// A hit of a loan.
    Lent(usize),
}

impl ProxyBucket {
    fn take(&mut self, at: Moment) -> ProxyDecision {
        if at >= self.expires_at {
            self.assigned = Assigned::Deny;
        }
        let decision = match &mut self.assigned {
            Assigned::Allow => ProxyDecision::Allowed,
            Assigned::Tokens { left, .. } if *left > 0 => {
                *left -= 1;
                self.loan.map_or(ProxyDecision::Allowed, ProxyDecision::Lent)
            }
            Assigned::Tokens { .. } | Assigned::Deny => ProxyDecision::Denied,
        };
        match decision {
            ProxyDecision::Denied | ProxyDecision::First => self.denied += 1,
            ProxyDecision::Allowed | ProxyDecision::Lent(_) => self.allowed += 1,
        }
        decision
    }

    fn assign(&mut self, assignment: &QuotaAssignmentAction, loan: Option<usize>, at: Moment) {
        let ttl = assignment.assignment_time_to_live.as_ref().map_or(0, |ttl| ttl.seconds);
        self.expires_at = at + 1_000_000 * u64::try_from(ttl).unwrap_or_default();
        let strategy = assignment.rate_limit_strategy.as_ref();
        match strategy.and_then(|RateLimitStrategy { strategy }| strategy.as_ref()) {
            Some(Strategy::BlanketRule(rule)) if *rule == i32::from(BlanketRule::AllowAll) => {
                self.assigned = Assigned::Allow;
            }
            Some(Strategy::TokenBucket(bucket)) => self.fill(bucket, loan),
            _ => self.assigned = Assigned::Deny,
        }
    }

    fn fill(&mut self, bucket: &TokenBucket, loan: Option<usize>) {
        let interval = bucket.fill_interval.unwrap_or_default();
        if interval.seconds == 0 {
            self.assigned = Assigned::Allow;
            return;
        }
        let max = u64::from(bucket.max_tokens);
        let left = match &self.assigned {
            Assigned::Tokens { bucket: known, left } => {
                let nanos = known.fill_interval.unwrap_or_default().nanos;
                let numbers = (known.max_tokens, known.tokens_per_fill, nanos);
                if numbers == (bucket.max_tokens, bucket.tokens_per_fill, interval.nanos) {
                    return;
                }
                left * max / u64::from(known.max_tokens).max(1)
            }
            Assigned::Allow | Assigned::Deny => max,
        };
        self.loan = loan;
        self.assigned = Assigned::Tokens { bucket: *bucket, left };
    }
}

impl SimProxy {
    /// Decides a request of the bucket of a counter.
    pub fn decide(
        &mut self,
        counter: usize,
        id: impl FnOnce() -> BucketId,
        at: Moment,
    ) -> ProxyDecision {
        if let Some(bucket) = self.buckets.get_mut(&counter) {
            return bucket.take(at);
        }
        let bucket = ProxyBucket {
            id: id(),
            allowed: 0,
            denied: 1,
            assigned: Assigned::Deny,
            expires_at: 0,
            loan: None,
        };
        self.buckets.insert(counter, bucket);
        ProxyDecision::First
    }

    /// Applies an action of a response, which may be a loan.
    pub fn apply(&mut self, action: &BucketAction, loan: Option<usize>, at: Moment) {
        let of_action = |bucket: &ProxyBucket| action.bucket_id.as_ref() == Some(&bucket.id);
        match &action.bucket_action {
            Some(Action::QuotaAssignmentAction(assignment)) => {
                let found = self.buckets.values_mut().find(|bucket| of_action(bucket));
                if let Some(bucket) = found {
                    bucket.assign(assignment, loan, at);
                }
            }
            Some(Action::AbandonAction(_)) => self.buckets.retain(|_, bucket| !of_action(bucket)),
            None => {}
        }
    }

    /// Returns the report of a bucket, or of all; `None` if there are none.
    pub fn report(&mut self, of: Option<usize>) -> Option<RateLimitQuotaUsageReports> {
        let reported =
            self.buckets.iter_mut().filter(|(counter, _)| of.is_none_or(|of| of == **counter));
        let usages = reported.map(|(_, bucket)| BucketQuotaUsage {
            bucket_id: Some(bucket.id.clone()),
            time_elapsed: None,
            num_requests_allowed: std::mem::take(&mut bucket.allowed),
            num_requests_denied: std::mem::take(&mut bucket.denied),
        });
        let bucket_quota_usages: Vec<BucketQuotaUsage> = usages.collect();
        let has_any = !bucket_quota_usages.is_empty();
        let domain = "world".to_owned();
        has_any.then_some(RateLimitQuotaUsageReports { domain, bucket_quota_usages })
    }
}
