//! The state that all services of the process share.

use std::sync::Arc;

use super::loan_keys::LoanKeys;
use super::observation::Observation;
use super::stores::{OpenStore, Stores};
use crate::limiter::InForce;
use crate::operations::Backend;
use crate::operations::policies::Installer;
use crate::operations::process_state::{PolicyRequirement, ProcessState, StoreState};
use crate::policy::CompileOptions;
use crate::settings::{ReadinessSettings, Settings};
use crate::telemetry::metrics::Metrics;

/// State shared by all parts of the process.
#[derive(Clone)]
pub(super) struct ProcessParts<B> {
    pub(super) metrics: Arc<Metrics>,
    pub(super) policies: Arc<InForce>,
    pub(super) process: Arc<ProcessState>,
    pub(super) stores: Stores<B>,
    pub(super) observation: Observation,
    pub(super) loan_keys: LoanKeys,
}

impl<B: Backend> ProcessParts<B> {
    /// Creates the state before policies are loaded or stores are connected.
    pub(super) fn new(settings: &Settings, open: OpenStore<B>, metrics: Arc<Metrics>) -> Self {
        let stores = Stores::new(settings.store.clone(), open, Arc::clone(&metrics.store));
        // HTTP has a service of its own, like each worker.
        let services = settings.limits.workers.saturating_add(1);
        Self {
            policies: InForce::new(Arc::clone(&metrics)),
            process: process_state(&settings.readiness, &stores),
            observation: Observation::new(settings.observation.journal_bytes, services),
            loan_keys: LoanKeys::new(&settings.loans),
            stores,
            metrics,
        }
    }

    /// Creates the installer of policies.
    pub(super) fn installer(&self, options: &CompileOptions) -> Installer {
        let policies = Arc::clone(&self.policies);
        Installer::new(policies, Arc::clone(&self.process), Arc::clone(&self.metrics), options)
    }
}

/// Creates the initial state: no policies loaded, and the store not reached unless readiness does
/// not depend on it.
fn process_state(settings: &ReadinessSettings, stores: &Stores<impl Backend>) -> Arc<ProcessState> {
    let process = Arc::new(ProcessState::new(needs(settings)));
    if stores.are_ready_at_once() {
        process.set_store(StoreState::Ready);
    }
    process
}

/// Returns the policy state that readiness requires.
fn needs(settings: &ReadinessSettings) -> PolicyRequirement {
    if settings.ready_while_policy {
        PolicyRequirement::Policy
    } else if settings.ready_without_policy {
        PolicyRequirement::NoPolicy
    } else {
        PolicyRequirement::Load
    }
}
