//! Policies from files: the initial set, and later ones whenever the files change.

use std::io;

use tokio::task::JoinHandle;
use tracing::error;

use super::{control_plane, policy_watch};
use crate::operations::policies::Installer;
use crate::policy::source::SourceReading;
use crate::policy::source::files;
use crate::policy::{self, Loaded, ProblemReport};
use crate::settings::{PolicySettings, Settings};
use crate::xds::ControlPlane;

/// The policies at startup.
pub(super) struct InitialPolicies {
    pub(super) read: SourceReading,
    /// `None` if a control plane has yet to send them.
    pub(super) loaded: Result<Option<Loaded>, NoInitialPolicies>,
}

/// Reason why there are no policies at startup.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoInitialPolicies {
    #[error(
        "error: no policy found: set --policy FILE_OR_DIRECTORY, or put files into /etc/tollgate; \
         `tollgate init` writes a first policy. In an environment of envoyproxy/ratelimit: --envoyproxy-env"
    )]
    NotConfigured,
    #[error("{0}")]
    Invalid(ProblemReport),
}

impl InitialPolicies {
    /// Reads and compiles the configured files.
    pub(super) fn load(settings: &Settings) -> Self {
        let policy = &settings.policy;
        let is_remote = settings.xds.is_some();
        if policy.places.paths.is_empty() && !is_remote {
            return Self { read: Ok(Vec::new()), loaded: Err(NoInitialPolicies::NotConfigured) };
        }
        let read = files::read(&policy.places);
        let loaded = match &read {
            Ok(sources) => policy::load(sources, &policy.options),
            Err(report) => Err(report.clone()),
        };
        let loaded = loaded.map(|loaded| (!is_remote).then_some(loaded));
        Self { read, loaded: loaded.map_err(NoInitialPolicies::Invalid) }
    }
}

/// Follows the source of policies: files, or a control plane with `read` as its first overlays.
///
/// # Errors
/// A thread cannot be created.
pub(super) fn follow_source(
    settings: PolicySettings,
    plane: Option<ControlPlane>,
    read: SourceReading,
    installer: Installer,
) -> io::Result<JoinHandle<()>> {
    match plane {
        None => Ok(tokio::spawn(follow_files(settings, installer))),
        Some(plane) => control_plane::begin(plane, settings, read, installer),
    }
}

/// Follows the files forever.
async fn follow_files(settings: PolicySettings, installer: Installer) {
    if settings.places.paths.is_empty() {
        return;
    }
    let (found, mut finds) = tokio::sync::watch::channel(None);
    // Compared with what was loaded last, by whomever: files that change back after a reload are a
    // change.
    let look = policy_watch::watch_settled(settings.places, |read| {
        if !installer.has_handled(read) {
            found.send_replace(Some(read.clone()));
        }
    });
    // Compiling and comparing policies takes time, and must not block other tasks of this runtime.
    let load = async {
        while finds.changed().await.is_ok() {
            let read = finds.borrow_and_update().clone();
            let installer = installer.clone();
            let options = settings.options;
            let loaded = tokio::task::spawn_blocking(move || {
                if let Some(read) = read {
                    installer.changed(read, &options);
                }
            });
            if let Err(error) = loaded.await {
                error!("policy reload failed: {error}");
            }
        }
    };
    tokio::join!(look, load);
}
