//! The policies of the process: the initial set, and later ones from files or a control plane.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::ProcessParts;
use super::compiler::PolicyCompiler;
use crate::admin::loads::{LoadOutcome, LoadTrigger, MAX_TEXT, PolicyLoad};
use crate::admin::{PolicySummary, ProcessState};
use crate::limiter::InForce;
use crate::policy::diff::{diff, text_of};
use crate::policy::source::files;
use crate::policy::source::watch::{self, SourceReading};
use crate::policy::{self, Loaded, PolicyReport, Source};
use crate::settings::{PolicySettings, Settings};
use crate::telemetry::metrics::Metrics;

/// The policies at startup.
pub(super) struct First {
    read: SourceReading,
    /// `None` if a control plane has yet to send them.
    loaded: Result<Option<Loaded>, String>,
}

impl First {
    /// Reads and compiles the configured files.
    pub(super) fn load(settings: &Settings) -> Self {
        let policy = &settings.policy;
        let is_remote = settings.xds.is_some();
        if policy.places.paths.is_empty() && !is_remote {
            let why = "error: no policy found: set --policy FILE_OR_DIRECTORY, or create config/policies";
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

    /// Returns the reason why there are no policies, if some are required.
    pub(super) fn problem(&self) -> Option<&str> {
        self.loaded.as_ref().err().map(String::as_str)
    }
}

/// Reloads the policy files on request.
#[derive(Clone)]
pub(super) struct PolicyReloader(pub(super) PolicySettings);

impl PolicyReloader {
    /// Reads the files and puts the policies in force.
    ///
    /// # Errors
    /// The report on the problems found.
    pub(super) async fn now(self, installer: Installer) -> Result<PolicyLoad, String> {
        let Self(settings) = self;
        let reload = move || installer.reload(&settings);
        let loaded = tokio::task::spawn_blocking(reload).await.map_err(|error| error.to_string())?;
        loaded.map_err(|report| report.to_string())
    }
}

/// Follows the files forever. `known` holds their contents at startup.
pub(super) async fn follow(settings: PolicySettings, known: SourceReading, installer: Installer) {
    if settings.places.paths.is_empty() {
        return;
    }
    let (found, mut finds) = tokio::sync::watch::channel(None);
    let look = watch::watch(settings.places, known, |read| drop(found.send_replace(Some(read))));
    // Compiling and comparing policies takes time, and must not block other tasks of this runtime.
    let load = async {
        while finds.changed().await.is_ok() {
            let read = finds.borrow_and_update().clone();
            let installer = installer.clone();
            let options = settings.options;
            let load = move || read.into_iter().for_each(|read| installer.changed(read, &options));
            if let Err(error) = tokio::task::spawn_blocking(load).await {
                error!("policy reload failed: {error}");
            }
        }
    };
    tokio::join!(look, load);
}

/// Puts policies in force, and logs and records the outcome.
#[derive(Clone)]
pub(super) struct Installer {
    pub(super) policies: Arc<InForce>,
    pub(super) facts: Arc<ProcessState>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) compiler: PolicyCompiler,
    /// The contents of the files at the last load, so that the file watcher and a reload do not
    /// report the same contents twice.
    handled: Arc<Mutex<SourceReading>>,
}

impl Installer {
    /// Creates an installer for the shared state.
    pub(super) fn new(shared: &ProcessParts, options: &policy::CompileOptions) -> Self {
        let ProcessParts { policies, facts, metrics, .. } = shared;
        let handled = Arc::new(Mutex::new(Ok(Vec::new())));
        Self {
            compiler: PolicyCompiler::new(Arc::clone(policies), options),
            policies: Arc::clone(policies),
            facts: Arc::clone(facts),
            metrics: Arc::clone(metrics),
            handled,
        }
    }

    /// Puts the initial policies in force, or reports why there are none. Returns the contents that
    /// they were compiled from.
    pub(super) fn begin(&self, first: First) -> SourceReading {
        match first.loaded {
            Ok(Some(loaded)) => {
                drop(self.install(LoadTrigger::Start, first.read.as_deref().unwrap_or_default(), loaded))
            }
            Ok(None) => {}
            Err(report) => self.refuse(LoadTrigger::Start, &report),
        }
        self.handled.lock().clone_from(&first.read);
        first.read
    }

    /// Reads and loads the files on request. Holds the lock, so that no other change of the files
    /// is loaded meanwhile.
    fn reload(&self, settings: &PolicySettings) -> Result<PolicyLoad, PolicyReport> {
        let mut handled = self.handled.lock();
        *handled = files::read(&settings.places);
        self.load(LoadTrigger::Admin, &handled, &settings.options)
    }

    /// Loads changed files, unless a reload has already handled the same contents.
    fn changed(&self, read: SourceReading, options: &policy::CompileOptions) {
        let mut handled = self.handled.lock();
        if *handled != read {
            *handled = read;
            // `load` reports a rejection.
            let _ = self.load(LoadTrigger::Files, &handled, options);
        }
    }

    fn load(
        &self,
        by: LoadTrigger,
        read: &SourceReading,
        options: &policy::CompileOptions,
    ) -> Result<PolicyLoad, PolicyReport> {
        let sources = read.as_ref().map_err(PolicyReport::clone);
        let install =
            |sources: &[Source]| self.compiler.load(sources, options, |loaded| self.install(by, sources, loaded));
        sources.and_then(|sources| install(sources)).inspect_err(|report| self.refuse(by, report))
    }

    /// Puts policies in force, then computes the differences from the previous ones.
    pub(super) fn install(&self, by: LoadTrigger, sources: &[Source], loaded: Loaded) -> PolicyLoad {
        let before = self.policies.snapshot();
        let policies = loaded.policies;
        let facts = PolicySummary {
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
            warn!("policies define no domain; no request is limited");
        }
        info!(version = facts.version, domains = facts.domains.len(), rules = facts.rules, "policies in force");
        self.policies.install(policies);
        self.compiler.warn_if_nearly_full();
        self.metrics.policy_load(true);
        let at = facts.loaded_at.clone();
        let version = facts.version.clone();
        self.facts.record_policies(facts);
        let outcome = match (before.as_deref(), self.policies.snapshot().as_deref()) {
            (Some(before), Some(now)) => {
                let before = before.policies();
                let now = now.policies();
                let changes = text_of(&diff(before, now), MAX_TEXT);
                LoadOutcome::Changed { before: before.version().to_owned(), changes }
            }
            (None, _) | (_, None) => LoadOutcome::First,
        };
        let load = PolicyLoad { at, by, version, outcome };
        self.facts.record_load(load.clone());
        load
    }

    pub(super) fn refuse(&self, by: LoadTrigger, report: &impl fmt::Display) {
        if self.policies.snapshot().is_some() {
            error!("policy change rejected; policies in force unchanged:\n{report}")
        } else {
            error!("policies rejected; calls return UNAVAILABLE until valid policies are loaded:\n{report}")
        }
        self.metrics.policy_load(false);
        let report = report.to_string();
        let version = self.facts.policies().version;
        let at = jiff::Timestamp::now().to_string();
        let outcome = LoadOutcome::refused(&report);
        self.facts.record_rejection(report);
        self.facts.record_load(PolicyLoad { at, by, version, outcome });
    }
}
