//! Marks of a backlog over time, by which a charge of gcra is taken back exactly.
//!
//! Idea: the hits of a charge are still in the backlog D as far as the backlog has not drained
//! below them since. The least backlog since the charge says how far, so at most that is taken
//! back: `min(n*T, low)`. A mark is an instant with the backlog at it. Marks rise: one whose
//! backlog is not below the current one tells nothing that the current one does not, and goes.
//!
//! Example, T = 1 s: a charge of 5 at 0:00 (mark (0:00, 0 s), D = 5 s) and one of 1 at 0:04 (mark
//! (0:04, 1 s), D = 2 s). At 0:04 the first is put to a cost of 2: of its 3 hits, only 1 s is left
//! since, so D becomes 1 s.
//!
//! The same steps are in `lua/marks.lua`.

use super::gcra::Backlog;
use super::time::Timestamp;

/// Maximum number of marks of a counter.
const MAX_MARKS: usize = 32;

/// The backlog of a counter at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BacklogMark {
    pub(super) at: Timestamp,
    pub(super) backlog: Backlog,
}

/// Marks, rising in instant and backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(Vec<BacklogMark>);

impl Marks {
    /// Adds the backlog at `now`, and drops the marks that are not below it.
    pub(super) fn add(&mut self, at: Timestamp, backlog: Backlog) {
        while self.0.last().is_some_and(|mark| mark.backlog >= backlog) {
            self.0.pop();
        }
        self.0.push(BacklogMark { at, backlog });
        if self.0.len() > MAX_MARKS {
            self.merge_nearest();
        }
    }

    /// Merges the two marks that are nearest in time, of equal gaps the oldest: the later instant
    /// with the lower backlog.
    fn merge_nearest(&mut self) {
        let gaps =
            self.0.iter().zip(self.0.iter().skip(1)).map(|(one, next)| next.at.since(one.at));
        let Some((nearest, _)) = gaps.enumerate().min_by_key(|(index, gap)| (*gap, *index)) else {
            return;
        };
        let lower = self.0.remove(nearest);
        if let Some(later) = self.0.get_mut(nearest) {
            later.backlog = lower.backlog;
        }
    }

    /// Returns the least backlog since `then`, where it is `backlog` now.
    pub(super) fn low(&self, then: Timestamp, backlog: Backlog) -> Backlog {
        let later = self.0.iter().find(|mark| mark.at > then);
        later.map_or(backlog, |mark| mark.backlog.min(backlog))
    }

    /// Lowers the marks later than `then` by a part of the charge of that instant, and drops those
    /// that a later one no longer exceeds.
    pub(super) fn lower(&mut self, then: Timestamp, minus: impl Fn(Backlog) -> Backlog) {
        for mark in self.0.iter_mut().filter(|mark| mark.at > then) {
            mark.backlog = minus(mark.backlog);
        }
        let mut lowest_later = None;
        let mut kept = Vec::with_capacity(self.0.len());
        for mark in self.0.iter().rev() {
            if lowest_later.is_none_or(|lowest| mark.backlog < lowest) {
                lowest_later = Some(mark.backlog);
                kept.push(*mark);
            }
        }
        kept.reverse();
        self.0 = kept;
    }

    /// Converts the backlogs to those of another rate.
    pub(super) fn rescale(&mut self, convert: impl Fn(Backlog) -> Option<Backlog>) {
        self.0.retain_mut(|mark| match convert(mark.backlog) {
            Some(backlog) => {
                mark.backlog = backlog;
                true
            }
            None => false,
        });
    }

    /// Returns `true` if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity().saturating_mul(size_of::<BacklogMark>())
    }

    /// Returns the number of bytes that the next mark may allocate.
    pub(super) fn growth_bytes(&self) -> usize {
        super::growth_of::<BacklogMark>(self.0.len(), self.0.capacity())
    }
}
