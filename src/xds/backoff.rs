//! How long to wait before something is tried again: up to twice as long each time, by chance, so that many clients of one
//! server do not come back together.

use std::time::Duration;

use rand::Rng as _;

/// Waiting times between two bounds.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    up_to: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), up_to: min }
    }

    /// The next time to wait: at least the least, and at most twice as much as could have come the last time.
    pub(super) fn next(&mut self) -> Duration {
        self.up_to = self.up_to.saturating_mul(2).min(self.max);
        rand::rng().random_range(self.min..=self.up_to)
    }

    /// It worked: the next time is the first again.
    pub(super) fn reset(&mut self) {
        self.up_to = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_chance_between_the_bounds() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(min, max);
        for up_to in [200, 400, 800, 1_000, 1_000] {
            let wait = backoff.next();
            assert!((min..=Duration::from_millis(up_to)).contains(&wait), "{wait:?}, up to {up_to} ms");
        }
        backoff.reset();
        assert!(backoff.next() <= min * 2);
    }

    #[test]
    fn equal_bounds_are_one_time() {
        let second = Duration::from_secs(1);
        assert_eq!(Backoff::new(second, second).next(), second);
    }
}
