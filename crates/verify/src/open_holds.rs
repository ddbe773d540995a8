//! Holds that a run can end.

use rand::Rng as _;
use rand::rngs::StdRng;

/// Most holds of a rule that are ended later; others end by themselves.
const MAX_OPEN: usize = 64;

/// Holds of a rule that were admitted and have not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoldsToEnd(Vec<HoldToEnd>);

/// A hold that was admitted and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct HoldToEnd {
    /// Its number.
    pub(crate) hold: usize,
    /// Indexes of its counters.
    pub(crate) counters: Vec<usize>,
    /// Hits at each counter.
    pub(crate) hits: u64,
    /// Time from which it is not ended: it may have ended by itself before the request arrives.
    pub(crate) until: u64,
}

impl HoldsToEnd {
    /// Adds a hold; the oldest one is then left to end by itself if there are many.
    pub(crate) fn add(&mut self, hold: HoldToEnd) {
        if self.0.len() >= MAX_OPEN {
            self.0.remove(0);
        }
        self.0.push(hold);
    }

    /// Removes a random hold that can still be ended at a time.
    pub(crate) fn take(&mut self, now: u64, random: &mut StdRng) -> Option<HoldToEnd> {
        self.0.retain(|hold| now < hold.until);
        (!self.0.is_empty()).then(|| self.0.swap_remove(random.random_range(0..self.0.len())))
    }
}
