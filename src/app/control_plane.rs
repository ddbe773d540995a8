//! Policies from a control plane with overlays from files: one policy set from two sources that
//! change independently.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{policy_watch, threads};
use crate::operations::loads::LoadTrigger;
use crate::operations::policies::Installer;
use crate::policy::source::SourceReading;
use crate::policy::source::files::PolicyLocations;
use crate::policy::{self, ProblemReport, Source};
use crate::settings::PolicySettings;
use crate::xds::{self, ControlPlane, ResourceError, Update};

/// Follows both sources forever and compiles their updates, on a thread of its own. `overlays`
/// holds the overlay files as read at startup.
///
/// # Errors
/// The thread cannot be created.
pub(super) fn begin(
    plane: ControlPlane,
    settings: PolicySettings,
    overlays: SourceReading,
    installer: Installer,
) -> io::Result<JoinHandle<()>> {
    threads::spawn("control-plane", move || follow(plane, settings, overlays, installer))
}

async fn follow(
    plane: ControlPlane,
    settings: PolicySettings,
    overlays: SourceReading,
    installer: Installer,
) {
    let metrics = Arc::clone(&installer.metrics);
    let feed = Feed {
        options: settings.options,
        installer,
        remote: None,
        refused: None,
        overlays: overlays.clone(),
    };
    let feed = Mutex::new(feed);
    let watch = async {
        let places = PolicyLocations { paths: vec![], ..settings.places };
        if !places.overlays.is_empty() {
            policy_watch::watch(places, overlays, |read| feed.lock().overlays_changed(read)).await;
        }
    };
    tokio::join!(watch, xds::follow(plane, &metrics.xds, |update| feed.lock().updated(update)));
}

/// The sources of the policy set.
struct Feed {
    options: policy::CompileOptions,
    installer: Installer,
    /// The last valid update of the control plane; `None` before the first.
    remote: Option<Vec<Source>>,
    /// A later update that was rejected although it could be parsed. Changed overlays may make it
    /// valid, and the control plane may not send it again.
    refused: Option<Vec<Source>>,
    /// The overlays. If they cannot be read, no update is put in force, since it would lack their
    /// changes.
    overlays: SourceReading,
}

/// The reason why an update is not in force.
#[derive(Debug, thiserror::Error)]
enum RefusedUpdate {
    #[error("{0}")]
    Resource(ResourceError),
    #[error("{0}")]
    Policies(ProblemReport),
}

impl Feed {
    fn updated(&mut self, update: Update) -> Result<(), RefusedUpdate> {
        self.refused = None;
        let installed = match update {
            Ok(remote) => self.remote_changed(remote).map_err(RefusedUpdate::Policies),
            Err(error) => Err(RefusedUpdate::Resource(error)),
        };
        installed.inspect_err(|reason| self.installer.refuse(LoadTrigger::ControlPlane, reason))
    }

    fn remote_changed(&mut self, remote: Vec<Source>) -> Result<(), ProblemReport> {
        let installed = self.install_with_known(&remote);
        match installed {
            Ok(()) => self.remote = Some(remote),
            Err(_) => self.refused = Some(remote),
        }
        installed
    }

    fn overlays_changed(&mut self, read: Result<Vec<Source>, ProblemReport>) {
        let overlays = match read {
            Ok(overlays) => overlays,
            Err(report) => return self.installer.refuse(LoadTrigger::Files, &report),
        };
        if let Some(refused) = &self.refused
            && self.install(LoadTrigger::Files, refused, &overlays).is_ok()
        {
            self.remote = self.refused.take();
            self.overlays = Ok(overlays);
            return;
        }
        let installed = match &self.remote {
            Some(remote) => self.install(LoadTrigger::Files, remote, &overlays),
            // There is no update to overlay yet, but the overlays themselves may be invalid.
            None => self.installer.compiler.load(&overlays, &self.options, drop),
        };
        match installed {
            Ok(()) => self.overlays = Ok(overlays),
            Err(report) => self.installer.refuse(LoadTrigger::Files, &report),
        }
    }

    fn install_with_known(&self, remote: &[Source]) -> Result<(), ProblemReport> {
        self.install(
            LoadTrigger::ControlPlane,
            remote,
            self.overlays.as_ref().map_err(Clone::clone)?,
        )
    }

    fn install(
        &self,
        by: LoadTrigger,
        remote: &[Source],
        overlays: &[Source],
    ) -> Result<(), ProblemReport> {
        let sources = [remote, overlays].concat();
        self.installer.compiler.load(&sources, &self.options, |loaded| {
            drop(self.installer.install(by, &sources, loaded));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::InForce;
    use crate::operations::process_state::{PolicyRequirement, ProcessState};
    use crate::telemetry::metrics::Metrics;

    fn source(name: &str, text: String) -> Vec<Source> {
        vec![Source { name: name.to_owned(), text }]
    }

    fn overlays(burst: u32) -> SourceReading {
        let limit = format!("{{ algorithm: gcra, burst: {burst} }}");
        Ok(source("overlay.yaml", format!("overlay: [{{ key: plan, rate_limit: {limit} }}]\n")))
    }

    #[test]
    fn changed_overlays_put_the_last_update_in_force_and_none_before_it() {
        let metrics = Metrics::new();
        let policies = InForce::new(Arc::clone(&metrics));
        let options = policy::CompileOptions::default();
        let process = Arc::new(ProcessState::new(PolicyRequirement::Policy));
        let installer = Installer::new(Arc::clone(&policies), process, metrics, &options);
        let mut feed =
            Feed { options, installer, remote: None, refused: None, overlays: overlays(0) };
        for (updates, expected) in [(&["plan", "user"][..], "user"), (&["plan"], "plan")] {
            feed.overlays_changed(overlays(0));
            for key in updates {
                let limit = "rate_limit: { unit: day, requests_per_unit: 5 }";
                let text = format!("domain: {key}\ndescriptors: [{{ key: {key}, {limit} }}]\n");
                let refused =
                    feed.updated(Ok(source("", text))).err().map(|error| error.to_string());
                let has_place = refused.map(|text| text.contains("overlay.yaml:1:"));
                assert_eq!(has_place, (*key == "plan").then_some(true));
            }
            feed.overlays_changed(overlays(2));
            let snapshot = policies.snapshot();
            let in_force = snapshot.as_ref().unwrap().policies().policies().next().unwrap();
            assert_eq!(in_force.domain(), expected);
        }
    }
}
