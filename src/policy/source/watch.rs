//! Sees changes of policy files by reading them again.
//!
//! Twice a second everything is read and compared. That sees in-place writes, renames and the `..data` links that Kubernetes
//! swaps, on every file system, where change notifications miss some of these on some of them; policies are small.
//! A change counts when two readings in a row agree, so that a file that is being written is not read half.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::files;
use crate::policy::{Report, Source};

/// Time between two readings; a change is seen within two of them.
const EVERY: Duration = Duration::from_millis(500);

/// Reads `paths` and `overlays` for ever and gives every settled change to `changed`, first of all if they differ from `known`.
pub async fn watch(
    paths: Vec<PathBuf>,
    overlays: Vec<PathBuf>,
    known: Vec<Source>,
    mut changed: impl FnMut(Result<Vec<Source>, Report>),
) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let paths = Arc::new((paths, overlays));
    let (mut settled, mut latest): (Reading, Reading) = (Ok(known.clone()), Ok(known));
    loop {
        ticks.tick().await;
        let paths = Arc::clone(&paths);
        let Ok(reading) = tokio::task::spawn_blocking(move || files::read(&paths.0, &paths.1)).await else { continue };
        let text = reading.as_ref().cloned().map_err(ToString::to_string);
        if text != settled && text == latest {
            settled = text.clone();
            changed(reading);
        }
        latest = text;
    }
}

/// What was read, or the text of the report that says why it could not be.
type Reading = Result<Vec<Source>, String>;
