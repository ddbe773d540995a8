//! Throttling of logs for events that may occur thousands of times per second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default time between two logs.
const PAUSE: Duration = Duration::from_secs(10);

/// Decides when an event is logged, and counts the events since the last log.
#[derive(Debug)]
pub struct LogThrottle {
    begun: Instant,
    /// Time at which the whole burst is available again, in milliseconds since `begun`.
    next: AtomicU64,
    missed: AtomicU64,
    pause: Duration,
    /// Number of logs that are allowed at once.
    burst: u32,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new(PAUSE, 1)
    }
}

impl LogThrottle {
    /// Creates a throttle that allows one log per `pause`, and `burst` at once.
    pub fn new(pause: Duration, burst: u32) -> Self {
        Self {
            begun: Instant::now(),
            next: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            pause,
            burst,
        }
    }

    /// Counts an event. If a log is due, returns the number of events since the last one, including
    /// this one.
    pub fn due(&self) -> Option<u64> {
        self.due_after(self.begun.elapsed())
    }

    fn due_after(&self, elapsed: Duration) -> Option<u64> {
        self.missed.fetch_add(1, Ordering::Relaxed);
        let now = in_ms(elapsed);
        let next = self.next.load(Ordering::Relaxed);
        let at_once = self.pause.saturating_mul(self.burst.saturating_sub(1));
        let later = now.max(next).saturating_add(in_ms(self.pause));
        // Of several concurrent threads, one logs.
        let is_time = now.saturating_add(in_ms(at_once)) >= next
            && self
                .next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_time.then(|| self.missed.swap(0, Ordering::Relaxed))
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_due_at_once_and_later_ones_together() {
        let throttle = LogThrottle::default();
        let at = Duration::from_millis;
        assert_eq!(throttle.due_after(at(0)), Some(1));
        assert_eq!(throttle.due_after(at(1)), None);
        assert_eq!(throttle.due_after(at(9_999)), None);
        assert_eq!(throttle.due_after(at(10_000)), Some(3));
        assert_eq!(throttle.due_after(at(10_001)), None);
    }

    #[test]
    fn a_burst_of_events_is_due_at_once_and_then_one_per_interval() {
        let throttle = LogThrottle::new(Duration::from_secs(1), 3);
        let at = Duration::from_millis;
        let due_at = |ms: u64| throttle.due_after(at(ms));
        assert_eq!([due_at(0), due_at(1), due_at(2), due_at(3)], [Some(1), Some(1), Some(1), None]);
        assert_eq!([due_at(999), due_at(1_000), due_at(1_001)], [None, Some(3), None]);
        assert_eq!(
            [due_at(9_000), due_at(9_000), due_at(9_000), due_at(9_000)],
            [Some(2), Some(1), Some(1), None]
        );
    }
}
