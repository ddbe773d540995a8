//! Policies of a control plane, with overlays from files: two things that change, one set of policies.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Installer, options};
use crate::policy::source::watch;
use crate::policy::{self, Report, Source};
use crate::settings::PolicySettings;
use crate::xds::{self, ControlPlane, Update};

/// Follows both for ever. `overlays`: as they were read at the start.
pub(super) async fn follow(plane: ControlPlane, settings: PolicySettings, overlays: Vec<Source>, installer: Installer) {
    let metrics = Arc::clone(&installer.metrics);
    let feed = Feed { options: options(&settings), installer, remote: None, overlays: overlays.clone() };
    let feed = Mutex::new(feed);
    let watch = async {
        if !settings.overlays.is_empty() {
            watch::watch(vec![], settings.overlays, overlays, |read| feed.lock().overlays_changed(read)).await;
        }
    };
    tokio::join!(watch, xds::follow(plane, &metrics, |update| feed.lock().updated(update)));
}

/// What the policies are made of.
struct Feed {
    options: policy::Options,
    installer: Installer,
    /// What the control plane said last that could be used; `None` before.
    remote: Option<Vec<Source>>,
    overlays: Vec<Source>,
}

impl Feed {
    fn updated(&mut self, update: Update) -> Result<(), String> {
        let refuse = |installer: &Installer, reason: String| {
            installer.refuse(&reason);
            Err(reason)
        };
        let remote = match update {
            Ok(remote) => remote,
            Err(reason) => return refuse(&self.installer, reason),
        };
        match self.install(&remote, &self.overlays) {
            Ok(()) => self.remote = Some(remote),
            Err(report) => return refuse(&self.installer, report.to_string()),
        }
        Ok(())
    }

    fn overlays_changed(&mut self, read: Result<Vec<Source>, Report>) {
        let installed = read.and_then(|overlays| {
            match &self.remote {
                Some(remote) => self.install(remote, &overlays)?,
                // Nothing to lie over yet; they can be wrong in themselves.
                None => drop(policy::load(&overlays, &self.options)?),
            }
            Ok(overlays)
        });
        match installed {
            Ok(overlays) => self.overlays = overlays,
            Err(report) => self.installer.refuse(&report),
        }
    }

    fn install(&self, remote: &[Source], overlays: &[Source]) -> Result<(), Report> {
        let sources = [remote, overlays].concat();
        self.installer.install(&sources, policy::load(&sources, &self.options)?);
        Ok(())
    }
}
