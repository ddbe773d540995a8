//! The circuit breaker of a node: opens after consecutive timeouts, and is closed by an answer to a
//! probe or by a new connection.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Number of consecutive timeouts after which the breaker opens.
const THRESHOLD: u32 = 8;
/// Minimum wait for a timeout to count: a shorter one proves nothing about the node.
const FAIR_WAIT: Duration = Duration::from_millis(5);

/// A circuit breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Consecutive timeouts.
    timeouts: AtomicU32,
    open: AtomicBool,
}

impl Breaker {
    /// Returns `true` if calls fail immediately.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Records the timeout of a call that waited for this time. Returns `true` if the breaker opens
    /// because of it.
    pub(super) fn record_timeout(&self, waited: Duration) -> bool {
        let opens =
            waited >= FAIR_WAIT && self.timeouts.fetch_add(1, Ordering::Relaxed) == THRESHOLD - 1;
        if opens {
            self.open.store(true, Ordering::Relaxed);
        }
        opens
    }

    /// Records a reply. It ends a series of timeouts, but does not close an open breaker: the reply
    /// may be to a call of long ago.
    pub(super) fn record_reply(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Closes the breaker.
    pub(super) fn close(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.open.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_timeouts_open_it_until_it_is_closed() {
        let breaker = Breaker::default();
        for _ in 1..THRESHOLD {
            assert!(!breaker.record_timeout(FAIR_WAIT));
        }
        breaker.record_reply();
        for _ in 1..THRESHOLD {
            assert!(!breaker.record_timeout(FAIR_WAIT));
        }
        assert!(!breaker.record_timeout(FAIR_WAIT - Duration::from_micros(1)), "too short");
        assert!(!breaker.is_open());
        assert!(breaker.record_timeout(FAIR_WAIT) && breaker.is_open());
        assert!(!breaker.record_timeout(FAIR_WAIT), "it opens once");
        breaker.record_reply();
        assert!(breaker.is_open());
        breaker.close();
        assert!(!breaker.is_open());
    }
}
