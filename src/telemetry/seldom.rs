//! Logs of what may happen a thousand times a second, once in a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two of them.
const PAUSE: Duration = Duration::from_secs(10);

/// Says when it is time to log again, and how often there was cause since.
#[derive(Debug)]
pub struct Seldom {
    begun: Instant,
    /// Milliseconds from `begun` to the earliest next time.
    next: AtomicU64,
    missed: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self { begun: Instant::now(), next: AtomicU64::new(0), missed: AtomicU64::new(0) }
    }
}

impl Seldom {
    /// Where it is time: how often there was cause since the last time, with this one.
    pub fn times(&self) -> Option<u64> {
        self.times_after(self.begun.elapsed())
    }

    fn times_after(&self, elapsed: Duration) -> Option<u64> {
        let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.missed.fetch_add(1, Ordering::Relaxed);
        let (now, next) = (in_ms(elapsed), self.next.load(Ordering::Relaxed));
        let later = now.saturating_add(in_ms(PAUSE));
        // One of several threads that come together logs.
        let is_time =
            now >= next && self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_time.then(|| self.missed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_then_what_came_together() {
        let (seldom, at) = (Seldom::default(), Duration::from_millis);
        assert_eq!(seldom.times_after(at(0)), Some(1));
        assert_eq!(seldom.times_after(at(1)), None);
        assert_eq!(seldom.times_after(at(9_999)), None);
        assert_eq!(seldom.times_after(at(10_000)), Some(3));
        assert_eq!(seldom.times_after(at(10_001)), None);
    }
}
