//! The counter of one limit: when it was last written, and its memory.

use super::time::Timestamp;
use super::{AlgorithmState, State, concurrency, sliding_log};

impl State {
    /// Clamps `now` to the last write, so that a clock that steps back grants nothing: the counter
    /// does not move, and its times count from that write, until the clock catches up.
    #[inline]
    pub(super) fn clamp(&self, now: Timestamp) -> Timestamp {
        now.max(self.last())
    }

    /// Returns the latest instant at which the counter was written.
    pub fn last(&self) -> Timestamp {
        match &self.0 {
            AlgorithmState::FixedWindow(state) => state.last,
            AlgorithmState::SlidingWindow(state) => state.last,
            AlgorithmState::SlidingLog(state) => state.last,
            AlgorithmState::Gcra(state) => state.last,
            AlgorithmState::Concurrency(state) => state.last,
            AlgorithmState::Extended(extended) => extended.last(),
        }
    }

    /// Returns the heap size of the counter in bytes, its own size excluded.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            AlgorithmState::FixedWindow(state) => state.heap_bytes(),
            AlgorithmState::SlidingWindow(state) => state.heap_bytes(),
            AlgorithmState::SlidingLog(state) => {
                size_of::<sliding_log::State>().saturating_add(state.heap_bytes())
            }
            AlgorithmState::Gcra(_) => 0,
            AlgorithmState::Concurrency(state) => {
                size_of::<concurrency::State>().saturating_add(state.heap_bytes())
            }
            AlgorithmState::Extended(extended) => extended.heap_bytes(),
        }
    }

    /// Returns the number of bytes by which the next charge may grow the counter.
    #[inline]
    pub fn growth_bytes(&self) -> usize {
        match self.inner() {
            AlgorithmState::SlidingWindow(state) => state.growth_bytes(),
            AlgorithmState::SlidingLog(state) => state.growth_bytes(),
            AlgorithmState::Concurrency(state) => state.growth_bytes(&[]),
            AlgorithmState::FixedWindow(_)
            | AlgorithmState::Gcra(_)
            | AlgorithmState::Extended(_) => 0,
        }
    }
}
