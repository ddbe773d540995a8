//! Hits charged in advance, and those of them that come back.

use std::time::Instant;

use super::{MemoryStore, Work};
use crate::algorithm::Receipt;
use crate::algorithm::judge::Hits;
use crate::store::clock::Clock;
use crate::store::{Check, Lender, Lent, StoreError};

impl<C: Clock> Lender for MemoryStore<C> {
    async fn lend(&self, check: &Check<'_>, _: Instant) -> Result<Lent, StoreError> {
        let checks = [*check];
        let mut work = self.begin(&checks);
        work.ask(&checks, 0);
        let lent = work.lend(check);
        let written = lent.as_ref().is_ok_and(|lent| lent.receipt.is_some());
        work.finish(&checks, &[written]);
        lent
    }

    async fn take_back(&self, check: &Check<'_>, receipt: Receipt, _: Instant) -> Result<(), StoreError> {
        let checks = [Check { hits: Hits::Peek(0), ..*check }];
        let mut work = self.begin(&checks);
        work.ask(&checks, 0);
        let now = work.now;
        let undone = work.states.iter_mut().map(|state| check.limit.take_back(state, receipt, now));
        let undone: Result<Vec<bool>, _> = undone.collect();
        // A counter that is not there any more has nothing to give back.
        let written = [undone.as_ref().is_ok_and(|undone| undone.contains(&true))];
        work.finish(&checks, &written);
        undone.map(drop).map_err(|_| StoreError::Unreadable)
    }
}

impl Work<'_, '_> {
    /// Charges the only counter, where it has room.
    fn lend(&mut self, check: &Check<'_>) -> Result<Lent, StoreError> {
        let has_room = self.questions.iter().all(|question| question.counter.is_some());
        let state = self.states.first_mut().filter(|_| has_room).ok_or(StoreError::NoRoom)?;
        let (limit, now) = (check.limit, self.now);
        let Hits::Charge(hits) = check.hits else { return Err(StoreError::Refused) };
        let hits = u64::from(hits);
        let lent = limit.allows(state, hits, now).and_then(|allowed| {
            let receipt = if allowed { Some(limit.charge(state, hits, now)?) } else { None };
            Ok(Lent { report: limit.report(state, (!allowed).then_some(hits), now)?, receipt })
        });
        lent.map_err(|_| StoreError::Unreadable)
    }
}
