//! The decision on a request: denied or not, with a status per descriptor.

use super::candidates::CandidateOutcome;
use super::modes::Modes;
use super::status::{CallerWait, Status, Statuses};
use super::target::DescriptorTarget;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::Overall;
use crate::store::{Outcomes, StoreError};

/// The decision on a request.
#[derive(Debug, Default)]
pub struct Decision<'a> {
    is_over_limit: bool,
    statuses: Statuses<'a>,
    candidates: Vec<CandidateOutcome<'a>>,
    /// The shortest wait of the limits in quota mode, if all of them are over limit.
    votes: Option<CallerWait>,
}

impl<'a> Decision<'a> {
    /// Creates a decision in which no descriptor has a limit.
    pub(super) fn unlimited(descriptors: usize) -> Self {
        Self {
            is_over_limit: false,
            statuses: (0..descriptors)
                .map(|_| Status::of(DescriptorTarget::Nothing, Modes::default()))
                .collect(),
            candidates: Vec::new(),
            votes: None,
        }
    }

    /// Makes the decision: `outcomes` are the store's of the statuses that have a limit, in order;
    /// `candidates` those of candidate limits, and `now` the time, which is read only for hits that
    /// are never admitted.
    pub(super) fn make(
        &mut self,
        overall: Overall,
        outcomes: &mut Outcomes,
        candidates: Vec<CandidateOutcome<'a>>,
        now: impl Fn() -> Timestamp,
    ) {
        let mut outcomes = outcomes.iter_mut();
        for status in self.statuses.iter_mut().filter(|status| status.target().limit().is_some()) {
            let missing = Err(StoreError::Unreadable);
            status.set_outcome(match outcomes.next() {
                Some(outcome) => std::mem::replace(outcome, missing),
                None => missing,
            });
            status.set_never_hint(&now);
        }
        let votes = self.statuses.iter().filter(|status| status.is_vote());
        if votes.clone().all(Status::is_over_limit) {
            self.votes = votes.map(Status::wait).reduce(shorter);
        }
        self.is_over_limit = overall == Overall::Denied;
        self.candidates = candidates;
    }

    /// Returns the outcomes of candidate limits, which do not affect the response.
    pub fn candidates(&self) -> &[CandidateOutcome<'a>] {
        &self.candidates
    }

    /// Returns `true` if the response is OVER_LIMIT, and `false` if it is OK.
    pub fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Returns the time until the request is admitted, if it is over limit: the longest of the
    /// limits that deny it, or the shortest of those in quota mode, of which one has to admit.
    pub fn retry(&self) -> CallerWait {
        let denied = self.statuses.iter().filter(|status| status.is_over_limit());
        let enforced = denied.filter(|status| !status.is_vote()).map(Status::wait);
        enforced.chain(self.votes).max().unwrap_or(CallerWait::Unknown)
    }

    /// Returns the time that the caller of a status waits: until its limit does not deny the
    /// request any more, else until the counter resets. `None` without a limit.
    pub fn wait_of(&self, status: &Status<'_>) -> Option<CallerWait> {
        if status.is_over_limit() {
            let votes = self.votes.filter(|_| status.is_vote());
            return Some(votes.unwrap_or_else(|| status.wait()));
        }
        status.reset()
    }

    /// Returns the list for the statuses of the request.
    pub(super) fn statuses_mut(&mut self) -> &mut Statuses<'a> {
        &mut self.statuses
    }

    /// Returns one status per descriptor, in order.
    pub fn statuses(&self) -> &[Status<'a>] {
        &self.statuses
    }
}

/// Returns the shorter one of two waits, of which one has to end. A known one is shorter.
fn shorter(one: CallerWait, other: CallerWait) -> CallerWait {
    match (one, other) {
        (CallerWait::Unknown, known) | (known, CallerWait::Unknown) => known,
        (one, other) => one.min(other),
    }
}
