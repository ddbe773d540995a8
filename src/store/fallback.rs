//! Implementation of `on_store_error: local`: while the store is unavailable, this process decides
//! alone, by its share of the limit.
//!
//! The shares of all replicas sum to the limit, see [`Share`]. The hits stay in this process;
//! nothing is transferred when the store is back. Holds that were taken here are ended here, also
//! by requests that come after the outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::Clock;
use super::memory::MemoryStore;
use super::{Check, Outcomes};
use crate::algorithm::Limit;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest};
use crate::algorithm::judge::Few;
use crate::algorithm::share::Share;
use crate::algorithm::verdict::Prior;
use crate::telemetry::metrics::Metrics;

/// The share of the limits that this process admits alone, which changes with the replicas.
#[derive(Debug)]
pub struct OwnShare(AtomicU64);

/// Local counters of this process.
#[derive(Clone)]
pub struct Fallback {
    memory: Arc<dyn LocalCounters>,
    share: Arc<OwnShare>,
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
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { memory, share, metrics }
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

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fallback").field("share", &self.share).finish_non_exhaustive()
    }
}
