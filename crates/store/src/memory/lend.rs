//! Leasing of hits, and returning those that are unused.

use std::time::Instant;

use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::verdict::{Overall, charges};

use super::{LockedRequest, MemoryStore};
use crate::clock::Clock;
use crate::{Check, Lender, Lent, StoreError};

impl<C: Clock> Lender for MemoryStore<C> {
    async fn lend(&self, check: &Check<'_>, _: Instant) -> Result<Lent, StoreError> {
        let checks = [*check];
        let mut work = self.begin(&checks);
        work.add_question(&checks, 0);
        let lent = work.lend(check);
        let written = lent.as_ref().is_ok_and(|(_, written)| *written);
        work.finish(&checks, &[written]);
        lent.map(|(lent, _)| lent)
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        _: Instant,
    ) -> Result<(), StoreError> {
        let checks = [Check { hits: Hits::Peek(0), ..*check }];
        let mut work = self.begin(&checks);
        work.add_question(&checks, 0);
        // A counter that no longer exists has nothing to take back.
        let undone = work.take_back(check, receipt);
        let written = [undone.as_ref().is_ok_and(|undone| *undone)];
        work.finish(&checks, &written);
        undone.map(drop)
    }
}

impl LockedRequest<'_, '_> {
    /// Takes a charge to the first counter back. Returns `true` if the counter changed.
    pub(super) fn take_back(
        &mut self,
        check: &Check<'_>,
        receipt: Receipt,
    ) -> Result<bool, StoreError> {
        let Some(state) = self.states.first_mut() else { return Ok(false) };
        let undone = check.limit.take_back(state, receipt, self.now);
        let undone = undone.map_err(|_| StoreError::Unreadable)?;
        if undone {
            check.limit.untally(state, check.recorded, receipt.hits);
        }
        Ok(undone)
    }

    /// Charges the only counter as its charge mode requires, if it has room. Returns the result,
    /// and `true` if the counter changed.
    fn lend(&mut self, check: &Check<'_>) -> Result<(Lent, bool), StoreError> {
        let has_room = self.questions.iter().all(|question| question.counter.is_some());
        let recorded = self.questions.first().map(|question| question.recorded).unwrap_or_default();
        let state = self.states.first_mut().filter(|_| has_room).ok_or(StoreError::NoRoom)?;
        let limit = check.limit;
        let now = self.now;
        let Hits::Charge(hits) = check.hits else { return Err(StoreError::Refused) };
        let hits = u64::from(hits);
        let lent = limit.allows(state, hits, now).and_then(|allowed| {
            let overall = if allowed { Overall::Admitted } else { Overall::Denied };
            let is_charged = !limit.is_ban() && charges(limit.charge_mode(), allowed, overall);
            let receipt = if is_charged { Some(limit.charge(state, hits, now)?) } else { None };
            let charged = if is_charged { hits } else { 0 };
            let denied = if allowed { 0 } else { hits };
            let tallied = !limit.is_ban() && limit.tally(state, recorded, charged, denied);
            let report = limit.report(state, (!allowed).then_some(hits), now)?;
            let receipt = receipt.filter(|_| allowed);
            Ok((Lent { report, receipt }, is_charged || tallied))
        });
        lent.map_err(|_| StoreError::Unreadable)
    }
}
