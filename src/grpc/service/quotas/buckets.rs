//! The buckets of a stream: opened within bounds, refused beyond them, and kept by the policies in
//! force.

use std::time::Instant;

use tracing::warn;

use super::lending::{TargetTerms as _, charged};
use super::messages::OF_BUCKET;
use super::{BucketMemory, QuotaSession, report, response};
use crate::limiter::{BucketTarget, Live};
use crate::policy::UnsupportedQuota;
use crate::rlqs::share::ProxyWant;
use crate::rlqs::terms::{Blanket, BucketTerms, BucketUsage};
use crate::store::backend::Backend;
use crate::store::clock::instant;
use crate::telemetry::metrics::ProxyHits;

/// Maximum number of buckets of a stream.
pub(super) const MAX_BUCKETS: usize = 20_000;
/// Memory of a bucket in bytes besides twice its ID, measured and rounded up.
const BUCKET_COST: usize = 1_280;

/// The report of a bucket beyond the bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedReport<'a> {
    /// Its ID as it was encoded.
    pub(super) bucket: &'a [u8],
    pub(super) usage: BucketUsage,
}

impl<B: Backend> QuotaSession<B> {
    /// Returns the place of a bucket, which is opened if it is new; `None` beyond the bounds.
    pub(super) fn place_of(&mut self, live: &Live, id: &[u8]) -> Option<usize> {
        if let Some(place) = self.stream.find(id) {
            return Some(place);
        }
        let metrics = &self.rls.metrics.loans.quotas;
        let cost = BUCKET_COST + 2 * id.len();
        let hold = self.account.keep(cost).ok();
        let is_bounded = !id.is_empty() && self.stream.len() < MAX_BUCKETS;
        let Some(hold) = hold.filter(|_| is_bounded) else {
            metrics.refused.inc();
            if let Some(times) = self.rls.quotas.refused.due() {
                let domain = self.domain.as_deref();
                let buckets = self.stream.len();
                warn!(domain, buckets, times, "RLQS bucket beyond the bounds: it gets no hits");
            }
            return None;
        };
        metrics.buckets.inc();
        let target = self.target(live, id);
        if let BucketTarget::Unsupported(limit, reason, answer) = &target {
            metrics.unsupported.inc();
            if let Some(times) = self.rls.quotas.unsupported.due() {
                warn!(
                    domain = limit.rule().domain(),
                    rule = limit.rule().path(),
                    reason = reason.text(),
                    help = reason.help(),
                    ?answer,
                    times,
                    "RLQS cannot enforce this limit"
                );
            }
        }
        let (terms, counter) = target.terms();
        let lent = self.lent_to_proxy(&target);
        if self.stream.is_empty() {
            (self.policies, self.policies_at) = (Some(live.generation()), instant());
        }
        let memory = BucketMemory { _hold: hold, want: ProxyWant::default(), lent, counter };
        Some(self.stream.open(id, terms, memory))
    }

    /// Returns the count of the hits that the proxy is lent for a target; `None` if it is lent
    /// none.
    fn lent_to_proxy(&self, target: &BucketTarget<'_>) -> Option<ProxyHits> {
        let BucketTarget::Limited(target, _) = target else { return None };
        let rule = target.rule();
        Some(self.rls.metrics.loans.proxy_hits(rule.domain(), rule.path()))
    }

    /// Returns the treatment of a bucket by the policies in force.
    pub(super) fn target<'a>(&self, live: &'a Live, id: &[u8]) -> BucketTarget<'a> {
        let domain = self.domain.as_deref().unwrap_or_default();
        self.rls.limiter.bucket_target(live, domain, &report::pairs(id))
    }

    /// Answers a bucket that was refused by its report alone. Once it is idle, the proxy forgets
    /// it: with requests, it would open the bucket again at once, and report each of them.
    pub(super) fn refuse(&mut self, live: &Live, id: &[u8], report: RefusedReport<'_>) {
        let RefusedReport { bucket, usage } = report;
        let is_idle = usage == BucketUsage::default();
        let blanket = (!is_idle).then(|| self.on_refused_usage(live, id, usage));
        self.refused.add(response::refused(bucket, blanket), &self.account);
    }

    /// Charges what was allowed, and returns the answer to a bucket that cannot be lent any hits.
    fn on_refused_usage(&mut self, live: &Live, id: &[u8], usage: BucketUsage) -> (Blanket, u64) {
        let domain = self.domain.as_deref().unwrap_or_default();
        let without_hits = match self.rls.limiter.unsupported_quota(live, domain) {
            UnsupportedQuota::Allow => Blanket::Allow,
            UnsupportedQuota::Deny => Blanket::Deny,
        };
        if id.is_empty() {
            return BucketTerms::answer_beyond_bounds(None, without_hits);
        }
        let target = self.target(live, id);
        let (terms, _) = target.terms();
        if let Some(target) = charged(target) {
            target.count_decided(usage.allowed, usage.denied);
            if terms.are_charged() {
                self.rls.metrics.loans.quotas.overrun.inc_by(usage.allowed);
                let charge = self.pending_charge(id, &target, usage.allowed);
                self.admitted.extend(charge);
            }
        }
        BucketTerms::answer_beyond_bounds(Some(&terms), without_hits)
    }

    /// Applies policies that have changed. Returns the buckets whose terms have.
    pub(super) async fn apply_policies(&mut self, live: &Live, now: Instant) -> Vec<usize> {
        self.policies_at = now;
        if self.policies.replace(live.generation()) == Some(live.generation()) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for place in self.stream.places() {
            self.turn.spend(OF_BUCKET).await;
            let Some(entry) = self.stream.get(place) else { continue };
            let target = self.target(live, &entry.id);
            let (terms, counter) = target.terms();
            let is_same_counter = counter == entry.held.counter;
            if terms == *entry.bucket.terms() && is_same_counter {
                continue;
            }
            let lent = self.lent_to_proxy(&target);
            self.withdraw_want(place);
            if let Some(entry) = self.stream.get_mut(place) {
                entry.bucket.set_terms(terms, is_same_counter, now);
                (entry.held.lent, entry.held.counter) = (lent, counter);
                changed.push(place);
            }
        }
        changed
    }
}
