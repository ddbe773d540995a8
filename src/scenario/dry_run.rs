//! Evaluation of policies in memory, at given times, without a running service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::time::Timestamp;
use crate::descriptor::Request;
use crate::limiter::{Decision, InForce, Limiter, Modes, Snapshot, Undecided};
use crate::policy::PolicySet;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

/// Timeout of one decision. A store in memory never exceeds it.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

/// Memory bounds of counters: enough for millions of keys at once.
const BOUNDS: Bounds = Bounds { max_bytes: 4 << 30, domain_max_bytes: 4 << 30 };

/// Policies with counters and a manual clock of their own.
pub struct DryRun {
    limiter: Limiter<Arc<MemoryStore<Arc<ManualClock>>>>,
    clock: Arc<ManualClock>,
    policies: Arc<InForce>,
}

impl DryRun {
    /// Creates a dry run without counters.
    pub fn new(policies: PolicySet) -> Self {
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies);
        Self::of(in_force)
    }

    /// Returns a new dry run of the same policies, without counters.
    pub fn without_counters(&self) -> Self {
        Self::of(Arc::clone(&self.policies))
    }

    fn of(policies: Arc<InForce>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(BOUNDS, Arc::clone(&clock)));
        Self {
            limiter: Limiter::new(Arc::clone(&policies), store, Modes::default()),
            clock,
            policies,
        }
    }

    /// Returns a snapshot of the policies.
    pub fn snapshot(&self) -> Snapshot {
        self.limiter.snapshot()
    }

    /// Decides a request at an instant.
    ///
    /// # Errors
    /// The request could not be decided, which policies and a store in memory do not cause.
    pub async fn decide<'a>(
        &self,
        at: Timestamp,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
    ) -> Result<Decision<'a>, Undecided> {
        self.clock.set(at);
        let now = Instant::now();
        self.limiter
            .decide(snapshot, request, now.checked_add(DECISION_TIMEOUT).unwrap_or(now))
            .await
    }
}
