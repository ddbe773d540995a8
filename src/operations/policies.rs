//! Policies put in force: from the start, changed files, a reload or a control plane.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::compiler::PolicyCompiler;
use super::error::OperationError;
use super::loads::{LoadOutcome, LoadTrigger, MAX_TEXT, PolicyLoad};
use super::process_state::{PolicySummary, ProcessState};
use crate::limiter::InForce;
use crate::policy::diff::{diff, text_of};
use crate::policy::source::SourceReading;
use crate::policy::source::files::{self, PolicyLocations};
use crate::policy::{CompileOptions, Loaded, ProblemReport, Source};
use crate::telemetry::metrics::Metrics;

/// Puts policies in force, and logs and records the outcome.
#[derive(Clone)]
pub struct Installer {
    /// The policies in force.
    pub policies: Arc<InForce>,
    /// State that reports the outcome.
    pub process: Arc<ProcessState>,
    /// Metrics of loads.
    pub metrics: Arc<Metrics>,
    /// Compiler of all sources.
    pub compiler: PolicyCompiler,
    /// The contents of the files at the last load, so that the file watcher and a reload do not
    /// report the same contents twice.
    handled: Arc<Mutex<SourceReading>>,
}

impl Installer {
    /// Creates an installer.
    pub fn new(
        policies: Arc<InForce>,
        process: Arc<ProcessState>,
        metrics: Arc<Metrics>,
        options: &CompileOptions,
    ) -> Self {
        let compiler = PolicyCompiler::new(Arc::clone(&policies), options);
        let handled = Arc::new(Mutex::new(Ok(Vec::new())));
        Self { compiler, policies, process, metrics, handled }
    }

    /// Puts the initial policies in force, or reports why there are none. `read` are the contents
    /// that they were compiled from; `loaded` is `Ok(None)` if a control plane has yet to send
    /// them.
    pub fn begin(&self, read: &SourceReading, loaded: Result<Option<Loaded>, impl fmt::Display>) {
        match loaded {
            Ok(Some(loaded)) => {
                drop(self.install(LoadTrigger::Start, read.as_deref().unwrap_or_default(), loaded))
            }
            Ok(None) => {}
            Err(report) => self.refuse(LoadTrigger::Start, &report),
        }
        self.handled.lock().clone_from(read);
    }

    /// Reads and loads the files on request. Holds the lock, so that no other change of the files
    /// is loaded meanwhile.
    fn reload(&self, files: &PolicyReloader) -> Result<PolicyLoad, ProblemReport> {
        let mut handled = self.handled.lock();
        *handled = files::read(&files.places);
        self.load(LoadTrigger::Admin, &handled, &files.options)
    }

    /// Returns `true` if these contents were the last to be loaded, or are being loaded now.
    pub fn has_handled(&self, read: &SourceReading) -> bool {
        self.handled.try_lock().is_none_or(|handled| *handled == *read)
    }

    /// Loads changed files, unless a reload has already handled the same contents.
    pub fn changed(&self, read: SourceReading, options: &CompileOptions) {
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
        options: &CompileOptions,
    ) -> Result<PolicyLoad, ProblemReport> {
        let sources = read.as_ref().map_err(ProblemReport::clone);
        let loaded = sources.and_then(|sources| {
            self.compiler.load(sources, options, |loaded| self.install(by, sources, loaded))
        });
        loaded.inspect_err(|report| self.refuse(by, report))
    }

    /// Puts policies in force, then computes the differences from the previous ones.
    pub fn install(&self, by: LoadTrigger, sources: &[Source], loaded: Loaded) -> PolicyLoad {
        let before = self.policies.snapshot();
        let policies = loaded.policies;
        let process = PolicySummary {
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
        if process.domains.is_empty() {
            warn!("policies define no domain; no request is limited");
        }
        let is_same =
            before.as_ref().is_some_and(|set| set.policies().version() == process.version);
        info!(
            version = process.version,
            domains = process.domains.len(),
            rules = process.rules,
            "policies {}",
            if is_same { "reloaded, unchanged" } else { "in force" }
        );
        self.policies.install(policies);
        self.compiler.warn_if_nearly_full();
        self.metrics.policies.loaded(&process.version);
        let at = process.loaded_at.clone();
        let version = process.version.clone();
        self.process.record_policies(process);
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
        self.process.record_load(load.clone());
        load
    }

    /// Logs and records that policies were rejected.
    pub fn refuse(&self, by: LoadTrigger, report: &impl fmt::Display) {
        if self.policies.snapshot().is_some() {
            error!("policy change rejected; policies in force unchanged:\n{report}")
        } else {
            error!(
                "policies rejected; calls return UNAVAILABLE until valid policies are loaded:\n{report}"
            )
        }
        self.metrics.policies.refused();
        let report = report.to_string();
        let version = self.process.policies().version;
        let at = jiff::Timestamp::now().to_string();
        let outcome = LoadOutcome::refused(&report);
        self.process.record_rejection(report);
        self.process.record_load(PolicyLoad { at, by, version, outcome });
    }
}

/// Reloads the policy files on request.
#[derive(Clone)]
pub struct PolicyReloader {
    /// The files.
    pub places: PolicyLocations,
    /// Options of the compiler.
    pub options: CompileOptions,
}

/// The result of a reload.
#[derive(Clone, Debug)]
pub struct ReloadedPolicies {
    /// `true` if the new policies differ from the previous ones.
    pub is_changed: bool,
    /// Differences from the previous policies as text.
    pub changes: Option<String>,
    /// The policies now in force.
    pub policies: PolicySummary,
}

impl PolicyReloader {
    /// Reads the files and puts the policies in force.
    ///
    /// # Errors
    /// The policies are not valid, or the process ends.
    pub(super) async fn now(
        self,
        installer: Installer,
    ) -> Result<ReloadedPolicies, OperationError> {
        let process = Arc::clone(&installer.process);
        let before = process.policies().version;
        let loaded = tokio::task::spawn_blocking(move || installer.reload(&self)).await?;
        let changes = match loaded?.outcome {
            LoadOutcome::Changed { changes, .. } => Some(changes),
            LoadOutcome::First | LoadOutcome::Refused(_) => None,
        };
        let policies = process.policies();
        Ok(ReloadedPolicies { is_changed: before != policies.version, changes, policies })
    }
}
