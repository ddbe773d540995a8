//! The demand for keys, in atomics that all threads share: of each key that is in use, the requests
//! that no block admitted; and, in a table of a fixed size, of keys that may become hot.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Minimum number of requests in a window for which a key is worth a block.
pub(super) const HOT: u32 = 8;
/// Window of demand until the first block of a key; after that, it is the time of its blocks.
pub(super) const FIRST_WINDOW: Duration = Duration::from_millis(500);
/// Maximum ratio of the expected hits of a window to those of the part of it that has passed.
const AHEAD: u64 = 10;
/// Number of entries for keys that are not in use, 8 bytes each.
const ENTRIES: usize = 1 << 13;

/// Requests for a key, in the current window and in the one before it. Two threads that count at
/// the instant at which a window ends may count a request in the wrong one.
#[derive(Debug)]
pub(super) struct MissDemand {
    start: Instant,
    /// Start of the window, in microseconds since `start`.
    since: AtomicU64,
    now: WindowDemand,
    before: WindowDemand,
}

#[derive(Debug, Default)]
struct WindowDemand {
    requests: AtomicU32,
    hits: AtomicU64,
}

impl MissDemand {
    /// Creates the counts of a key that just became hot by requests of so many hits.
    pub(super) fn new(hits: u32, now: Instant) -> Self {
        let now_hits = AtomicU64::new(u64::from(hits).saturating_mul(HOT.into()));
        Self {
            start: now,
            since: AtomicU64::new(0),
            now: WindowDemand { requests: AtomicU32::new(HOT), hits: now_hits },
            before: WindowDemand::default(),
        }
    }

    /// Counts a request.
    pub(super) fn count(&self, hits: u32, window: Duration, now: Instant) {
        let at = micros(now.saturating_duration_since(self.start));
        let since = self.since.load(Relaxed);
        let passed = at.saturating_sub(since);
        let window = micros(window);
        let is_over =
            passed >= window && self.since.compare_exchange(since, at, Relaxed, Relaxed).is_ok();
        if is_over {
            let requests = self.now.requests.swap(0, Relaxed);
            let hits = self.now.hits.swap(0, Relaxed);
            let is_latest = passed < window.saturating_mul(2);
            self.before.requests.store(if is_latest { requests } else { 0 }, Relaxed);
            self.before.hits.store(if is_latest { hits } else { 0 }, Relaxed);
        }
        self.now.hits.fetch_add(hits.into(), Relaxed);
        // An attacker cannot send 2^32 requests in a window.
        self.now.requests.fetch_add(1, Relaxed);
    }

    /// Returns the requests of the window, or of the one before if those were more.
    pub(super) fn requests(&self) -> u32 {
        self.now.requests.load(Relaxed).max(self.before.requests.load(Relaxed))
    }

    /// Returns the hits of a window: of the one before, or as many as the current one will have if
    /// they go on.
    pub(super) fn expected(&self, window: Duration, now: Instant) -> u64 {
        let hits = self.now.hits.load(Relaxed);
        let before = self.before.hits.load(Relaxed);
        expected(hits, self.idle_for(now), window).max(hits).max(before)
    }

    /// Returns the time since the window began.
    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        let since = Duration::from_micros(self.since.load(Relaxed));
        now.saturating_duration_since(self.start).saturating_sub(since)
    }
}

/// Returns the hits of a window if those of the part that has passed go on, but at most ten times
/// as many. Without that, the blocks of a key that becomes hot would be too small for several
/// exchanges.
pub(super) fn expected(hits: u64, passed: Duration, window: Duration) -> u64 {
    let window = micros(window);
    let least = window.checked_div(AHEAD).unwrap_or_default().max(1);
    let passed = micros(passed).clamp(least, window.max(least));
    hits.saturating_mul(window).checked_div(passed).unwrap_or_default()
}

/// Counts of the keys that are not in use: direct-mapped. If two keys meet in an entry, the one
/// with fewer requests leaves it, so that one-off keys never hold on to it.
#[derive(Debug)]
pub(super) struct ColdTable {
    start: Instant,
    entries: Box<[AtomicU64]>,
}

/// An entry: 32 bits of the key's hash, 24 of the number of the window, 8 of its requests.
#[derive(Clone, Copy)]
struct ColdKey {
    tag: u64,
    window: u64,
    requests: u64,
}

const WINDOW_BITS: u32 = 24;
const REQUEST_BITS: u32 = 8;

impl ColdKey {
    fn of(packed: u64) -> Self {
        Self {
            tag: packed >> (WINDOW_BITS + REQUEST_BITS),
            window: (packed >> REQUEST_BITS) & ((1 << WINDOW_BITS) - 1),
            requests: packed & ((1 << REQUEST_BITS) - 1),
        }
    }

