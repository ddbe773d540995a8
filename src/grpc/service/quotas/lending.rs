//! The store calls of a stream: hits that are lent, and given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};

use super::admitted::CONCURRENT_CALLS;
use super::{PendingAction, QuotaSession};
use crate::algorithm::{OnStoreError, Receipt};
use crate::grpc::service::Rls;
use crate::limiter::{BucketTarget, Live, LoanTarget};
use crate::policy::UnsupportedQuota;
use crate::receipts::{CounterDigest, generation};
use crate::rlqs::bucket::BucketStep;
use crate::rlqs::share::ShareOf;
use crate::rlqs::terms::{
    Assignment, Blanket, BucketTerms, BucketUsage, ChargedLoan, LentTerms, Reported, WantResult,
};
use crate::store::backend::Backend;
use crate::store::clock::instant;
use crate::store::layer::Layered;
use crate::store::layer::loans::quota::QuotaLending;
use crate::telemetry::metrics::Metrics;

/// Hits to charge and lend that reports and times bring, with the places of their buckets.
pub(super) type Wants = Vec<(usize, u32)>;

/// The terms of a target, and its counter.
pub(super) trait TargetTerms {
    /// Returns the digest of the counter; `None` without one.
    fn digest(&self) -> Option<CounterDigest>;

    /// Returns the terms, and that digest.
    fn terms(&self) -> (BucketTerms, Option<CounterDigest>);
}

impl TargetTerms for BucketTarget<'_> {
    fn digest(&self) -> Option<CounterDigest> {
        let target = self.counter()?;
        Some(CounterDigest::of(target.rule().domain(), target.key()))
    }

    fn terms(&self) -> (BucketTerms, Option<CounterDigest>) {
        let counter = self.digest();
        let terms = match (self, counter) {
            (Self::Unlimited | Self::Unsupported(_, _, UnsupportedQuota::Allow), _) => {
                BucketTerms::Open
            }
            (Self::Unsupported(_, _, UnsupportedQuota::Deny), _) => BucketTerms::Closed,
            (Self::Shadow(_), _) => BucketTerms::Shadow,
            (Self::Limited(target, lease), Some(counter)) if !target.limit().is_ban() => {
                BucketTerms::Lent(LentTerms {
                    lease: *lease,
                    at_once: target.limit().at_once(),
                    generation: generation(counter, target.limit(), lease),
                    on_failure: match target.limit().on_store_error() {
                        OnStoreError::Allow => Some(Blanket::Allow),
                        OnStoreError::Deny => Some(Blanket::Deny),
                        OnStoreError::Error | OnStoreError::Local => None,
                    },
                })
            }
            (Self::Limited(..), _) => BucketTerms::Closed,
        };
        (terms, counter)
    }
}

