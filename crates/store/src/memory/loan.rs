//! Returns of loans. The number of a loan is a counter of its own, in the same budget, that admits
//! one hit for the time in which the loan can be returned.

use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate_core::descriptor::CounterKey;

use super::MemoryStore;
use crate::clock::Clock;
use crate::loan::{LoanReturn, Returned};
use crate::{Check, StoreError};

/// First byte of the keys of numbers, which no counter of a rule has.
const NUMBER: u8 = 1;

impl<C: Clock> MemoryStore<C> {
    /// Accepts the return of a loan once, and takes its unused hits back.
    pub(super) fn return_now(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
    ) -> Result<Returned, StoreError> {
        let once = once_in(returned.kept_for()).ok_or(StoreError::Refused)?;
        let key = [&[NUMBER][..], &returned.number, check.key.bytes()].concat();
        let number = Check {
            key: CounterKey::of(check.key.domain(), &key),
            limit: &once,
            hits: Hits::Charge(1),
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: None,
        };
        let checks = [Check { hits: Hits::Peek(0), ..*check }, number];
        let mut work = self.begin(&checks);
        work.add_question(&checks, 0);
        work.add_question(&checks, 1);
        let has_room = work.questions.iter().all(|question| question.counter.is_some());
        let now = work.now;
        let result = match work.states.get_mut(1).filter(|_| has_room) {
            None => Err(StoreError::NoRoom),
            Some(_) if returned.is_untimely(now) => Ok(Returned::Late),
            Some(state) => match once.allows(state, 1, now) {
                Err(_) => Err(StoreError::Unreadable),
                Ok(false) => Ok(Returned::Repeated),
                Ok(true) => once
                    .charge(state, 1, now)
                    .map(|_| Returned::Accepted)
                    .map_err(|_| StoreError::Unreadable),
            },
        };
        let is_accepted = result == Ok(Returned::Accepted);
        let undone = if is_accepted { work.take_back(check, returned.unused) } else { Ok(false) };
        work.finish(&checks, &[undone == Ok(true), is_accepted]);
        undone.and(result)
    }
}

/// Returns a limit that admits one hit in this time.
fn once_in(time: Micros) -> Option<Limit> {
    let gcra = Gcra::new(Window::new(1, time).ok()?, None, None).ok()?;
    Limit::new(Algorithm::Gcra(gcra), Charge::Admitted, OnStoreError::Error).ok()
}
