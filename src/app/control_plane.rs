//! Policies of a control plane, with overlays from files: two things that change, one set of policies.

use std::sync::Arc;

use parking_lot::Mutex;

use super::policies::Installer;
use crate::admin::loads::By;
use crate::policy::source::files::Places;
use crate::policy::source::watch::{self, Reading};
use crate::policy::{self, Report, Source};
use crate::settings::PolicySettings;
use crate::xds::{self, ControlPlane, Update};

/// Follows both for ever, and compiles what they bring: for a thread of its own. `overlays`: as they were read at the start.
pub(super) async fn follow(plane: ControlPlane, settings: PolicySettings, overlays: Reading, installer: Installer) {
    let metrics = Arc::clone(&installer.metrics);
    let feed = Feed { options: settings.options, installer, remote: None, refused: None, overlays: overlays.clone() };
    let feed = Mutex::new(feed);
    let watch = async {
        let places = Places { paths: vec![], ..settings.places };
        if !places.overlays.is_empty() {
            watch::watch(places, overlays, |read| feed.lock().overlays_changed(read)).await;
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
    /// What it has said since, if that could be read: other overlays may make it good, and it may not say it again.
    refused: Option<Vec<Source>>,
    /// Without them nothing is put in force: it would be without what they say.
    overlays: Reading,
}

impl Feed {
    fn updated(&mut self, update: Update) -> Result<(), String> {
        self.refused = None;
        let installed = update.and_then(|remote| match self.install_with_known(&remote) {
            Ok(()) => {
                self.remote = Some(remote);
                Ok(())
            }
            Err(report) => {
                self.refused = Some(remote);
                Err(report.to_string())
            }
        });
        installed.inspect_err(|reason| self.installer.refuse(By::ControlPlane, reason))
    }

    fn overlays_changed(&mut self, read: Result<Vec<Source>, Report>) {
        let overlays = match read {
            Ok(overlays) => overlays,
            Err(report) => return self.installer.refuse(By::Files, &report),
        };
        let is_good_now = |refused: &&Vec<Source>| self.install(By::Files, refused, &overlays).is_ok();
        if self.refused.as_ref().filter(is_good_now).is_some() {
            (self.remote, self.overlays) = (self.refused.take(), Ok(overlays));
            return;
        }
        let installed = match &self.remote {
            Some(remote) => self.install(By::Files, remote, &overlays),
            // Nothing to lie over yet; they can be wrong in themselves.
            None => policy::load(&overlays, &self.options).map(drop),
        };
        match installed {
            Ok(()) => self.overlays = Ok(overlays),
            Err(report) => self.installer.refuse(By::Files, &report),
        }
    }

    fn install_with_known(&self, remote: &[Source]) -> Result<(), Report> {
        self.install(By::ControlPlane, remote, self.overlays.as_ref().map_err(Clone::clone)?)
    }

    fn install(&self, by: By, remote: &[Source], overlays: &[Source]) -> Result<(), Report> {
        let sources = [remote, overlays].concat();
        self.installer.install(by, &sources, policy::load(&sources, &self.options)?);
        Ok(())
    }
}
