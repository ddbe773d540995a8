//! Policies that decide in memory at times that are told, for whoever asks what they would do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::time::Timestamp;
use crate::descriptor::Request;
use crate::limiter::{Decision, InForce, Limiter, Modes, Snapshot, Undecided};
use crate::policy::PolicySet;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

/// Time for one decision, which memory does not take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of counters: millions of keys at once, and a bound.
const ROOM: Bounds = Bounds { max_bytes: 4 << 30, domain_max_bytes: 4 << 30 };

/// Policies, with counters of their own and a clock that is told.
pub(super) struct DryRun {
    limiter: Limiter<Arc<MemoryStore<Arc<ManualClock>>>>,
    clock: Arc<ManualClock>,
    policies: Arc<InForce>,
}

impl DryRun {
    /// No counters yet.
    pub(super) fn new(policies: PolicySet) -> Self {
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies);
        Self::of(in_force)
    }

    /// The same policies, without counters.
    pub(super) fn anew(&self) -> Self {
        Self::of(Arc::clone(&self.policies))
    }

    fn of(policies: Arc<InForce>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(ROOM, Arc::clone(&clock)));
        Self { limiter: Limiter::new(Arc::clone(&policies), store, Modes::default()), clock, policies }
    }

    /// The policies, to decide by.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.limiter.snapshot()
    }

    /// Decides a request at an instant.
    ///
    /// # Errors
    /// None that policies and memory have.
    pub(super) async fn decide<'a>(
        &self,
        at: Timestamp,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
    ) -> Result<Decision<'a>, Undecided> {
        self.clock.set(at);
        let now = Instant::now();
        self.limiter.decide(snapshot, request, now.checked_add(PATIENCE).unwrap_or(now)).await
    }
}
