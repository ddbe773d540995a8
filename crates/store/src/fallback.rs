//! Implementation of `on_store_error: local`: while the store is unavailable, this process decides
//! alone, by its share of the limit.
//!
//! The shares of all replicas sum to the limit, see [`Share`]. The hits stay in this process;
//! nothing is transferred when the store is back. Holds that were taken here are ended here, also
//! by requests that come after the outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::hold::{HoldAction, HoldEffect, HoldRequest};
use tollgate_core::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::share::Share;
use tollgate_core::algorithm::verdict::{Prior, Role};
use tollgate_telemetry::metrics::StoreMetrics;

use super::clock::Clock;
use super::memory::MemoryStore;
use super::open_checks::{
    CheckOutcomes, StoreErrors, all_of, has_passing_vote, is_left, is_open, may_have_local_holds,
    prior_of,
};
use super::{Check, Outcomes, StoreError};

/// The share of the limits that this process admits alone, which changes with the replicas.
#[derive(Debug)]
pub struct OwnShare(AtomicU64);

/// Local counters of this process.
#[derive(Clone)]
pub struct Fallback {
    memory: Arc<dyn LocalCounters>,
    share: Arc<OwnShare>,
    metrics: Arc<StoreMetrics>,
}

/// Counters in memory, by any clock.
trait LocalCounters: Send + Sync {
    fn decide(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes;
}

impl<C: Clock> LocalCounters for MemoryStore<C> {
    fn decide(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        self.decide_now(checks, prior)
    }
}

impl OwnShare {
    /// Creates a share, used until it is set.
    pub fn new(share: Share) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(share.to_bits())))
    }

    /// Sets the share.
    pub fn set(&self, share: Share) {
        self.0.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Returns the share.
    pub fn get(&self) -> Share {
        Share::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Fallback {
    /// Creates local counters in `memory`, limited to a share of each limit.
    pub fn new<C: Clock>(
        memory: Arc<MemoryStore<C>>,
        share: Arc<OwnShare>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        Self { memory, share, metrics }
    }

    /// Decides the checks of a request that its store failed to judge, as far as their limits allow
    /// it. If the store judged other charges, it counted the request as failed: unless it writes
    /// them all the same, the request stays failed. `prior` is that of the request.
    pub(super) fn complete(
        &self,
        checks: &[Check<'_>],
        outcomes: Outcomes,
        prior: Prior,
    ) -> Outcomes {
        let mut judged = checks.iter().zip(&outcomes);
        if !judged.any(|(check, outcome)| is_open(check, outcome)) {
            return outcomes;
        }
        let is_partial = checks.iter().zip(&outcomes).any(|(check, outcome)| {
            outcome.is_ok()
                && matches!(check.hits, Hits::Charge(_))
                && check.limit.charge_mode().is_revocable()
        });
        let mut judged = outcomes.into_iter().map(Some).collect();
        if is_partial {
            self.change_local_holds(checks, &mut judged);
        } else {
            self.decide_left(checks, &mut judged, prior);
        }
        all_of(judged)
    }

    /// Decides the checks that the store failed to judge and whose limits allow it. `prior` is that
    /// of the request, before all its checks. Called after all else is judged, since its charges
    /// are not taken back.
    pub(super) fn decide_left(
        &self,
        checks: &[Check<'_>],
        judged: &mut CheckOutcomes,
        prior: Prior,
    ) {
        self.change_local_holds(checks, judged);
        let numbers = judged_where(checks, judged, is_left);
        if numbers.is_empty() {
            return;
        }
        let prior = prior_of(checks, judged, prior, StoreErrors::Open);
        let mut of_them: Few<Check<'_>> =
            numbers.iter().filter_map(|number| checks.get(*number)).copied().collect();
        if has_passing_vote(checks, judged) {
            // Other votes deny nothing.
            for vote in of_them.iter_mut().filter(|check| check.role == Role::Quota) {
                vote.role = Role::QuotaShadow;
            }
        }
        self.metrics.local_decisions.inc_by(of_them.len() as u64);
        for (number, outcome) in numbers.iter().zip(self.decide_by_shares(&of_them, prior)) {
            if let Some(place) = judged.get_mut(*number)
                && let Ok(outcome) = outcome
                && let Some(Err(error)) = *place
            {
                *place = Some(Ok(Outcome { by: JudgedBy::Share(error), ..outcome }));
            }
        }
    }

    /// Performs operations on holds that this process took alone while the store was down.
    fn change_local_holds(&self, checks: &[Check<'_>], judged: &mut CheckOutcomes) {
        let numbers = judged_where(checks, judged, |check, outcome| {
            may_have_local_holds(check, outcome) && self.has_open_hold(check)
        });
        if numbers.is_empty() {
            return;
        }
        let of_them: Few<Check<'_>> =
            numbers.iter().filter_map(|number| checks.get(*number)).copied().collect();
        for (number, own) in numbers.iter().zip(self.decide_by_shares(&of_them, Prior::Open)) {
            let Some(outcome) = judged.get_mut(*number).and_then(Option::as_mut) else { continue };
            let Ok(own) = own else { continue };
            match outcome {
                // The counter in the store is reported; a cost without a hold there was charged.
                Ok(outcome) if outcome.hold == HoldEffect::Nothing => outcome.hold = own.hold,
                Ok(_) => {}
                Err(error) => *outcome = Ok(Outcome { by: JudgedBy::Share(*error), ..own }),
            }
        }
    }

    /// Returns `true` if a hold of the ID of a check is open here. Otherwise it is in the store,
    /// and so is its cost.
    fn has_open_hold(&self, check: &Check<'_>) -> bool {
        let Some(hold) = check.hold else { return false };
        let look = HoldRequest { action: HoldAction::Look, ..*hold };
        let found = self.decide_by_shares(&[Check { hold: Some(&look), ..*check }], Prior::Open);
        found.iter().flatten().any(|found| matches!(found.hold, HoldEffect::Open { .. }))
    }

    fn decide_by_shares(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        let share = self.share.get();
        let limits: Few<Limit> = checks.iter().map(|check| check.limit.share(share)).collect();
        // Local tallies are never read: those shown are the store's.
        let shares: Few<Check<'_>> = checks
            .iter()
            .zip(&limits)
            .map(|(check, limit)| Check { limit, recorded: &[], ..*check })
            .collect();
        self.memory.decide(&shares, prior)
    }
}

/// Returns the indices of the checks that have an outcome and fulfil a condition.
fn judged_where(
    checks: &[Check<'_>],
    judged: &CheckOutcomes,
    condition: impl Fn(&Check<'_>, &Result<Outcome, StoreError>) -> bool,
) -> Few<usize> {
    let judged = checks.iter().zip(judged).enumerate();
    let found = judged.filter(|(_, (check, outcome))| {
        outcome.as_ref().is_some_and(|outcome| condition(check, outcome))
    });
    found.map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests;
