//! What is counted: of each rule, of the service, of each gRPC method.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Timer;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter {
    value: AtomicU64,
    /// The part of it that was sent on.
    sent: AtomicU64,
}

/// What is counted of a rule, in hits.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// All that was asked for, also where the store failed.
    pub total_hits: Counter,
    /// What was denied. All hits of a denied request: how many were there before is not known of every algorithm, and
    /// envoyproxy/ratelimit, which knows, counts those that came up to the limit as near it.
    pub over_limit: Counter,
    /// Hits within the limit and above the ratio.
    pub near_limit: Counter,
    /// What was denied because a denial was remembered; a part of `over_limit`.
    pub over_limit_with_local_cache: Counter,
    /// What there was room for.
    pub within_limit: Counter,
    /// What would have been denied by a rule that only watches; a part of `over_limit`.
    pub shadow_mode: Counter,
}

/// What is counted of the service.
#[derive(Debug, Default)]
pub struct ServiceStats {
    /// Policies that were put in force.
    pub config_load_success: Counter,
    /// Policies that were refused.
    pub config_load_error: Counter,
    /// Requests that were admitted only because every request is.
    pub global_shadow_mode: Counter,
    /// Calls that failed because the store did; those that `on_store_error` answers did not fail.
    pub redis_error: Counter,
    /// Calls that failed for another reason.
    pub service_error: Counter,
    /// Connections to Redis that were made.
    pub cx_total: Counter,
    /// Those of them that are gone.
    pub cx_local_close: Counter,
}

/// What is counted of a gRPC method.
#[derive(Debug)]
pub struct MethodStats {
    /// Calls that came.
    pub total_requests: Counter,
    /// How long those took that were answered.
    pub response_time: Timer,
}

/// A call of a method, under way.
#[derive(Debug)]
pub struct Call {
    method: Arc<MethodStats>,
    begun: Instant,
}

impl Call {
    /// Counts a call that begins.
    pub(super) fn begin(method: Arc<MethodStats>) -> Self {
        method.total_requests.add(1);
        Self { method, begun: Instant::now() }
    }

    /// Records how long it took; dropped instead, it was not answered.
    pub fn answered(self) {
        self.method.response_time.record(self.begun.elapsed());
    }
}

impl Counter {
    /// Adds.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.value.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// What was added since this was asked last. For one caller.
    pub fn unsent(&self) -> u64 {
        let value = self.get();
        value.saturating_sub(self.sent.swap(value, Ordering::Relaxed))
    }
}

impl RuleStats {
    /// Under the last parts of their names.
    pub(super) fn named(&self) -> [(&'static str, &Counter); 6] {
        [
            ("total_hits", &self.total_hits),
            ("over_limit", &self.over_limit),
            ("near_limit", &self.near_limit),
            ("over_limit_with_local_cache", &self.over_limit_with_local_cache),
            ("within_limit", &self.within_limit),
            ("shadow_mode", &self.shadow_mode),
        ]
    }
}

impl ServiceStats {
    /// Under their names.
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
