//! Exponential backoff with jitter, so that the clients of one server do not all reconnect at the
//! same time.

use std::time::Duration;

use rand::Rng as _;

/// A backoff between two bounds.
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

    /// Returns the next wait: a random time from the minimum up to a bound that doubles with each
    /// call, to the maximum.
    pub(super) fn next(&mut self) -> Duration {
        self.up_to = self.up_to.saturating_mul(2).min(self.max);
        rand::rng().random_range(self.min..=self.up_to)
    }

    /// Resets the backoff after a success.
    pub(super) fn reset(&mut self) {
        self.up_to = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_chance_between_the_bounds() {
        let min = Duration::from_millis(100);
        let max = Duration::from_secs(1);
        let mut backoff = Backoff::new(min, max);
        for up_to in [200, 400, 800, 1_000, 1_000] {
            let wait = backoff.next();
            assert!(
                (min..=Duration::from_millis(up_to)).contains(&wait),
                "{wait:?}, up to {up_to} ms"
            );
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
