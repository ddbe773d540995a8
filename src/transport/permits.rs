//! A bound of the connections that are open at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use crate::telemetry::guard::Cut;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::seldom::Seldom;

/// Permits for connections.
pub struct ConnectionPermits {
    free: Arc<Semaphore>,
    max: usize,
    metrics: Arc<Metrics>,
    refused: Seldom,
}

/// A permit for one connection, given back when dropped.
pub struct Permit {
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPermits {
    /// Permits for `max` connections.
    pub fn new(max: usize, metrics: Arc<Metrics>) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(max)), max, metrics, refused: Seldom::default() }
    }

    /// Takes a permit, if there is one. A connection without one is to be closed at once and not left waiting: its client goes
    /// to another replica, while one in the kernel's queue believes to be connected and times out, call by call.
    pub fn take(&self) -> Option<Permit> {
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            self.metrics.guard.cut(Cut::Full);
            if let Some(times) = self.refused.times() {
                let max = self.max;
                warn!(times, "--max-connections: there are {max} connections of gRPC, more were closed at once");
            }
            return None;
        };
        self.metrics.guard.connections.inc();
        Some(Permit { metrics: Arc::clone(&self.metrics), _permit: permit })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.metrics.guard.connections.dec();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permit")
    }
}