/// Returns the counter to which hits of a target are charged.
pub(super) fn charged(target: BucketTarget<'_>) -> Option<LoanTarget<'_>> {
    match target {
        BucketTarget::Limited(target, _) | BucketTarget::Shadow(target) => Some(target),
        BucketTarget::Unlimited | BucketTarget::Unsupported(..) => None,
    }
}

impl<B: Backend> QuotaSession<B> {
    /// Records a report of a bucket, and adds what follows from it to the work.
    pub(super) fn on_usage(
        &mut self,
        live: &Live,
        place: usize,
        usage: BucketUsage,
        now: Instant,
        wants: &mut Wants,
    ) {
        let covered = self.stream.covered();
        let options = self.stream.options();
        let Some(entry) = self.stream.get_mut(place) else { return };
        let Reported { spent, afterwards, is_overrun, returns } =
            entry.bucket.report(usage, covered, now, &options);
        let stranded = entry.bucket.take_stranded();
        let awaits_ping = entry.bucket.awaits_ping(covered, now);
        let metrics = &self.rls.metrics.loans.quotas;
        metrics.reports.inc();
        metrics.spent.inc_by(spent);
        metrics.stranded.inc_by(stranded);
        let counted = if is_overrun { &metrics.overrun } else { &metrics.first };
        counted.inc_by(afterwards);
        if usage != BucketUsage::default()
            && let Some(entry) = self.stream.get(place)
            && let Some(target) = charged(self.target(live, &entry.id))
        {
            target.count_decided(usage.allowed, usage.denied);
            let charge = self.pending_charge(&entry.id, &target, afterwards);
            self.admitted.extend(charge);
        }
        for receipt in returns {
            if self.give_back(place, receipt) {
                self.rls.metrics.loans.quotas.returned.inc_by(receipt.hits);
            }
        }
        if awaits_ping {
            self.stream.request_ping(now);
        }
        self.count_held(place);
        self.announce_want(place);
        self.advance(place, now, wants);
    }

    /// Takes hits back in the background. Returns `false` if they stay charged: by the policies in
    /// force, the bucket has another counter, or a ban.
    pub(super) fn give_back(&self, place: usize, receipt: Receipt) -> bool {
        let is_given_back = self.try_give_back(place, receipt).is_some();
        if !is_given_back {
            self.rls.metrics.loans.quotas.stranded.inc_by(receipt.hits);
        }
        is_given_back
    }

    fn try_give_back(&self, place: usize, receipt: Receipt) -> Option<()> {
        let snapshot = self.rls.limiter.snapshot();
        let entry = self.stream.get(place)?;
        let target = self.target(snapshot.as_deref()?, &entry.id);
        let limit = target.counter()?;
        // A store has no counter for a ban.
        if limit.limit().is_ban() || target.digest() != entry.held.counter {
            return None;
        }
        self.rls.limiter.store().loans().give_back(&limit.check(), receipt);
        Some(())
    }

    /// Charges what proxies have admitted and what they want, and takes the steps that follow.
    pub(super) async fn run(&mut self, live: &Live, wants: Wants) {
        let rls = Arc::clone(&self.rls);
        // Awaited, so that what was admitted is not lent again.
        self.charge_admitted().await;
        let mut calls = Vec::new();
        for (place, hits) in wants {
            match self.want(live, place, hits) {
                Some(want) => calls.push(lend(&rls, self.number, want)),
                // The policies have changed meanwhile, and its terms are about to.
                None => self.postpone(place, instant()),
            }
        }
        // Each result is kept as it comes: if the stream ends meanwhile, its hits are given back.
        let mut results = stream::iter(calls).buffer_unordered(CONCURRENT_CALLS);
        while let Some((place, result)) = results.next().await {
            self.on_result(place, result, instant());
        }
    }

    /// Takes the next step of a bucket a little later.
    pub(super) fn postpone(&mut self, place: usize, now: Instant) {
        if let Some(entry) = self.stream.get_mut(place) {
            entry.bucket.postpone(now);
            self.stream.schedule(place);
        }
    }

    fn counter<'a>(&self, live: &'a Live, place: usize) -> Option<LoanTarget<'a>> {
        charged(self.target(live, &self.stream.get(place)?.id))
    }

    fn want<'a>(&self, live: &'a Live, place: usize, hits: u32) -> Option<HitsWanted<'a>> {
        let target = self.counter(live, place)?;
        let terms = *self.stream.get(place)?.bucket.terms();
        let BucketTerms::Lent(LentTerms { generation, .. }) = terms else { return None };
        Some(HitsWanted { place, target, generation, hits })
    }

    fn on_result(&mut self, place: usize, result: WantResult, now: Instant) {
        let options = self.stream.options();
        let Some(entry) = self.stream.get_mut(place) else { return };
        let (step, unsent) = entry.bucket.wanted_result(result, now, &options);
        if let Some(receipt) = unsent {
            self.give_back(place, receipt);
        }
        match step {
            BucketStep::Assign(assignment) => {
                let is_failure = matches!(assignment, Assignment::Blanket(..));
                if is_failure && result == WantResult::Failed {
                    self.rls.metrics.loans.quotas.failures.inc();
                }
                self.pending.push((place, PendingAction::Assign(assignment)));
            }
            BucketStep::Nothing | BucketStep::Want(_) | BucketStep::Abandon => {
                self.stream.schedule(place)
            }
        }
    }
}

/// Hits that a stream wants of a counter.
struct HitsWanted<'a> {
    place: usize,
    target: LoanTarget<'a>,
    generation: u64,
    hits: u32,
}

/// Hits of a call under way, which count as stranded if the stream ends before its reply.
struct UnknownCharge<'a> {
    metrics: &'a Metrics,
    hits: u32,
}

impl Drop for UnknownCharge<'_> {
    fn drop(&mut self) {
        self.metrics.loans.quotas.stranded.inc_by(self.hits.into());
    }
}

/// Charges hits for a loan to stream `number`.
async fn lend<B: Backend>(
    rls: &Rls<Layered<B>>,
    number: u64,
    want: HitsWanted<'_>,
) -> (usize, WantResult) {
    let HitsWanted { place, target, generation, hits } = want;
    let asked_at = instant();
    let hits = rls.quotas.wants.to_charge(generation, hits, asked_at);
    let of = ShareOf { counter: generation, stream: number, hits: hits.into() };
    let guard = rls.quotas.options.guard;
    let deadline = rls.deadline(asked_at, None);
    let loans = rls.limiter.store().loans();
    let mut unknown = UnknownCharge { metrics: &rls.metrics, hits };
    let check = target.check();
    let lending = loans.lend_quota(
        &check,
        hits,
        |remaining, rest| {
            let usable = rest.map(|rest| Duration::from(rest).saturating_sub(guard));
            rls.quotas.wants.share(of, remaining, usable, asked_at)
        },
        deadline,
    );
    let result = match lending.await {
        Ok(QuotaLending::Lent { receipt, window_rest }) => {
            let charged_at = instant();
            WantResult::Charged(ChargedLoan { receipt, asked_at, charged_at, window_rest })
        }
        Ok(QuotaLending::Denied(retry_after)) => WantResult::Denied(retry_after),
        Err(error) => {
            rls.metrics.store.store_error(error.kind());
            WantResult::Failed
        }
    };
    unknown.hits = 0;
    (place, result)
}
