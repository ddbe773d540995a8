//! Gauges in the statistics of envoyproxy/ratelimit for values that the metrics count.

use std::sync::Arc;

use super::{Counter, Gauge};
use crate::statistics::Stats;

/// Adds gauges for values that these metrics already count.
pub(super) fn with_gauges(
    stats: Stats,
    hits: &Counter,
    misses: &Counter,
    connections: &Gauge,
) -> Arc<Stats> {
    let read = |counter: &Counter| {
        let counter = counter.clone();
        move || i64::try_from(counter.get()).unwrap_or(i64::MAX)
    };
    let hits = read(hits);
    let misses = read(misses);
    let connections = connections.clone();
    let found = hits.clone();
    let sought = misses.clone();
    let stats = stats
        .with_gauge("ratelimit.localcache.hitCount", hits)
        .with_gauge("ratelimit.localcache.missCount", misses)
        .with_gauge("ratelimit.localcache.lookupCount", move || found().saturating_add(sought()))
        .with_gauge("ratelimit.redis_pool.cx_active", move || connections.get());
    Arc::new(stats)
}
