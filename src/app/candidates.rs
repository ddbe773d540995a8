//! Candidate policies from files, tried out beside the policies in force. Errors in them never
//! affect the service.

use std::io;

use tokio::task::JoinHandle;
use tracing::{error, info};

use super::{policy_watch, threads};
use crate::operations::policies::Installer;
use crate::policy::source::SourceReading;
use crate::policy::source::files;
use crate::policy::{CompileOptions, Loaded, ProblemReport};
use crate::settings::PolicySettings;

/// Tries out the candidates now and after each change. Changes are compiled on a separate thread,
/// since that takes time.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn begin(
    settings: &PolicySettings,
    installer: &Installer,
) -> io::Result<JoinHandle<()>> {
    let places = settings.candidates.clone();
    if places.paths.is_empty() {
        return Ok(tokio::spawn(async {}));
    }
    let options = CompileOptions { are_candidates: true, ..settings.options };
    let installer = installer.clone();
    let read = files::read(&places);
    try_out(&read, &options, &installer);
    threads::spawn("candidates", move || async move {
        policy_watch::watch(places, read, |read| try_out(&read, &options, &installer)).await;
    })
}

fn try_out(read: &SourceReading, options: &CompileOptions, installer: &Installer) {
    let read = read.as_ref().map_err(ProblemReport::clone);
    let loaded = read.and_then(|sources| {
        installer.compiler.load(sources, options, |Loaded { policies, .. }| {
            let rules = policies.rules().count();
            info!(version = policies.version(), rules, "candidate policies loaded");
            installer.policies.try_out(policies);
        })
    });
    if let Err(report) = loaded {
        error!("candidate policies rejected; previous candidates unchanged:\n{report}");
    }
}
