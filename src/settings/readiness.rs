//! Conditions under which the process reports that it is ready.

use super::{Problems, StoreSettings};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Readiness")]
pub(super) struct Flags {
    /// Start even if the policies are missing or invalid, which is logged; calls return UNAVAILABLE
    /// until there are valid ones.
    #[arg(long, env = "TOLLGATE_START_WITHOUT_POLICY")]
    start_without_policy: bool,
    /// Report ready before there is a policy.
    #[arg(long, env = "TOLLGATE_READY_WITHOUT_POLICY")]
    ready_without_policy: bool,
    /// Report ready only while there is a policy; by default, the process is also ready if the
    /// control plane reports that there are no policies.
    #[arg(long, env = "TOLLGATE_READY_WHILE_POLICY")]
    ready_while_policy: bool,
    /// Report ready only while a connection to the store is open; by default, it is enough that the
    /// store has been reached once and is not a read-only replica.
    #[arg(long, env = "TOLLGATE_READY_WHILE_STORE")]
    ready_while_store: bool,
}

/// Conditions under which the process reports that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadinessSettings {
    /// Set to start without a valid policy.
    pub start_without_policy: bool,
    /// Set to be ready without a policy.
    pub ready_without_policy: bool,
    /// Set to be ready only while there is a policy.
    pub ready_while_policy: bool,
    /// Set to be ready only while connected to the store.
    pub ready_while_store: bool,
}

impl Flags {
    pub(super) fn resolve(
        &self,
        store: &StoreSettings,
        problems: &mut Problems,
    ) -> ReadinessSettings {
        if self.ready_while_policy && self.ready_without_policy {
            problems.add("--ready-while-policy", "cannot be used with --ready-without-policy");
        }
        if self.ready_while_store && store.ready_without {
            problems.add("--ready-while-store", "cannot be used with --ready-without-store");
        }
        ReadinessSettings {
            start_without_policy: self.start_without_policy,
            ready_without_policy: self.ready_without_policy,
            ready_while_policy: self.ready_while_policy,
            ready_while_store: self.ready_while_store,
        }
    }
}