    fn packed(self) -> u64 {
        (self.tag << (WINDOW_BITS + REQUEST_BITS)) | (self.window << REQUEST_BITS) | self.requests
    }
}

impl ColdTable {
    /// Creates the table.
    pub(super) fn new(now: Instant) -> Self {
        Self { start: now, entries: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a request of a key. Returns `true` with the request that makes it worth a block.
    pub(super) fn count(&self, hash: u64, now: Instant) -> bool {
        let index = usize::try_from(hash).unwrap_or_default() % ENTRIES;
        let Some(entry) = self.entries.get(index) else { return false };
        let passed = micros(now.saturating_duration_since(self.start));
        let number = passed.checked_div(micros(FIRST_WINDOW)).unwrap_or_default();
        let window = number & ((1 << WINDOW_BITS) - 1);
        let tag = hash >> (WINDOW_BITS + REQUEST_BITS);
        let packed = entry.load(Relaxed);
        let found = ColdKey::of(packed);
        let requests = match (found.tag == tag, found.window == window) {
            (true, true) => found.requests.saturating_add(1),
            (false, true) if found.requests > 1 => {
                let less = ColdKey { requests: found.requests.saturating_sub(1), ..found };
                entry.store(less.packed(), Relaxed);
                return false;
            }
            _ => 1,
        };
        let is_hot = requests >= u64::from(HOT);
        let counted = ColdKey { tag, window, requests: if is_hot { 0 } else { requests } };
        // A request that another worker counts at the same instant may be lost, but no key is hot
        // twice.
        entry.compare_exchange(packed, counted.packed(), Relaxed, Relaxed).is_ok() && is_hot
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn demand_is_that_of_the_window_or_of_the_one_before() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let demand = MissDemand::new(2, start);
        let window = Duration::from_millis(100);
        let count = |ms| {
            demand.count(2, window, at(ms));
            demand.requests()
        };
        assert_eq!(count(50), HOT + 1);
        assert_eq!(demand.expected(window, at(50)), 36, "18 hits in half of a window");
        assert_eq!(count(150), HOT + 1, "in the window before");
        assert_eq!(demand.expected(window, at(150)), 20, "ten times 2 hits");
        assert_eq!(count(500), 1);
        let expected = [505, 520, 550, 600, 700].map(|ms| demand.expected(window, at(ms)));
        assert_eq!(expected, [20, 10, 4, 2, 2]);
        assert_eq!(demand.idle_for(at(600)), window);
    }

    #[test]
    fn demand_of_two_windows_ago_does_not_count() {
        for (ms, requests) in [(199, HOT), (200, 1)] {
            let start = Instant::now();
            let demand = MissDemand::new(2, start);
            demand.count(2, Duration::from_millis(100), start + Duration::from_millis(ms));
            assert_eq!(demand.requests(), requests, "after {ms} ms");
        }
    }

    #[test]
    fn a_cold_key_becomes_hot_once_in_a_window() {
        let start = Instant::now();
        let table = ColdTable::new(start);
        let hot = |count: u64, ms| {
            let now = start + Duration::from_millis(ms);
            (0..count).filter(|_| table.count(7 << 32, now)).count()
        };
        assert_eq!((hot(7, 1), hot(7, 501), hot(1, 502), hot(7, 503)), (0, 0, 1, 0));
    }

    #[test]
    fn one_off_keys_do_not_keep_a_frequent_key_from_becoming_hot() {
        let start = Instant::now();
        let table = ColdTable::new(start);
        let mut hot = 0;
        for n in 0..30_u64 {
            hot += usize::from(table.count(7 << 32, start));
            hot += usize::from(table.count(7 << 32, start));
            assert!(!table.count((100 + n) << 32, start));
        }
        assert!(hot >= 3, "{hot}");
    }

    #[test]
    fn a_key_takes_the_entry_of_another_that_is_requested_less() {
        let start = Instant::now();
        let table = ColdTable::new(start);
        assert!((0..2).all(|_| !table.count(7 << 32, start)));
        assert_eq!((0..30).position(|_| table.count(9 << 32, start)), Some(8));
    }

    #[test]
    fn a_key_becomes_hot_after_more_windows_than_an_entry_can_count() {
        let start = Instant::now();
        let table = ColdTable::new(start);
        let later = start + FIRST_WINDOW * (1 << WINDOW_BITS);
        assert_eq!((0..30).position(|_| table.count(7 << 32, later)), Some(7));
    }
}
