//! What `on_store_error: local` does: this process decides alone, by its share of the limit, while the store is away.
//!
//! Each of N replicas admits an Nth. The hits stay in this process: nothing is carried over when the store is back.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::clock::SystemClock;
use super::memory::MemoryStore;
use super::{Check, Outcomes, Store};
use crate::algorithm::Limit;
use crate::algorithm::judge::{Few, JudgedBy};
use crate::algorithm::verdict::Prior;
use crate::telemetry::metrics::Metrics;

/// How many processes share the limits.
#[derive(Debug)]
pub struct Replicas(AtomicU32);

/// Counters of this process alone.
#[derive(Clone)]
pub struct Fallback {
    memory: Arc<MemoryStore<SystemClock>>,
    replicas: Arc<Replicas>,
    metrics: Arc<Metrics>,
}

impl Replicas {
    /// So many, until it is known better.
    pub fn new(count: NonZeroU32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(count.get())))
    }

    /// Says how many there are; of none nothing is said.
    pub fn set(&self, count: u32) {
        self.0.store(count.max(1), Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }
}

impl Fallback {
    /// Counters in `memory`, by an Nth of each limit.
    pub fn new(memory: Arc<MemoryStore<SystemClock>>, replicas: Arc<Replicas>, metrics: Arc<Metrics>) -> Self {
        Self { memory, replicas, metrics }
    }

    /// Decides checks that the store could not judge.
    pub async fn decide(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        self.metrics.local_decisions.inc_by(u64::try_from(checks.len()).unwrap_or(u64::MAX));
        let replicas = self.replicas.count();
        let limits: Few<Limit> = checks.iter().map(|check| check.limit.share(replicas)).collect();
        // Nobody reads tallies here: they are the store's.
        let shares: Few<Check<'_>> =
            checks.iter().zip(&limits).map(|(check, limit)| Check { limit, recorded: &[], ..*check }).collect();
        let mut outcomes = self.memory.decide(&shares, prior, Instant::now()).await;
        outcomes.iter_mut().flatten().for_each(|outcome| outcome.by = JudgedBy::Share);
        outcomes
    }
}

impl std::fmt::Debug for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fallback").field("replicas", &self.replicas).finish_non_exhaustive()
    }
}
