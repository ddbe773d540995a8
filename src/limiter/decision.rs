//! The decision on a request: denied or not, with a status per descriptor.

use super::candidates::CandidateOutcome;
use super::modes::Modes;
use super::status::{Status, Statuses};
use super::target::DescriptorTarget;
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::Overall;
use crate::store::{Outcomes, StoreError};

/// The decision on a request.
#[derive(Debug, Default)]
pub struct Decision<'a> {
    is_over_limit: bool,
    statuses: Statuses<'a>,
    candidates: Vec<CandidateOutcome<'a>>,
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
        }
    }

    /// Makes the decision: `outcomes` are the store's of the statuses that have a limit, in order;
    /// `candidates` those of candidate limits.
    pub(super) fn make(
        &mut self,
        overall: Overall,
        outcomes: &mut Outcomes,
        candidates: Vec<CandidateOutcome<'a>>,
    ) {
        let mut outcomes = outcomes.iter_mut();
        for status in self.statuses.iter_mut().filter(|status| status.target().limit().is_some()) {
            let missing = Err(StoreError::Unreadable);
            status.set_outcome(match outcomes.next() {
                Some(outcome) => std::mem::replace(outcome, missing),
                None => missing,
            });
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

    /// Returns the time until the request is admitted without other traffic, if it is over limit:
    /// the longest of the limits that deny it, or the shortest of those in quota mode, of which one
    /// has to admit. `None` if unknown.
    pub fn retry_after(&self) -> Option<Micros> {
        let mut votes = self.statuses.iter().filter(|status| status.is_vote());
        let is_voted = votes.all(Status::is_over_limit);
        let denied = self.statuses.iter().filter(|status| status.is_over_limit());
        let enforced = denied.clone().filter(|status| !status.is_vote());
        let voted = denied.filter(|status| status.is_vote() && is_voted);
        let voted = voted.filter_map(Status::wait_hint).min();
        enforced.filter_map(Status::wait_hint).max().max(voted)
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
