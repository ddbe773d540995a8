//! Exponential backoff between attempts, with jitter, so that the clients of one server do not all
//! try again at the same time.

use std::time::Duration;

/// The waits between attempts.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    bound: Duration,
}

impl Backoff {
    /// Creates a backoff whose waits are between `first` and `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest: longest.max(first), bound: first }
    }

    /// Returns the next wait: from half of a bound to all of it, by `jitter` from 0 to 1. The bound
    /// is the first wait, and doubles with each call up to the longest. No wait is below the first.
    pub fn next(&mut self, jitter: f64) -> Duration {
        let wait = self.bound.mul_f64(jitter.clamp(0.0, 1.0).mul_add(0.5, 0.5));
        self.bound = self.bound.saturating_mul(2).min(self.longest);
        wait.max(self.first)
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.bound = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_between_the_bounds_and_are_shortened_by_up_to_half() {
        let first = Duration::from_millis(100);
        let mut shortest = Backoff::new(first, Duration::from_secs(1));
        let mut longest = shortest;
        for (from, to) in [(100, 100), (100, 200), (200, 400), (400, 800), (500, 1_000)] {
            assert_eq!(shortest.next(0.0), Duration::from_millis(from));
            assert_eq!(longest.next(1.0), Duration::from_millis(to));
        }
        longest.reset();
        assert_eq!(longest.next(0.5), first);
    }

    #[test]
    fn equal_bounds_are_one_wait() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second);
        assert_eq!([backoff.next(0.0), backoff.next(1.0)], [second, second]);
        assert_eq!(Backoff::new(second, Duration::ZERO).next(0.0), second);
    }
}
