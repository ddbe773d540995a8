//! What the process says of itself: whether it should be asked, and the policies in force.

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::loads::{Load, Loads};

/// What the process says of itself over HTTP, and whether it is ready, which others may follow.
#[derive(Debug)]
pub struct Facts {
    needs: Needs,
    state: watch::Sender<Readiness>,
    policies: Mutex<PolicyFacts>,
    loads: Mutex<Loads>,
}

/// What of policies has to be there for the process to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    NoPolicy,
    /// They have been loaded once, though there may be none among them.
    Load,
    /// There is one in force.
    Policy,
}

/// Whether the process should be asked: one fact, which every probe tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    policy: PolicyState,
    store: StoreState,
    is_draining: bool,
}

/// How far policies are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyState {
    NotYet,
    There,
    Empty,
}

/// The state of the store, as far as readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// It has not been reached yet.
    NotReached,
    /// It has been reached, or need not be.
    Ready,
    /// It was reached, and no connection to it is open any more.
    Lost,
    /// The server that should be its master is a replica.
    Replica,
}

/// The policies in force, and what came of the last attempt to load others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyFacts {
    /// The content's hash.
    pub version: String,
    /// When they were put in force, RFC 3339.
    pub loaded_at: String,
    /// The files they came from.
    pub files: Vec<String>,
    /// Domains, in order.
    pub domains: Vec<String>,
    /// Rules in all.
    pub rules: usize,
    /// The report on a change that was refused since.
    pub last_error: Option<String>,
    /// When that was, RFC 3339.
    pub last_error_at: Option<String>,
}

impl Facts {
    /// Nothing is there yet.
    pub fn new(needs: Needs) -> Self {
        let policy = if needs == Needs::NoPolicy { PolicyState::There } else { PolicyState::NotYet };
        let nothing = Readiness { policy, store: StoreState::NotReached, is_draining: false };
        Self { needs, state: watch::Sender::new(nothing), policies: Mutex::default(), loads: Mutex::default() }
    }

    /// A policy set was put in force, from wherever.
    pub fn loaded(&self, facts: PolicyFacts) {
        let is_empty = self.needs == Needs::Policy && facts.domains.is_empty();
        *self.policies.lock() = facts;
        self.change(|state| state.policy = if is_empty { PolicyState::Empty } else { PolicyState::There });
    }

    /// Sets the state of the store.
    pub fn set_store(&self, store: StoreState) {
        self.change(|state| state.store = store);
    }

    /// A change was refused.
    pub fn refused(&self, report: String) {
        let mut policies = self.policies.lock();
        (policies.last_error, policies.last_error_at) = (Some(report), Some(jiff::Timestamp::now().to_string()));
    }

    /// An attempt to put policies in force is over.
    pub fn tried(&self, load: Load) {
        self.loads.lock().push(load);
    }

    /// The last attempts, the latest first, and how many there were.
    pub fn loads(&self) -> (Vec<Load>, u64) {
        self.loads.lock().all()
    }

    /// The process is about to end.
    pub fn drain(&self) {
        self.change(|state| state.is_draining = true);
    }

    /// Whether the process should be asked, now and whenever that changes.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.state.subscribe()
    }

    /// The policies in force.
    pub fn policies(&self) -> PolicyFacts {
        self.policies.lock().clone()
    }

    /// Why the process should not be asked, if it should not.
    pub(super) fn unready(&self) -> Option<&'static str> {
        self.state.borrow().reason()
    }

    fn change(&self, change: impl FnOnce(&mut Readiness)) {
        self.state.send_if_modified(|state| {
            let before = *state;
            change(state);
            before != *state
        });
    }
}

impl Readiness {
    /// Whether the process should be asked.
    pub fn is_ready(self) -> bool {
        self.reason().is_none()
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self { is_draining: true, .. } => Some("draining\n"),
            Self { policy: PolicyState::NotYet, .. } => Some("no policy is loaded yet\n"),
            Self { policy: PolicyState::Empty, .. } => Some("no policy is in force\n"),
            Self { store: StoreState::NotReached, .. } => Some("the store has not been reached yet\n"),
            Self { store: StoreState::Lost, .. } => Some("no connection to the store is open\n"),
            Self { store: StoreState::Replica, .. } => Some("the store is a replica, which takes no writes\n"),
            Self { policy: PolicyState::There, store: StoreState::Ready, .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_until_it_is_there() {
        let facts = Facts::new(Needs::Load);
        let readiness = facts.readiness();
        assert_eq!(facts.unready(), Some("no policy is loaded yet\n"));
        facts.loaded(PolicyFacts::default());
        assert_eq!(facts.unready(), Some("the store has not been reached yet\n"));
        facts.set_store(StoreState::Ready);
        assert_eq!((facts.unready(), readiness.borrow().is_ready()), (None, true));
        facts.set_store(StoreState::Lost);
        assert_eq!(facts.unready(), Some("no connection to the store is open\n"));
        facts.set_store(StoreState::Ready);
        facts.drain();
        assert_eq!((facts.unready(), readiness.borrow().is_ready()), (Some("draining\n"), false));
    }

    #[test]
    fn a_policy_may_be_let_out() {
        let facts = Facts::new(Needs::NoPolicy);
        facts.set_store(StoreState::Ready);
        assert_eq!(facts.unready(), None);
    }

    #[test]
    fn a_policy_may_have_to_be_in_force() {
        let facts = Facts::new(Needs::Policy);
        facts.set_store(StoreState::Ready);
        assert_eq!(facts.unready(), Some("no policy is loaded yet\n"));
        let one = PolicyFacts { domains: vec!["d".to_owned()], ..PolicyFacts::default() };
        for (loaded, reason) in [(one, None), (PolicyFacts::default(), Some("no policy is in force\n"))] {
            facts.loaded(loaded);
            assert_eq!(facts.unready(), reason);
        }
    }
}
