//! Counts of requests, in atomics that all workers share: of each key that is in use, and, in a
//! table of a fixed size, of those that may become so.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Minimum number of requests in a window for which a key is worth a block.
pub(crate) const HOT: u32 = 8;
/// Window of demand until the first block of a key; after that, it is the time of its blocks.
pub(crate) const FIRST_WINDOW: Duration = Duration::from_millis(500);
/// Maximum ratio of the expected requests of a window to those that it has.
const AHEAD: u64 = 10;
/// Number of entries for keys that are not in use, 8 bytes each.
const ENTRIES: usize = 1 << 13;

/// Requests for a key, in the current window and in the one before it. Two workers that count at
/// the instant at which a window ends may count a request in the wrong one.
#[derive(Debug)]
pub(crate) struct Demand {
    start: Instant,
    /// Start of the window, in microseconds since `start`.
    since: AtomicU64,
    now: AtomicU32,
    before: AtomicU32,
}

impl Demand {
    /// Creates the counts of a key with so many requests just before `now`.
    pub(crate) fn new(requests: u32, now: Instant) -> Self {
        Self {
            start: now,
            since: AtomicU64::new(0),
            now: AtomicU32::new(requests),
            before: AtomicU32::new(0),
        }
    }

    /// Counts a request. Returns `true` if the key is worth a block.
    pub(crate) fn count(&self, window: Duration, now: Instant) -> bool {
        let at = micros(now.saturating_duration_since(self.start));
        let since = self.since.load(Ordering::Relaxed);
        let passed = at.saturating_sub(since);
        let window = micros(window);
        let is_over = passed >= window
            && self.since.compare_exchange(since, at, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_over {
            let requests = self.now.swap(0, Ordering::Relaxed);
            let is_latest = passed < window.saturating_mul(2);
            self.before.store(if is_latest { requests } else { 0 }, Ordering::Relaxed);
        }
        // An attacker cannot send 2^32 requests in a window.
        let requests = self.now.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        requests.max(self.before.load(Ordering::Relaxed)) >= HOT
    }

    /// Returns the requests of a window: of the one before, or as many as the current one will have
    /// if they go on, but at most ten times as many as it has. Without that, the blocks of a key
    /// that becomes hot would be too small for several exchanges.
    pub(crate) fn expected(&self, window: Duration, now: Instant) -> u32 {
        let requests = self.now.load(Ordering::Relaxed);
        let window = micros(window);
        let least = window.checked_div(AHEAD).unwrap_or_default().max(1);
        let passed = micros(self.idle_for(now)).clamp(least, window.max(least));
        let ahead = u64::from(requests).saturating_mul(window).checked_div(passed);
        let ahead = u32::try_from(ahead.unwrap_or_default()).unwrap_or(u32::MAX);
        ahead.max(requests).max(self.before.load(Ordering::Relaxed))
    }

    /// Returns the time since the window began.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        let since = Duration::from_micros(self.since.load(Ordering::Relaxed));
        now.saturating_duration_since(self.start).saturating_sub(since)
    }
}

/// Counts of the keys that are not in use: direct-mapped. If two keys meet in an entry, the one
/// with fewer requests leaves it, so that one-off keys never hold on to it.
#[derive(Debug)]
pub(crate) struct ColdDemand {
    start: Instant,
    entries: Box<[AtomicU64]>,
}

/// An entry: 32 bits of the key's hash, 24 of the number of the window, 8 of its requests.
#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    window: u64,
    requests: u64,
}

const WINDOW_BITS: u32 = 24;
const REQUEST_BITS: u32 = 8;

impl Entry {
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

impl ColdDemand {
    /// Creates the table.
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, entries: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a request of a key. Returns `true` with the request that makes it worth a block.
    pub(crate) fn count(&self, hash: u64, now: Instant) -> bool {
        let index = usize::try_from(hash).unwrap_or_default() % ENTRIES;
        let Some(entry) = self.entries.get(index) else { return false };
        let passed = micros(now.saturating_duration_since(self.start));
        let number = passed.checked_div(micros(FIRST_WINDOW)).unwrap_or_default();
        let window = number & ((1 << WINDOW_BITS) - 1);
        let tag = hash >> (WINDOW_BITS + REQUEST_BITS);
        let packed = entry.load(Ordering::Relaxed);
        let found = Entry::of(packed);
        let requests = match (found.tag == tag, found.window == window) {
            (true, true) => found.requests.saturating_add(1),
            (false, true) if found.requests > 1 => {
                let less = Entry { requests: found.requests.saturating_sub(1), ..found };
                entry.store(less.packed(), Ordering::Relaxed);
                return false;
            }
            _ => 1,
        };
        let is_hot = requests >= u64::from(HOT);
        let counted = Entry { tag, window, requests: if is_hot { 0 } else { requests } };
        // A request that another worker counts at the same instant may be lost, but no key is hot
        // twice.
        entry
            .compare_exchange(packed, counted.packed(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            && is_hot
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_from_its_eighth_request_in_a_window_until_the_next_has_passed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let demand = Demand::new(0, start);
        let window = Duration::from_millis(100);
        let hot: Vec<bool> = (0..8).map(|n| demand.count(window, at(n))).collect();
        assert_eq!(hot, [false, false, false, false, false, false, false, true]);
        assert!(demand.count(window, at(150)), "it was hot in the window before");
        assert_eq!(demand.expected(window, at(150)), 10, "the first request of its window");
        assert!(!demand.count(window, at(500)));
        let expected = [505, 520, 550, 600, 700].map(|ms| demand.expected(window, at(ms)));
        assert_eq!(expected, [10, 5, 2, 1, 1]);
        assert_eq!(demand.idle_for(at(600)), window);
    }

    #[test]
    fn a_cold_key_becomes_hot_once_in_a_window() {
        let start = Instant::now();
        let table = ColdDemand::new(start);
        let hot = |count: u64, ms| {
            let now = start + Duration::from_millis(ms);
            (0..count).filter(|_| table.count(7 << 32, now)).count()
        };
        assert_eq!((hot(7, 1), hot(7, 501), hot(1, 502), hot(7, 503)), (0, 0, 1, 0));
    }

    #[test]
    fn one_off_keys_do_not_keep_a_frequent_key_from_becoming_hot() {
        let start = Instant::now();
        let table = ColdDemand::new(start);
        let mut hot = 0;
        for n in 0..30_u64 {
            hot += usize::from(table.count(7 << 32, start));
            hot += usize::from(table.count(7 << 32, start));
            assert!(!table.count((100 + n) << 32, start));
        }
        assert!(hot >= 3, "{hot}");
    }
}
