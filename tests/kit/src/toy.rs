//! A store that counts in a map behind a mutex, supports nothing that is optional, and can be made
//! to fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate::algorithm::amend::{Amended, Amendment};
use tollgate::algorithm::judge::{Hits, Question, judge};
use tollgate::algorithm::tallies::Recorded;
use tollgate::algorithm::time::Timestamp;
use tollgate::algorithm::verdict::Prior;
use tollgate::algorithm::{Receipt, State};
use tollgate::store::backend::{Backend, BackendState};
use tollgate::store::clock::Clock;
use tollgate::store::{Check, Lender, Lent, Outcomes, Store, StoreError};

/// The handles of one store.
#[derive(Clone)]
pub struct Toy(Arc<ToyServer>);

struct ToyServer {
    counters: Mutex<HashMap<Vec<u8>, State>>,
    clock: Box<dyn Clock>,
    state: Mutex<BackendState>,
}

impl Toy {
    pub fn new(clock: impl Clock) -> Self {
        Self(Arc::new(ToyServer {
            counters: Mutex::default(),
            clock: Box::new(clock),
            state: Mutex::new(BackendState::Connected),
        }))
    }

    /// Sets the state of the server: unless it is connected, the store fails.
    pub fn set(&self, state: BackendState) {
        *self.0.state.lock() = state;
    }

    /// Exchanges the states of the two counters with this text in their keys. Unless they are of
    /// one algorithm, they cannot be read any more.
    pub fn exchange(&self, text: &str) {
        let mut counters = self.0.counters.lock();
        let has_text = |key: &[u8]| key.windows(text.len()).any(|part| part == text.as_bytes());
        let found = counters.iter_mut().filter(|(key, _)| has_text(key));
        let mut states: Vec<_> = found.map(|(_, state)| state).collect();
        let [one, other] = states.as_mut_slice() else { panic!("two counters of {text}") };
        std::mem::swap(*one, *other);
    }

    /// Changes the counters of these checks, of which `change` receives the indices; it returns its
    /// result with a flag for each counter that it wrote. Fails unless the store is connected.
    fn change<T>(
        &self,
        checks: &[Check<'_>],
        change: impl FnOnce(&[usize], &mut [State], Timestamp) -> (T, Vec<bool>),
    ) -> Result<T, StoreError> {
        if *self.0.state.lock() != BackendState::Connected {
            return Err(StoreError::Unavailable);
        }
        let mut counters = self.0.counters.lock();
        let mut keys: Vec<&[u8]> = Vec::new();
        let mut states = Vec::new();
        let mut indices = Vec::new();
        for check in checks {
            let key = check.key.bytes();
            let known = keys.iter().position(|known| *known == key);
            indices.push(known.unwrap_or(keys.len()));
            if known.is_none() {
                let stored = counters.get(key).cloned();
                states.push(stored.unwrap_or_else(|| check.limit.unused()));
                keys.push(key);
            }
        }
        let (changed, written) = change(&indices, &mut states, self.0.clock.now());
        for ((key, state), _) in
            keys.iter().zip(states).zip(written).filter(|(_, written)| *written)
        {
            counters.insert(key.to_vec(), state);
        }
        Ok(changed)
    }

    /// Changes the counter of one check.
    fn change_one<T>(
        &self,
        check: &Check<'_>,
        change: impl FnOnce(&mut State, Timestamp) -> Option<(T, bool)>,
    ) -> Result<T, StoreError> {
        let changed = self.change(&[*check], |_, states, now| {
            let changed = change(&mut states[0], now);
            let written = changed.as_ref().is_some_and(|(_, written)| *written);
            (changed, vec![written])
        })?;
        changed.map(|(changed, _)| changed).ok_or(StoreError::Unreadable)
    }
}

impl Store for Toy {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, _: Instant) -> Outcomes {
        let decided = self.change(checks, |indices, states, now| {
            let questions = checks.iter().zip(indices).map(|(check, index)| Question {
                limit: check.limit,
                hits: check.hits,
                role: check.role,
                counter: Some(*index),
                recorded: Recorded { entries: check.recorded, may_grow: true },
                hold: check.hold,
            });
            let questions: Vec<_> = questions.collect();
            let judged = judge(&questions, states, prior, now);
            (judged.outcomes, judged.written.to_vec())
        });
        match decided {
            Ok(all) => all.iter().map(|one| one.ok_or(StoreError::Unreadable)).collect(),
            Err(error) => checks.iter().map(|_| Err(error)).collect(),
        }
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        _: Instant,
    ) -> Result<Amended, StoreError> {
        self.change_one(check, |state, now| check.limit.amend(state, amendment, now).ok())
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

impl Lender for Toy {
    async fn lend(&self, check: &Check<'_>, _: Instant) -> Result<Lent, StoreError> {
        let Hits::Charge(hits) = check.hits else { return Err(StoreError::Refused) };
        let hits = u64::from(hits);
        self.change_one(check, |state, now| {
            let allowed = check.limit.allows(state, hits, now).ok()?;
            let receipt =
                if allowed { Some(check.limit.charge(state, hits, now).ok()?) } else { None };
            let report = check.limit.report(state, (!allowed).then_some(hits), now).ok()?;
            Some((Lent { report, receipt }, allowed))
        })
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        _: Instant,
    ) -> Result<(), StoreError> {
        self.change_one(check, |state, now| {
            Some(((), check.limit.take_back(state, receipt, now).ok()?))
        })
    }
}

impl Backend for Toy {
    fn is_shared(&self) -> bool {
        true
    }

    async fn connected(&self) {
        while *self.0.state.lock() != BackendState::Connected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn state(&self) -> BackendState {
        self.0.state.lock().clone()
    }
}
