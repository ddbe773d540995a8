//! The counter of one limit: when it was last written, and its memory.

use super::time::Timestamp;
use super::{Inner, State, concurrency, sliding_log};

impl State {
    /// Clamps `now` to the last write, so that a clock that steps back grants nothing: the counter
    /// does not move, and its times count from that write, until the clock catches up.
    pub(super) fn clamp(&self, now: Timestamp) -> Timestamp {
        now.max(self.last())
    }

    /// Returns the latest instant at which the counter was written.
    pub fn last(&self) -> Timestamp {
        match &self.0 {
            Inner::FixedWindow(state) => state.last,
            Inner::SlidingWindow(state) => state.last,
            Inner::SlidingLog(state) => state.last,
            Inner::Gcra(state) => state.last,
            Inner::Concurrency(state) => state.last,
            Inner::Extended(extended) => extended.last(),
        }
    }

    /// Returns the heap size of the counter in bytes, its own size excluded.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Inner::FixedWindow(state) => state.heap_bytes(),
            Inner::SlidingWindow(state) => state.heap_bytes(),
            Inner::SlidingLog(state) => {
                size_of::<sliding_log::State>().saturating_add(state.heap_bytes())
            }
            Inner::Gcra(_) => 0,
            Inner::Concurrency(state) => {
                size_of::<concurrency::State>().saturating_add(state.heap_bytes())
            }
            Inner::Extended(extended) => extended.heap_bytes(),
        }
    }

    /// Returns the number of bytes by which the next charge may grow the counter.
    pub fn growth_bytes(&self) -> usize {
        match self.inner() {
            Inner::SlidingWindow(state) => state.growth_bytes(),
            Inner::SlidingLog(state) => state.growth_bytes(),
            Inner::Concurrency(state) => state.growth_bytes(&[]),
            Inner::FixedWindow(_) | Inner::Gcra(_) | Inner::Extended(_) => 0,
        }
    }
}
