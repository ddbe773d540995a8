//! When the process says that it can be asked.

use super::{Problem, Problems, StoreSettings};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Readiness")]
pub(super) struct Flags {
    /// Start although the policies are missing or wrong, which is logged; calls are UNAVAILABLE until good ones are there.
    #[arg(long, env = "TOLLGATE_START_WITHOUT_POLICY")]
    start_without_policy: bool,
    /// Be ready before there is a policy.
    #[arg(long, env = "TOLLGATE_READY_WITHOUT_POLICY")]
    ready_without_policy: bool,
    /// Be ready only while there is a policy; otherwise it is enough that there may be, as a control plane says that has none.
    #[arg(long, env = "TOLLGATE_READY_WHILE_POLICY")]
    ready_while_policy: bool,
    /// Be ready only while a connection to the store is open; otherwise it is enough that it has been reached once and is no
    /// replica.
    #[arg(long, env = "TOLLGATE_READY_WHILE_STORE")]
    ready_while_store: bool,
}

/// When the process says that it can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadinessSettings {
    /// Whether it starts without a policy that can be used.
    pub start_without_policy: bool,
    /// Whether it is ready without one.
    pub ready_without_policy: bool,
    /// Whether it is ready only while there is one.
    pub ready_while_policy: bool,
    /// Whether it is ready only while it is connected to its store.
    pub ready_while_store: bool,
}

impl Flags {
    pub(super) fn resolve(&self, store: &StoreSettings, problems: &mut Problems) -> ReadinessSettings {
        if self.ready_while_policy && self.ready_without_policy {
            let what = "contradicts --ready-without-policy; give one of them".to_owned();
            problems.0.push(Problem { flag: "--ready-while-policy", what });
        }
        if self.ready_while_store && store.ready_without {
            let what = "contradicts --ready-without-store; give one of them".to_owned();
            problems.0.push(Problem { flag: "--ready-while-store", what });
        }
        ReadinessSettings {
            start_without_policy: self.start_without_policy,
            ready_without_policy: self.ready_without_policy,
            ready_while_policy: self.ready_while_policy,
            ready_while_store: self.ready_while_store,
        }
    }
}
