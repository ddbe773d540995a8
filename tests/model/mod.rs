//! Exhaustive models of the protocols between processes and stores. The simulated worlds of
//! `tests/kit` sample long histories of the whole system; a model visits every interleaving of a
//! few steps. The counters are the real ones, from `algorithm`.
//!
//! | file | protocol | invariant |
//! |---|---|---|
//! | `slots` | a request in several slots | admitted hits not refunded are charged in each slot |
//! | `loans` | blocks of leases, in processes and clients | hits count in their window and return |
//! | `holds` | reserve, commit and settle of an ID | a hold counts its estimate, then its cost |
//!
//! Each model has flaws that a test switches on, one at a time: the checker must find a
//! counterexample to each, which shows that the model could.

mod holds;
mod loans;
mod slots;

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use stateright::{Checker as _, HasDiscoveries, Model};
use tollgate::algorithm::State;
use tollgate::algorithm::time::Timestamp;

/// A second, the unit of time of all models.
const SECOND: u64 = 1_000_000;
/// The start of all models: the start of a day, and so of every window.
const START: u64 = 20_000 * 86_400 * SECOND;

/// A counter as a part of a model's state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelCounter(State);

impl Hash for ModelCounter {
    /// Hashes the text of the counter, since no other code needs its hash.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let _ = write!(HashedText(hasher), "{:?}", self.0);
    }
}

/// Hashes a text as it is written.
struct HashedText<'a, H>(&'a mut H);

impl<H: Hasher> fmt::Write for HashedText<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Returns the instant `seconds` after the start.
fn at(seconds: u8) -> Timestamp {
    Timestamp::from_micros(START + u64::from(seconds) * SECOND)
}

/// Visits every state of a model, and checks that its invariants hold and that its examples exist.
fn holds_in_every_state<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().threads(2).spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Checks that a flawed model breaks the invariant `name`.
fn breaks<M>(name: &'static str, flaw: impl std::fmt::Debug, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static,
{
    let found = HasDiscoveries::AnyOf([name].into());
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(name).is_some(), "{flaw:?} does not break: {name}");
}
