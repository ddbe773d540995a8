//! Allowances for changes by operators: resets, refunds and grants.

use super::claims::CounterHistory;
use super::plan::{Change, Fault};
use super::server::fleet::Moment;

/// Time after which a change by an operator is not tried any more, and has arrived.
const CHANGED_WITHIN_US: u64 = 150_000;

impl CounterHistory<'_> {
    /// Returns the hits that changes by operators allow in addition to the limit: it once more for
    /// each reset, and the hits of grants and refunds.
    pub fn allowed_for_changes(&self) -> u64 {
        self.changes().map(|change| self.allowed_for(change)).sum()
    }

    /// Returns the hits that changes by operators allow after a moment: of resets, those that may
    /// not have ended by then.
    pub fn allowed_for_changes_after(&self, from: Moment) -> u64 {
        let hits = self.timed_changes().map(|(at, change)| match change {
            Change::Reset if self.done_by(at) <= from => 0,
            change => self.allowed_for(change),
        });
        hits.sum()
    }

    fn allowed_for(&self, change: Change) -> u64 {
        match change {
            Change::Reset => self.limit_max(),
            Change::Refund { hits } | Change::Grant { hits, .. } => hits.into(),
        }
    }

    /// Returns the moments by which the resets of the counter have ended.
    pub fn resets_by(&self) -> impl Iterator<Item = Moment> {
        let resets = self.timed_changes().filter(|(_, change)| *change == Change::Reset);
        resets.map(|(at, _)| self.done_by(at))
    }

    /// Returns the moment by which a change that began at a moment has ended.
    fn done_by(&self, at: Moment) -> Moment {
        at + CHANGED_WITHIN_US + self.lag_us()
    }

    /// Returns the changes of the counter by operators.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.timed_changes().map(|(_, change)| change)
    }

    fn timed_changes(&self) -> impl Iterator<Item = (Moment, Change)> {
        self.report.chronicle.faults.iter().filter_map(|(at, fault)| match fault {
            Fault::Amend { counter, change, .. } if *counter == self.counter => {
                Some((*at, *change))
            }
            _ => None,
        })
    }
}
