//! Holds that a run can keep, or end once or twice.

use rand::Rng as _;
use rand::rngs::StdRng;

/// Most holds of a rule that are ended later; others end by themselves.
const MAX_OPEN: usize = 64;

/// Holds of a rule that the store remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoldsToEnd(Vec<HoldToEnd>);

/// A hold that was admitted and has not ended, or only by a call.
#[derive(Clone, Debug)]
pub(crate) struct HoldToEnd {
    /// Its number.
    pub(crate) hold: usize,
    /// Indexes of its counters.
    pub(crate) counters: Vec<usize>,
    /// Hits at each counter.
    pub(crate) hits: u64,
    /// Time at which its TTL began at the earliest.
    pub(crate) begin: u64,
    /// The shortest TTL of its counters.
    pub(crate) ttl: u64,
    /// `true` if the store has recorded it: another reserve charges nothing then.
    pub(crate) is_recorded: bool,
    /// `true` if a call has ended it: another one changes nothing then.
    pub(crate) has_ended: bool,
}

impl HoldToEnd {
    /// Returns `true` if a request that is sent now arrives before the hold ends by itself, unless
    /// it is late.
    fn can_be_changed(&self, now: u64) -> bool {
        now < self.begin.saturating_add(self.ttl / 2)
    }

    /// Returns `true` if a request whose answer is there now came before the hold ended by itself.
    pub(crate) fn was_open(&self, now: u64) -> bool {
        now < self.begin.saturating_add(self.ttl / 4 * 3)
    }
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
        self.0.retain(|hold| hold.can_be_changed(now));
        (!self.0.is_empty()).then(|| self.0.swap_remove(random.random_range(0..self.0.len())))
    }
}
