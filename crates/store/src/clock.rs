//! Clocks: the system clock, and one that is set by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tollgate_core::algorithm::time::Timestamp;

/// A source of timestamps. It may step back; counters tolerate that.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// Returns the current instant of the runtime's clock, which tests may pause.
pub fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the instant `time` from now.
pub(super) fn within(time: Duration) -> Instant {
    let now = instant();
    now.checked_add(time).unwrap_or(now)
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A clock that only changes when it is set, for traces and tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Sets the current time, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        C::now(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_has_the_time_since_1970() {
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
        let before = now();
        let at = SystemClock.now().as_micros();
        assert!((before..=now()).contains(&at.into()));
    }
}
