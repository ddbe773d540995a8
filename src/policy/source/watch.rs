//! Sees changes of policy files by reading them again.
//!
//! Twice a second everything is read and compared. That sees in-place writes, renames and the `..data` links that Kubernetes
//! swaps, on every file system, where change notifications miss some of these on some of them; policies are small.
//! A change counts when two readings in a row agree, so that a file that is being written is not read half.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::files::{self, Places};
use crate::policy::{Report, Source};

/// Time between two readings; a change is seen within two of them.
const EVERY: Duration = Duration::from_millis(500);

/// Reads `places` for ever and gives every settled change to `changed`, first of all if they differ from `known`.
pub async fn watch(places: Places, known: Reading, mut changed: impl FnMut(Result<Vec<Source>, Report>)) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let places = Arc::new(places);
    let (mut settled, mut latest) = (known.clone(), known);
    loop {
        ticks.tick().await;
        let places = Arc::clone(&places);
        let Ok(reading) = tokio::task::spawn_blocking(move || files::read(&places)).await else { continue };
        let text = reading.as_ref().cloned().map_err(ToString::to_string);
        if text != settled && text == latest {
            settled = text.clone();
            changed(reading);
        }
        latest = text;
    }
}

/// What was read, or the text of the report that says why it could not be.
pub type Reading = Result<Vec<Source>, String>;
