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
//! Too many marks are merged in groups of neighbors. The charges of a group count as charges at its
//! end, which never makes the backlog of today less, and more by at most the time that the group
//! spans: a charge that is made later drains later. So a group keeps its first mark, with a backlog
//! that has drained until the group's end. A charge in a group finds the mark of the next group,
//! and an earlier charge finds the lower backlog. The error does not add up over the groups.
//!
//! Marks from before a refund, or from before a change to a slower rate, are not merged: the
//! backlog did not drain as a group has it. The last of them is kept twice, which ends them.
//!
//! The same steps are in `lua/marks.lua`.

use super::gcra::Backlog;
use super::time::Timestamp;

/// Maximum number of marks of a counter: a take-back is exact if at most as many charges with
/// distinct instants were made since.
const MAX_MARKS: usize = 128;
/// The part of the time since the oldest mark that a group spans at most.
const GROUPS: u64 = 32;
/// Number of marks that merging leaves at most, so that not each charge has to merge.
const MAX_MERGED: usize = 96;

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
        self.push(BacklogMark { at, backlog });
        if self.0.len() > MAX_MARKS {
            self.merge();
        }
    }

    fn push(&mut self, mark: BacklogMark) {
        self.drop_from(self.0.len(), mark.backlog);
        // A lower mark of the same instant suffices.
        if self.0.last().is_none_or(|last| last.at != mark.at) {
            self.0.push(mark);
        }
    }

    /// Drops the marks right before an index that are not below a backlog. If the last sealed one
    /// is among them, those before it stay sealed.
    fn drop_from(&mut self, index: usize, backlog: Backlog) {
        let below = self.0.iter().take(index).rposition(|mark| mark.backlog < backlog);
        let kept = below.map_or(0, |last| last.saturating_add(1));
        let dropped = self.0.get(kept..index).unwrap_or_default();
        let was_sealed = last_twice(dropped).is_some();
        self.0.drain(kept..index);
        if was_sealed {
            let later = self.0.split_off(kept);
            self.seal();
            self.0.extend(later);
        }
    }

    /// Excludes the marks of today from merging.
    pub(super) fn seal(&mut self) {
        let mut newest = self.0.iter().rev();
        if let Some(last) = newest.next().copied()
            && newest.next() != Some(&last)
        {
            self.0.push(last);
        }
    }

    /// Merges neighbors to groups, from the oldest one on that is not sealed.
    fn merge(&mut self) {
        let ends = self.0.first().zip(self.0.last());
        let widest = ends.map_or(0, |(oldest, newest)| newest.at.since(oldest.at).get() / GROUPS);
        let sealed = last_twice(&self.0).map_or(0, |index| index.saturating_add(2));
        let marks = self.0.split_off(sealed);
        let mut rest = marks.as_slice();
        while let [first, others @ ..] = rest {
            // A group ends where the next one begins. Its backlog must not drain before: charges
            // that are made later would then count for more than they did.
            let spans = others.iter().skip(1).map(|next| next.at.since(first.at));
            let fitting = spans.take_while(|span| span.get() <= widest.min(first.backlog.whole));
            let last = fitting.enumerate().last();
            let backlog = last.map_or(first.backlog, |(_, span)| first.backlog.drained(span));
            self.push(BacklogMark { at: first.at, backlog });
            let merged = last.map_or(0, |(index, _)| index.saturating_add(1));
            rest = others.get(merged..).unwrap_or_default();
        }
        self.forget_oldest();
    }

    /// Drops the oldest of too many marks. Charges before them find the lowest backlog, and what
    /// was sealed stays so.
    fn forget_oldest(&mut self) {
        let excess = self.0.len().saturating_sub(MAX_MERGED);
        let dropped = self.0.drain(..excess).next();
        if let Some((lowest, oldest)) = dropped.zip(self.0.first_mut()) {
            oldest.backlog = lowest.backlog;
            let sealed = *oldest;
            self.0.insert(0, sealed);
        }
    }

    /// Returns the least backlog since `then`, where it is `backlog` now.
    pub(super) fn low(&self, then: Timestamp, backlog: Backlog) -> Backlog {
        let later = self.0.get(self.0.partition_point(|mark| mark.at <= then));
        later.map_or(backlog, |mark| mark.backlog.min(backlog))
    }

    /// Lowers the marks later than `then` by a part of the charge of that instant that each of them
    /// has, and drops the earlier ones that are no longer below.
    pub(super) fn lower(&mut self, then: Timestamp, minus: impl Fn(Backlog) -> Backlog) {
        let first = self.0.partition_point(|mark| mark.at <= then);
        let later = self.0.iter_mut().skip(first);
        later.for_each(|mark| mark.backlog = minus(mark.backlog));
        if let Some(lowest) = self.0.get(first).map(|mark| mark.backlog) {
            self.drop_from(first, lowest);
        }
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

/// Returns the index of the last mark that is followed by the same mark: it ends what is sealed.
fn last_twice(marks: &[BacklogMark]) -> Option<usize> {
    marks.iter().zip(marks.iter().skip(1)).rposition(|(one, next)| one == next)
}
