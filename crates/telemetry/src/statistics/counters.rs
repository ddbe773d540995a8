//! Counters of a rule, of the service and of a gRPC method. Those that are metrics, too, are
//! counted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Timer;
use crate::count::{Counter, level};

/// A counter of the statistics alone.
#[derive(Debug, Default)]
pub struct StatCounter {
    value: AtomicU64,
    sent: AtomicU64,
}

/// The value of a counter, here or in the metrics.
#[derive(Clone, Copy, Debug)]
pub struct StatCount<'a> {
    value: u64,
    /// Value at the last call of [`unsent`](Self::unsent).
    sent: &'a AtomicU64,
}

/// Counts of the metrics that the statistics show under names of their own.
#[derive(Debug, Default)]
pub struct StatSources {
    /// Policy loads that succeeded.
    pub config_loads: Counter,
    /// Policy loads that were rejected.
    pub config_errors: Counter,
    /// Invalid requests.
    pub invalid: Counter,
    /// Requests before the first policy was loaded.
    pub without_policy: Counter,
    /// Requests that failed in the store; those that `on_store_error` resolves are not failures.
    pub without_store: Counter,
    /// Connections opened to Redis.
    pub connects: Counter,
    /// Connections to Redis that have closed.
    pub disconnects: Counter,
    /// Checks answered by a cached denial.
    pub cache_hits: Counter,
    /// Checks without a cached denial.
    pub cache_misses: Counter,
}

/// The counters of one rule, in hits.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// All requested hits, including those for which the store failed.
    pub total_hits: StatCounter,
    /// Denied hits: all hits of a denied request. envoyproxy/ratelimit counts the part that still
    /// fits as near the limit, but the usage before the request is not known for every algorithm.
    pub over_limit: StatCounter,
    /// Hits within the limit but above the near-limit ratio.
    pub near_limit: StatCounter,
    /// Hits denied by a cached denial; part of `over_limit`.
    pub over_limit_with_local_cache: StatCounter,
    /// Allowed hits.
    pub within_limit: StatCounter,
    /// Hits that a rule in shadow mode would have denied; part of `over_limit`.
    pub shadow_mode: StatCounter,
    /// Refunded hits.
    pub total_negative_hits: StatCounter,
}

/// The counters of the service.
#[derive(Debug, Default)]
pub struct ServiceStats {
    /// Requests admitted only because of global shadow mode.
    pub global_shadow_mode: StatCounter,
    pub(super) sources: StatSources,
    /// Values of the counters of `sources` at their last calls of `unsent`.
    sent: [AtomicU64; 6],
}

/// The statistics of one gRPC method.
#[derive(Debug)]
pub struct MethodStats {
    /// Calls received.
    pub total_requests: StatCounter,
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

impl StatCounter {
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

    pub(super) fn read(&self) -> StatCount<'_> {
        StatCount { value: self.get(), sent: &self.sent }
    }
}

impl StatCount<'_> {
    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.value
    }

    /// Returns the increment since the last call. For a single caller.
    pub fn unsent(&self) -> u64 {
        self.value.saturating_sub(self.sent.swap(self.value, Ordering::Relaxed))
    }
}

impl RuleStats {
    /// Returns the counters with the last segments of their names.
    pub(super) fn named(&self) -> [(&'static str, &StatCounter); 7] {
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
    pub(super) fn counters(&self) -> [(&'static str, StatCount<'_>); 7] {
        let Self { global_shadow_mode, sources, sent } = self;
        let [loads, errors, redis, service, connects, disconnects] = sent;
        let service_errors = sources.invalid.get() + sources.without_policy.get();
        [
            ("ratelimit.service.config_load_success", (&sources.config_loads, loads).into()),
            ("ratelimit.service.config_load_error", (&sources.config_errors, errors).into()),
            ("ratelimit.service.global_shadow_mode", global_shadow_mode.read()),
            (
                "ratelimit.service.call.should_rate_limit.redis_error",
                (&sources.without_store, redis).into(),
            ),
            (
                "ratelimit.service.call.should_rate_limit.service_error",
                StatCount { value: service_errors, sent: service },
            ),
            ("ratelimit.redis_pool.cx_total", (&sources.connects, connects).into()),
            ("ratelimit.redis_pool.cx_local_close", (&sources.disconnects, disconnects).into()),
        ]
    }

    /// Returns the gauges with their names.
    pub(super) fn gauges(&self) -> [(&'static str, i64); 4] {
        let sources = &self.sources;
        let hits = sources.cache_hits.get();
        let misses = sources.cache_misses.get();
        let [hits, misses, lookups] =
            [hits, misses, hits + misses].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        [
            ("ratelimit.localcache.hitCount", hits),
            ("ratelimit.localcache.missCount", misses),
            ("ratelimit.localcache.lookupCount", lookups),
            ("ratelimit.redis_pool.cx_active", level(&sources.connects, &sources.disconnects)),
        ]
    }
}

impl<'a> From<(&Counter, &'a AtomicU64)> for StatCount<'a> {
    fn from((counter, sent): (&Counter, &'a AtomicU64)) -> Self {
        Self { value: counter.get(), sent }
    }
}
