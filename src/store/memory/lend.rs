//! Hits charged in advance, and those of them that come back.

use std::time::Instant;

use super::{MemoryStore, Work};
use crate::algorithm::Receipt;
use crate::algorithm::judge::{Hits, judge};
use crate::algorithm::verdict::Prior;
use crate::store::clock::Clock;
use crate::store::{Check, Lender, Lent, StoreError};

impl<C: Clock> Lender for MemoryStore<C> {
    async fn lend(&self, check: &Check<'_>, _: Instant) -> Result<Lent, StoreError> {
        let checks = [*check];
        let mut work = self.begin(&checks);
        work.ask(&checks, 0);
        let judgement = judge(&work.questions, &mut work.states, Prior::Open, work.now);
        let outcome = judgement.outcomes.first().copied().flatten().ok_or(StoreError::NoRoom);
        // A counter remembers when it was written last: just now.
        let written = work.states.first().filter(|_| judgement.written.contains(&true)).map(|state| state.last());
        work.finish(&checks, &judgement.written);
        let receipt = match (check.hits, written) {
            (Hits::Charge(hits), Some(at)) => Some(Receipt { at, hits: hits.into() }),
            (Hits::Charge(_) | Hits::Peek | Hits::Refund(_), _) => None,
        };
        Ok(Lent { report: outcome?.report, receipt })
    }

    async fn take_back(&self, check: &Check<'_>, receipt: Receipt, _: Instant) -> Result<(), StoreError> {
        let checks = [Check { hits: Hits::Peek, ..*check }];
        let mut work: Work<'_, '_> = self.begin(&checks);
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
