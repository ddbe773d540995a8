//! Policies that are tried out beside those in force, as files bring them. Whatever is wrong with them, the service goes on.

use std::io;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tracing::{error, info};

use super::threads;
use crate::limiter::InForce;
use crate::policy::source::files;
use crate::policy::source::watch::{self, Reading};
use crate::policy::{self, Options};
use crate::settings::PolicySettings;

/// Tries out what there is, and from now on what changes. To compile it takes time, and is done on a thread of its own.
///
/// # Errors
/// The system has no thread to give.
pub(super) fn begin(settings: &PolicySettings, policies: &Arc<InForce>) -> io::Result<JoinHandle<()>> {
    let places = settings.candidates.clone();
    if places.paths.is_empty() {
        return Ok(tokio::spawn(async {}));
    }
    let options = Options { are_candidates: true, ..settings.options };
    let policies = Arc::clone(policies);
    let read = files::read(&places);
    try_out(read.clone(), &options, &policies);
    threads::spawn("candidates", move || async move {
        watch::watch(places, read, |read| try_out(read, &options, &policies)).await;
    })
}

fn try_out(read: Reading, options: &Options, policies: &InForce) {
    match read.and_then(|sources| policy::load(&sources, options)) {
        Ok(loaded) => {
            let rules = loaded.policies.rules().count();
            info!(version = loaded.policies.version(), rules, "policies tried out");
            policies.try_out(loaded.policies);
        }
        Err(report) => error!("policies to be tried out are refused, and those before go on being tried:\n{report}"),
    }
}
