//! Counters of a rule, of the service and of a gRPC method.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Timer;

/// A monotonic counter.
#[derive(Debug, Default)]
pub struct Counter {
    value: AtomicU64,
    /// Value at the last call of [`unsent`](Self::unsent).
    sent: AtomicU64,
}

/// The counters of one rule, in hits.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// All requested hits, including those for which the store failed.
    pub total_hits: Counter,
    /// Denied hits: all hits of a denied request. envoyproxy/ratelimit counts the part that still
    /// fits as near the limit, but the usage before the request is not known for every algorithm.
    pub over_limit: Counter,
    /// Hits within the limit but above the near-limit ratio.
    pub near_limit: Counter,
    /// Hits denied by a cached denial; part of `over_limit`.
    pub over_limit_with_local_cache: Counter,
    /// Allowed hits.
    pub within_limit: Counter,
    /// Hits that a rule in shadow mode would have denied; part of `over_limit`.
    pub shadow_mode: Counter,
    /// Refunded hits.
    pub total_negative_hits: Counter,
}

/// The counters of the service.
#[derive(Debug, Default)]
pub struct ServiceStats {
    /// Policy loads that succeeded.
    pub config_load_success: Counter,
    /// Policy loads that were rejected.
    pub config_load_error: Counter,
    /// Requests admitted only because of global shadow mode.
    pub global_shadow_mode: Counter,
    /// Calls that failed because of the store; calls that `on_store_error` resolves are not
    /// failures.
    pub redis_error: Counter,
    /// Calls that failed for any other reason.
    pub service_error: Counter,
    /// Connections opened to Redis.
    pub cx_total: Counter,
    /// Connections to Redis that have closed.
    pub cx_local_close: Counter,
}

/// The statistics of one gRPC method.
#[derive(Debug)]
pub struct MethodStats {
    /// Calls received.
    pub total_requests: Counter,
    /// Duration of the calls that were answered.
    pub response_time: Timer,
}

/// A call in flight.
#[derive(Debug)]
pub struct CallTimer {
    method: Arc<MethodStats>,
    begun: Instant,
}

impl CallTimer {
    /// Counts a call and starts its timer.
    pub(super) fn begin(method: Arc<MethodStats>) -> Self {
        method.total_requests.add(1);
        Self { method, begun: Instant::now() }
    }

    /// Records the duration. A call that is dropped instead was not answered.
    pub fn answered(self) {
        self.method.response_time.record(self.begun.elapsed());
    }
}

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.value.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Returns the increment since the last call. For a single caller.
    pub fn unsent(&self) -> u64 {
        let value = self.get();
        value.saturating_sub(self.sent.swap(value, Ordering::Relaxed))
    }
}

impl RuleStats {
    /// Returns the counters with the last segments of their names.
    pub(super) fn named(&self) -> [(&'static str, &Counter); 7] {
        [
            ("total_hits", &self.total_hits),
            ("over_limit", &self.over_limit),
            ("near_limit", &self.near_limit),
            ("over_limit_with_local_cache", &self.over_limit_with_local_cache),
            ("within_limit", &self.within_limit),
            ("shadow_mode", &self.shadow_mode),
            ("total_negative_hits", &self.total_negative_hits),
        ]
    }
}

impl ServiceStats {
    /// Returns the counters with their names.
    pub(super) fn named(&self) -> [(&'static str, &Counter); 7] {
        [
            ("ratelimit.service.config_load_success", &self.config_load_success),
            ("ratelimit.service.config_load_error", &self.config_load_error),
            ("ratelimit.service.global_shadow_mode", &self.global_shadow_mode),
            ("ratelimit.service.call.should_rate_limit.redis_error", &self.redis_error),
            ("ratelimit.service.call.should_rate_limit.service_error", &self.service_error),
            ("ratelimit.redis_pool.cx_total", &self.cx_total),
            ("ratelimit.redis_pool.cx_local_close", &self.cx_local_close),
        ]
    }
}
