//! The bound of repeated calls.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tokens are counted in halves.
const TOKEN: u32 = 2;
const MOST: u32 = 100 * TOKEN;

/// Stops repeats while more than a third of the attempts fail: in an outage, they would multiply
/// the load.
///
/// The rule is that of gRPC's `retryThrottling` with 100 tokens and a ratio of 0.5: a failed
/// attempt takes a token, and a success adds half of one. Calls are repeated while more than half
/// are left.
#[derive(Debug)]
pub(crate) struct Throttle(AtomicU32);

impl Default for Throttle {
    fn default() -> Self {
        Self(AtomicU32::new(MOST))
    }
}

impl Throttle {
    /// Counts an attempt with an answer.
    pub(crate) fn succeed(&self) {
        // It fails if there are all tokens, which is most of the time.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |halves| {
            (halves < MOST).then_some(halves + TOKEN / 2)
        });
    }

    /// Counts an attempt that failed. Returns `true` if it may be repeated.
    pub(crate) fn fail(&self) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |halves| {
            Some(halves.saturating_sub(TOKEN))
        });
        // The function always has a new value.
        let (Ok(before) | Err(before)) = taken;
        before.saturating_sub(TOKEN) > MOST / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of a number of failures may be repeated.
    fn repeated(throttle: &Throttle, failures: usize) -> usize {
        (0..failures).filter(|_| throttle.fail()).count()
    }

    #[test]
    fn repeats_stop_when_half_of_the_tokens_are_taken() {
        let throttle = Throttle::default();
        assert_eq!(repeated(&throttle, 1000), 49);
    }

    #[test]
    fn successes_let_calls_be_repeated_again() {
        let throttle = Throttle::default();
        repeated(&throttle, 1000);
        (0..103).for_each(|_| throttle.succeed());
        assert_eq!(repeated(&throttle, 10), 1);
    }

    #[test]
    fn a_third_of_the_attempts_may_fail() {
        let throttle = Throttle::default();
        let fail_after = |successes: usize| {
            (0..successes).for_each(|_| throttle.succeed());
            throttle.fail()
        };
        assert!((0..1000).all(|_| fail_after(2)));
        assert!(!(0..1000).all(|_| fail_after(1)));
    }
}
