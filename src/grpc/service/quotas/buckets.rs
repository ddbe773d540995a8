//! The buckets of a stream: opened within bounds, refused beyond them, and kept by the policies in
//! force.

use std::time::Instant;

use tracing::warn;

use super::lending::TargetTerms;
use super::{BucketMemory, QuotaSession, report, response};
use crate::limiter::{BucketTarget, Live};
use crate::rlqs::terms::BucketUsage;
use crate::store::backend::Backend;
use crate::store::clock::instant;

/// Maximum number of buckets of a stream.
const MAX_BUCKETS: usize = 20_000;
/// Memory of a bucket in bytes besides twice its ID, measured and rounded up.
const BUCKET_COST: usize = 1 << 10;
/// Maximum number of refused buckets that a response abandons.
const MAX_REFUSED: usize = 64;

impl<B: Backend> QuotaSession<B> {
    /// Returns the place of a bucket, which is opened if it is new; `None` beyond the bounds.
    pub(super) fn place_of(&mut self, live: &Live, id: &[u8]) -> Option<usize> {
        if let Some(place) = self.stream.find(id) {
            return Some(place);
        }
        let metrics = &self.rls.metrics.loans.quotas;
        let cost = BUCKET_COST + 2 * id.len();
        let hold = self.rls.budget.hold(cost).ok();
        let is_bounded = !id.is_empty() && self.stream.len() < MAX_BUCKETS;
        let Some(hold) = hold.filter(|_| is_bounded) else {
            metrics.refused.inc();
            return None;
        };
        metrics.buckets.inc();
        let target = self.target(live, id);
        if let BucketTarget::Unsupported(rule, reason, answer) = &target {
            metrics.unsupported.inc();
            if let Some(times) = self.rls.quotas.unsupported.due() {
                warn!(
                    domain = rule.domain(),
                    rule = rule.path(),
                    reason = reason.text(),
                    help = reason.help(),
                    ?answer,
                    times,
                    "RLQS cannot enforce this limit"
                );
            }
        }
        let terms = target.terms();
        if self.stream.is_empty() {
            (self.policies, self.policies_at) = (Some(live.generation()), instant());
        }
        Some(self.stream.open(id, terms, BucketMemory { _hold: hold, want: 0 }))
    }

    /// Returns the treatment of a bucket by the policies in force.
    pub(super) fn target<'a>(&self, live: &'a Live, id: &[u8]) -> BucketTarget<'a> {
        let domain = self.domain.as_deref().unwrap_or_default();
        self.rls.limiter.bucket_target(live, domain, &report::pairs(id))
    }

    /// Lets the proxy forget a bucket that was refused, once it is idle: with requests, it would
    /// open the bucket again at once, and report each of them.
    pub(super) fn refuse(&mut self, bucket: &[u8], usage: BucketUsage) {
        if usage == BucketUsage::default() && self.refused.len() < MAX_REFUSED {
            self.refused.extend(response::abandon_unread(bucket));
        }
    }

    /// Applies policies that have changed. Returns the buckets whose terms have.
    pub(super) fn apply_policies(&mut self, live: &Live, now: Instant) -> Vec<usize> {
        self.policies_at = now;
        if self.policies.replace(live.generation()) == Some(live.generation()) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for place in self.stream.places() {
            let Some(slot) = self.stream.get(place) else { continue };
            let terms = self.target(live, &slot.id).terms();
            if terms == *slot.bucket.terms() {
                continue;
            }
            self.withdraw_want(place);
            if let Some(slot) = self.stream.get_mut(place) {
                slot.bucket.set_terms(terms, now);
                changed.push(place);
            }
        }
        changed
    }
}
