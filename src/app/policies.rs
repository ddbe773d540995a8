//! The policies of the process: the first ones, and those that files or a control plane bring later.

use std::fmt;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::Shared;
use crate::admin::{Facts, PolicyFacts};
use crate::limiter::InForce;
use crate::policy::source::files;
use crate::policy::source::watch::{self, Reading};
use crate::policy::{self, Loaded, Source};
use crate::settings::{PolicySettings, Settings};
use crate::telemetry::metrics::Metrics;

/// The policies at the start.
pub(super) struct First {
    read: Reading,
    /// `None`: a control plane is yet to say them.
    loaded: Result<Option<Loaded>, String>,
}

impl First {
    /// Reads and compiles what there is.
    pub(super) fn load(settings: &Settings) -> Self {
        let (policy, is_remote) = (&settings.policy, settings.xds.is_some());
        if policy.places.paths.is_empty() && !is_remote {
            let why = "error: no policy is given and there is no config/policies; try --policy FILE_OR_DIRECTORY";
            return Self { read: Ok(Vec::new()), loaded: Err(why.to_owned()) };
        }
        match files::read(&policy.places) {
            Ok(sources) => {
                let loaded = policy::load(&sources, &policy.options).map_err(|report| report.to_string());
                Self { read: Ok(sources), loaded: loaded.map(|loaded| (!is_remote).then_some(loaded)) }
            }
            Err(report) => Self { loaded: Err(report.to_string()), read: Err(report) },
        }
    }

    /// Why there are none, where there should be.
    pub(super) fn problem(&self) -> Option<&str> {
        self.loaded.as_ref().err().map(String::as_str)
    }
}

/// Reads the policy files when somebody asks for it.
#[derive(Clone)]
pub(super) struct Reloads(pub(super) PolicySettings);

impl Reloads {
    /// Reads them and puts them in force.
    ///
    /// # Errors
    /// The report on what is wrong with them.
    pub(super) async fn now(self, installer: &Installer) -> Result<(), String> {
        let Self(settings) = self;
        let read = tokio::task::spawn_blocking(move || {
            let sources = files::read(&settings.places)?;
            policy::load(&sources, &settings.options).map(|loaded| (sources, loaded))
        });
        match read.await.map_err(|error| error.to_string())? {
            Ok((sources, loaded)) => {
                installer.install(&sources, loaded);
                Ok(())
            }
            Err(report) => {
                installer.refuse(&report);
                Err(report.to_string())
            }
        }
    }
}

/// Follows files for ever. `known`: what was read at the start.
pub(super) async fn follow(settings: PolicySettings, known: Reading, installer: Installer) {
    if settings.places.paths.is_empty() {
        return;
    }
    let options = settings.options;
    watch::watch(settings.places, known, |read| {
        let loaded = read.and_then(|sources| policy::load(&sources, &options).map(|loaded| (sources, loaded)));
        match loaded {
            Ok((sources, loaded)) => installer.install(&sources, loaded),
            Err(report) => installer.refuse(&report),
        }
    })
    .await;
}

/// Puts policies in force and tells of it.
#[derive(Clone)]
pub(super) struct Installer {
    pub(super) policies: Arc<InForce>,
    pub(super) facts: Arc<Facts>,
    pub(super) metrics: Arc<Metrics>,
}

impl Installer {
    /// For all parts that share this.
    pub(super) fn new(shared: &Shared) -> Self {
        let Shared { policies, facts, metrics, .. } = shared;
        Self { policies: Arc::clone(policies), facts: Arc::clone(facts), metrics: Arc::clone(metrics) }
    }

    /// Puts the first policies in force, or says why there are none; what was read for them.
    pub(super) fn begin(&self, first: First) -> Reading {
        match first.loaded {
            Ok(Some(loaded)) => self.install(first.read.as_deref().unwrap_or_default(), loaded),
            Ok(None) => {}
            Err(report) => self.refuse(&report),
        }
        first.read
    }

    pub(super) fn install(&self, sources: &[Source], loaded: Loaded) {
        let policies = loaded.policies;
        let facts = PolicyFacts {
            version: policies.version().to_owned(),
            loaded_at: jiff::Timestamp::now().to_string(),
            files: sources.iter().map(|source| source.name.clone()).collect(),
            domains: policies.policies().map(|policy| policy.domain().to_owned()).collect(),
            rules: policies.rules().count(),
            last_error: None,
            last_error_at: None,
        };
        if !loaded.warnings.is_empty() {
            warn!("policy warnings:\n{}", loaded.warnings);
        }
        if facts.domains.is_empty() {
            warn!("the policies have no domain: no request is limited");
        }
        info!(version = facts.version, domains = facts.domains.len(), rules = facts.rules, "policies in force");
        self.policies.install(policies);
        self.metrics.policy_load(true);
        self.facts.loaded(facts);
    }

    pub(super) fn refuse(&self, report: &impl fmt::Display) {
        match self.policies.snapshot().is_some() {
            true => error!("a change of the policies is refused, the running ones stay in force:\n{report}"),
            false => error!("no policies are in force, and calls are UNAVAILABLE until good ones are there:\n{report}"),
        }
        self.metrics.policy_load(false);
        self.facts.refused(report.to_string());
    }
}
