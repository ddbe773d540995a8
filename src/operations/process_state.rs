//! The state of the process as reported over HTTP: readiness and the policies in force.

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::loads::{Loads, PolicyLoad};

/// The state of the process as reported over HTTP, with a watch channel for its readiness.
#[derive(Debug)]
pub struct ProcessState {
    needs: PolicyRequirement,
    state: watch::Sender<Readiness>,
    policies: Mutex<PolicySummary>,
    loads: Mutex<Loads>,
}

/// The policy state that readiness requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRequirement {
    /// No policies are required.
    NoPolicy,
    /// Policies have been loaded once, even if the set is empty.
    Load,
    /// At least one policy is in force.
    Policy,
}

/// The readiness of the process: a single state that every probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    policy: PolicyState,
    store: StoreState,
    is_draining: bool,
}

/// The state of the policies, as far as readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyState {
    NotYet,
    There,
    Empty,
}

/// The state of the store, as far as readiness depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// Not reached yet.
    NotReached,
    /// Reached, or not required.
    Ready,
    /// Reached before, but no connection is open any more.
    Lost,
    /// The server that should be the master is a replica.
    Replica,
    /// The configured user lacks permissions that decisions need.
    Forbidden,
    /// The server refuses the user or the password, or wants one.
    LoginRefused,
}

/// The policies in force, and the error of the last load if it was rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicySummary {
    /// Hash of the content.
    pub version: String,
    /// Time of the load, RFC 3339.
    pub loaded_at: String,
    /// Source files.
    pub files: Vec<String>,
    /// Domains, in order.
    pub domains: Vec<String>,
    /// Total number of rules.
    pub rules: usize,
    /// The report on a change that was rejected since.
    pub last_error: Option<String>,
    /// Time of that rejection, RFC 3339.
    pub last_error_at: Option<String>,
}

impl ProcessState {
    /// Creates the state of a process that has not loaded policies or reached its store.
    pub fn new(needs: PolicyRequirement) -> Self {
        let policy = if needs == PolicyRequirement::NoPolicy {
            PolicyState::There
        } else {
            PolicyState::NotYet
        };
        let nothing = Readiness { policy, store: StoreState::NotReached, is_draining: false };
        Self {
            needs,
            state: watch::Sender::new(nothing),
            policies: Mutex::default(),
            loads: Mutex::default(),
        }
    }

    /// Records that a policy set was put in force, whatever its source.
    pub fn record_policies(&self, process: PolicySummary) {
        let is_empty = self.needs == PolicyRequirement::Policy && process.domains.is_empty();
        *self.policies.lock() = process;
        self.change(|state| {
            state.policy = if is_empty { PolicyState::Empty } else { PolicyState::There }
        });
    }

    /// Sets the state of the store.
    pub fn set_store(&self, store: StoreState) {
        self.change(|state| state.store = store);
    }

    /// Records a rejected change with its report.
    pub fn record_rejection(&self, report: String) {
        let mut policies = self.policies.lock();
        (policies.last_error, policies.last_error_at) =
            (Some(report), Some(jiff::Timestamp::now().to_string()));
    }

    /// Records a finished attempt to load policies.
    pub fn record_load(&self, load: PolicyLoad) {
        self.loads.lock().push(load);
    }

    /// Returns the last load attempts, latest first, and the total number of attempts.
    pub fn loads(&self) -> (Vec<PolicyLoad>, u64) {
        self.loads.lock().all()
    }

    /// Marks the process as draining.
    pub fn drain(&self) {
        self.change(|state| state.is_draining = true);
    }

    /// Returns a watch channel for the readiness of the process.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.state.subscribe()
    }

    /// Returns the policies in force.
    pub fn policies(&self) -> PolicySummary {
        self.policies.lock().clone()
    }

    /// Returns the reason why the process is not ready, or `None` if it is.
    pub fn not_ready_reason(&self) -> Option<&'static str> {
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
    /// Returns `true` if the process is ready for requests.
    pub fn is_ready(self) -> bool {
        self.reason().is_none()
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self { is_draining: true, .. } => Some("draining\n"),
            Self { policy: PolicyState::NotYet, .. } => Some("no policy loaded yet\n"),
            Self { policy: PolicyState::Empty, .. } => Some("no policy in force\n"),
            Self { store: StoreState::NotReached, .. } => Some("store not reached yet\n"),
            Self { store: StoreState::Lost, .. } => Some("store disconnected\n"),
            Self { store: StoreState::Replica, .. } => Some("store is a read-only replica\n"),
            Self { store: StoreState::Forbidden, .. } => {
                Some("store user lacks permissions; see the log for the command that grants them\n")
            }
            Self { store: StoreState::LoginRefused, .. } => Some(
                "store refuses the login; set --redis-password-file and --redis-user; see the log\n",
            ),
            Self { policy: PolicyState::There, store: StoreState::Ready, .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_condition_is_reported_until_it_is_met() {
        let process = ProcessState::new(PolicyRequirement::Load);
        let readiness = process.readiness();
        assert_eq!(process.not_ready_reason(), Some("no policy loaded yet\n"));
        process.record_policies(PolicySummary::default());
        assert_eq!(process.not_ready_reason(), Some("store not reached yet\n"));
        process.set_store(StoreState::Ready);
        assert_eq!((process.not_ready_reason(), readiness.borrow().is_ready()), (None, true));
        process.set_store(StoreState::Lost);
        assert_eq!(process.not_ready_reason(), Some("store disconnected\n"));
        process.set_store(StoreState::Ready);
        process.drain();
        assert_eq!(
            (process.not_ready_reason(), readiness.borrow().is_ready()),
            (Some("draining\n"), false)
        );
    }

    #[test]
    fn a_policy_may_be_let_out() {
        let process = ProcessState::new(PolicyRequirement::NoPolicy);
        process.set_store(StoreState::Ready);
        assert_eq!(process.not_ready_reason(), None);
    }

    #[test]
    fn a_policy_may_have_to_be_in_force() {
        let process = ProcessState::new(PolicyRequirement::Policy);
        process.set_store(StoreState::Ready);
        assert_eq!(process.not_ready_reason(), Some("no policy loaded yet\n"));
        let one = PolicySummary { domains: vec!["d".to_owned()], ..PolicySummary::default() };
        for (loaded, reason) in
            [(one, None), (PolicySummary::default(), Some("no policy in force\n"))]
        {
            process.record_policies(loaded);
            assert_eq!(process.not_ready_reason(), reason);
        }
    }
}
