//! The demand for a key, by which it gets blocks. Counting takes no lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Window of demand until the first block, which has the TTL of the lease.
const FIRST_WINDOW: Duration = Duration::from_millis(500);

/// Counts of requests and hits in a window, and in the one before it. Concurrent requests at the
/// start of a window may be counted in either.
#[derive(Debug)]
pub(super) struct Demand {
    since: AtomicU64,
    window: AtomicU64,
    requests: AtomicU32,
    hits: AtomicU64,
    last_requests: AtomicU32,
    last_hits: AtomicU64,
}

impl Demand {
    pub(super) fn new(now: u64) -> Self {
        Self {
            since: AtomicU64::new(now),
            window: AtomicU64::new(micros_of(FIRST_WINDOW)),
            requests: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            last_requests: AtomicU32::new(0),
            last_hits: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self, hits: u32, now: u64) {
        self.roll(now);
        self.requests.fetch_add(1, Relaxed);
        self.hits.fetch_add(hits.into(), Relaxed);
    }

    /// Begins a new window if this one has ended.
    fn roll(&self, now: u64) {
        let since = self.since.load(Relaxed);
        let window = self.window.load(Relaxed);
        let passed = now.saturating_sub(since);
        if passed < window || self.since.compare_exchange(since, now, Relaxed, Relaxed).is_err() {
            return;
        }
        let requests = self.requests.swap(0, Relaxed);
        let hits = self.hits.swap(0, Relaxed);
        let is_recent = passed < window.saturating_mul(2);
        self.last_requests.store(if is_recent { requests } else { 0 }, Relaxed);
        self.last_hits.store(if is_recent { hits } else { 0 }, Relaxed);
    }

    /// Returns the requests of a window, and decreases them by one.
    pub(super) fn decrease(&self, now: u64) -> u32 {
        self.roll(now);
        let less = |count: u32| count.checked_sub(1);
        let requests = self.requests.fetch_update(Relaxed, Relaxed, less);
        let last = self.last_requests.fetch_update(Relaxed, Relaxed, less);
        requests.unwrap_or(0).max(last.unwrap_or(0))
    }

    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Relaxed).max(self.last_requests.load(Relaxed))
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Relaxed).max(self.last_hits.load(Relaxed))
    }

    pub(super) fn window(&self) -> u64 {
        self.window.load(Relaxed)
    }

    pub(super) fn set_window(&self, window: u64) {
        self.window.store(window, Relaxed);
    }
}

/// Returns a duration in microseconds.
pub(super) fn micros_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_that_of_the_last_two_windows() {
        let demand = Demand::new(0);
        let window = micros_of(FIRST_WINDOW);
        for _ in 0..5 {
            demand.count(2, window - 1);
        }
        demand.count(1, window);
        assert_eq!((demand.requests(), demand.hits()), (5, 10));
        demand.count(1, 3 * window);
        assert_eq!((demand.requests(), demand.hits()), (1, 1));
    }
}
