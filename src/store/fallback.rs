//! Implementation of `on_store_error: local`: while the store is unavailable, this process decides
//! alone, by its share of the limit.
//!
//! Each of N replicas admits 1/N of the limit. The hits stay in this process; nothing is
//! transferred when the store is back. Holds that were taken here are ended here, also by requests
//! that come after the outage.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock::Clock;
use super::memory::MemoryStore;
use super::{Check, Outcomes};
use crate::algorithm::Limit;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest};
use crate::algorithm::judge::Few;
use crate::algorithm::verdict::Prior;
use crate::telemetry::metrics::Metrics;

/// Number of replicas that share the limits.
#[derive(Debug)]
pub struct Replicas(AtomicU32);

/// Local counters of this process.
#[derive(Clone)]
pub struct Fallback {
    memory: Arc<dyn LocalCounters>,
    replicas: Arc<Replicas>,
    metrics: Arc<Metrics>,
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

impl Replicas {
    /// Creates the count with an initial value, used until the real one is known.
    pub fn new(count: NonZeroU32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(count.get())))
    }

    /// Sets the number of replicas, at least 1.
    pub fn set(&self, count: u32) {
        self.0.store(count.max(1), Ordering::Relaxed);
    }

    /// Returns the number of replicas.
    pub fn count(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }
}

impl Fallback {
    /// Creates local counters in `memory`, limited to 1/N of each limit.
    pub fn new<C: Clock>(
        memory: Arc<MemoryStore<C>>,
        replicas: Arc<Replicas>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { memory, replicas, metrics }
    }

    /// Decides checks that failed in the store.
    pub fn decide(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        self.metrics.local_decisions.inc_by(u64::try_from(checks.len()).unwrap_or(u64::MAX));
        self.decide_by_shares(checks, prior)
    }

    /// Returns `true` if a hold of the ID of a check is open here. Otherwise it is in the store,
    /// and so is its cost.
    pub fn has_open_hold(&self, check: &Check<'_>) -> bool {
        let Some(hold) = check.hold else { return false };
        let look = HoldRequest { action: HoldAction::Look, ..*hold };
        let found = self.decide_by_shares(&[Check { hold: Some(&look), ..*check }], Prior::Open);
        found.iter().flatten().any(|found| matches!(found.hold, HoldEffect::Open { .. }))
    }

    /// Performs operations on holds that are open here.
    pub fn change_holds(&self, checks: &[Check<'_>]) -> Outcomes {
        self.decide_by_shares(checks, Prior::Open)
    }

    fn decide_by_shares(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        let replicas = self.replicas.count();
        let limits: Few<Limit> = checks.iter().map(|check| check.limit.share(replicas)).collect();
        // Local tallies are never read: those shown are the store's.
        let shares: Few<Check<'_>> = checks
            .iter()
            .zip(&limits)
            .map(|(check, limit)| Check { limit, recorded: &[], ..*check })
            .collect();
        self.memory.decide(&shares, prior)
    }
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fallback").field("replicas", &self.replicas).finish_non_exhaustive()
    }
}
