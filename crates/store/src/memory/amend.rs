//! Operator changes to a single counter.

use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::judge::Hits;

use super::MemoryStore;
use crate::clock::Clock;
use crate::{Check, StoreError};

impl<C: Clock> MemoryStore<C> {
    pub(super) fn amend_now(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
    ) -> Result<Amended, StoreError> {
        // Only a grant creates a missing counter, and needs room for it.
        let hits = match amendment {
            Amendment::Grant { .. } => Hits::Charge(1),
            Amendment::Look | Amendment::Reset | Amendment::Refund(_) => Hits::Peek(0),
        };
        let checks = [Check { hits, ..*check }];
        let mut work = self.begin(&checks);
        work.add_question(&checks, 0);
        let has_room = work.questions.iter().all(|question| question.counter.is_some());
        let state = work.states.first_mut().filter(|_| has_room).ok_or(StoreError::NoRoom);
        let amended = state.and_then(|state| {
            check.limit.amend(state, amendment, work.now).map_err(|_| StoreError::Unreadable)
        });
        let written = amended.as_ref().is_ok_and(|(_, written)| *written);
        work.finish(&checks, &[written]);
        amended.map(|(amended, _)| amended)
    }
}
