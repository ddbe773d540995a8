//! The policies of the process: the first ones, and those that files or a control plane bring later.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::Shared;
use crate::admin::loads::{By, Load, MAX_TOLD, Outcome};
use crate::admin::{Facts, PolicyFacts};
use crate::limiter::InForce;
use crate::policy::diff::{diff, text_of};
use crate::policy::source::files;
use crate::policy::source::watch::{self, Reading};
use crate::policy::{self, Loaded, Report, Source};
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
    pub(super) async fn now(self, installer: Installer) -> Result<Load, String> {
        let Self(settings) = self;
        let reload = move || installer.reload(&settings);
        let loaded = tokio::task::spawn_blocking(reload).await.map_err(|error| error.to_string())?;
        loaded.map_err(|report| report.to_string())
    }
}

/// Follows files for ever. `known`: what was read at the start.
pub(super) async fn follow(settings: PolicySettings, known: Reading, installer: Installer) {
    if settings.places.paths.is_empty() {
        return;
    }
    let (found, mut finds) = tokio::sync::watch::channel(None);
    let look = watch::watch(settings.places, known, |read| drop(found.send_replace(Some(read))));
    // To compile and compare them takes time, in which others have to be answered.
    let load = async {
        while finds.changed().await.is_ok() {
            let (read, installer, options) = (finds.borrow_and_update().clone(), installer.clone(), settings.options);
            let load = move || read.into_iter().for_each(|read| installer.changed(read, &options));
            if let Err(error) = tokio::task::spawn_blocking(load).await {
                error!("a change of the policies was not loaded: {error}");
            }
        }
    };
    tokio::join!(look, load);
}

/// Puts policies in force and tells of it.
#[derive(Clone)]
pub(super) struct Installer {
    pub(super) policies: Arc<InForce>,
    pub(super) facts: Arc<Facts>,
    pub(super) metrics: Arc<Metrics>,
    /// What the files held when they were read last for a load: who finds the same has nothing to tell.
    handled: Arc<Mutex<Reading>>,
}

impl Installer {
    /// For all parts that share this.
    pub(super) fn new(shared: &Shared) -> Self {
        let Shared { policies, facts, metrics, .. } = shared;
        let handled = Arc::new(Mutex::new(Ok(Vec::new())));
        Self { policies: Arc::clone(policies), facts: Arc::clone(facts), metrics: Arc::clone(metrics), handled }
    }

    /// Puts the first policies in force, or says why there are none; what was read for them.
    pub(super) fn begin(&self, first: First) -> Reading {
        match first.loaded {
            Ok(Some(loaded)) => drop(self.install(By::Start, first.read.as_deref().unwrap_or_default(), loaded)),
            Ok(None) => {}
            Err(report) => self.refuse(By::Start, &report),
        }
        self.handled.lock().clone_from(&first.read);
        first.read
    }

    /// Reads the files, since somebody asks for it. Meanwhile nobody else puts others in force.
    fn reload(&self, settings: &PolicySettings) -> Result<Load, Report> {
        let mut handled = self.handled.lock();
        *handled = files::read(&settings.places);
        self.load(By::Admin, &handled, &settings.options)
    }

    /// The files hold something else, unless a reload has found that before.
    fn changed(&self, read: Reading, options: &policy::Options) {
        let mut handled = self.handled.lock();
        if *handled != read {
            *handled = read;
            // A refusal is told there.
            let _ = self.load(By::Files, &handled, options);
        }
    }

    fn load(&self, by: By, read: &Reading, options: &policy::Options) -> Result<Load, Report> {
        let sources = read.as_ref().map_err(Report::clone);
        let loaded = sources.and_then(|sources| Ok((sources, policy::load(sources, options)?)));
        let (sources, loaded) = loaded.inspect_err(|report| self.refuse(by, report))?;
        Ok(self.install(by, sources, loaded))
    }

    /// Puts them in force, and then tells what differs.
    pub(super) fn install(&self, by: By, sources: &[Source], loaded: Loaded) -> Load {
        let before = self.policies.snapshot();
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
        let (at, version) = (facts.loaded_at.clone(), facts.version.clone());
        self.facts.loaded(facts);
        let outcome = match (before.as_deref(), self.policies.snapshot().as_deref()) {
            (Some(before), Some(now)) => {
                let (before, now) = (before.policies(), now.policies());
                let changes = text_of(&diff(before, now), MAX_TOLD);
                Outcome::Changed { before: before.version().to_owned(), changes }
            }
            (None, _) | (_, None) => Outcome::First,
        };
        let load = Load { at, by, version, outcome };
        self.facts.tried(load.clone());
        load
    }

    pub(super) fn refuse(&self, by: By, report: &impl fmt::Display) {
        match self.policies.snapshot().is_some() {
            true => error!("a change of the policies is refused, the running ones stay in force:\n{report}"),
            false => error!("no policies are in force, and calls are UNAVAILABLE until good ones are there:\n{report}"),
        }
        self.metrics.policy_load(false);
        let (report, version) = (report.to_string(), self.facts.policies().version);
        let (at, outcome) = (jiff::Timestamp::now().to_string(), Outcome::refused(&report));
        self.facts.refused(report);
        self.facts.tried(Load { at, by, version, outcome });
    }
}
