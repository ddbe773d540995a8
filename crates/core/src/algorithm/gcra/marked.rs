//! Charges, refunds and take-backs of a counter with holds, whose backlog has marks.

use super::{Backlog, Gcra, State};
use crate::algorithm::Receipt;
use crate::algorithm::marks::Marks;
use crate::algorithm::time::Timestamp;

impl Gcra {
    /// Charges hits, with the backlog before them as a mark.
    pub(in crate::algorithm) fn charge_marked(
        &self,
        state: &mut State,
        marks: &mut Marks,
        hits: u64,
        now: Timestamp,
    ) {
        self.rescale_marked(state, marks, now);
        marks.add(now, state.backlog);
        self.charge(state, hits, now);
    }

    /// Refunds hits, with the backlog after it as a mark. Returns `true` if it took any.
    pub(in crate::algorithm) fn refund_marked(
        &self,
        state: &mut State,
        marks: &mut Marks,
        hits: u64,
        now: Timestamp,
    ) -> bool {
        if state.backlog(now) == Backlog::default() {
            return false;
        }
        self.rescale_marked(state, marks, now);
        let took = self.refund(state, hits, now);
        marks.add(now, state.backlog);
        marks.seal();
        took
    }

    /// Undoes the part of a charge that is still in the backlog, by the marks since. Returns `true`
    /// if it took any.
    pub(in crate::algorithm) fn take_back_marked(
        &self,
        state: &mut State,
        marks: &mut Marks,
        receipt: Receipt,
        now: Timestamp,
    ) -> bool {
        let before = state.backlog(now);
        if before.min(marks.low(receipt.at, before)) == Backlog::default() || receipt.hits == 0 {
            return false;
        }
        self.rescale_marked(state, marks, now);
        let interval = self.interval_of(state);
        let by = interval.times(receipt.hits).min(marks.low(receipt.at, state.backlog));
        state.backlog = state.backlog.minus(by, interval.parts);
        marks.lower(receipt.at, |backlog: Backlog| backlog.minus(by, interval.parts));
        marks.add(now, state.backlog);
        true
    }

    /// Undoes the part of a charge that has not drained since, where the marks do not reach back to
    /// it: it was made, or the counter was written since, under a limit without holds. Returns
    /// `true` if it took any.
    pub(in crate::algorithm) fn take_back_unmarked(
        &self,
        state: &mut State,
        marks: &mut Marks,
        receipt: Receipt,
        now: Timestamp,
    ) -> bool {
        let mut after = state.clone();
        if !self.take_back(&mut after, receipt, now) {
            return false;
        }
        self.rescale_marked(state, marks, now);
        if after.limit == state.limit {
            let parts = self.interval_of(state).parts;
            let by = state.backlog.minus(after.backlog, parts);
            marks.lower(receipt.at, |backlog: Backlog| backlog.minus(by, parts));
        } else {
            // Backlogs beyond the longest have marks of another rate.
            *marks = Marks::default();
        }
        *state = after;
        marks.add(now, state.backlog);
        true
    }

    /// Drains the backlog to `now`, and converts it and the marks to this limit's rate.
    fn rescale_marked(&self, state: &mut State, marks: &mut Marks, now: Timestamp) {
        let before = state.backlog(now);
        match self.rescaled(before, state.limit) {
            Some(own) => {
                if state.limit != self.limit() {
                    let old = state.limit;
                    marks.rescale(|backlog| self.rescaled(backlog, old));
                    if self.limit() < old {
                        marks.seal();
                    }
                }
                state.write(own, self.limit(), now);
            }
            None => state.write(before, state.limit, now),
        }
    }
}
