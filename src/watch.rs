//! Sees changes of files by reading them again.
//!
//! Twice a second everything is read and compared. That sees in-place writes, renames and the `..data` links that Kubernetes
//! swaps, on every file system, where change notifications miss some of these on some of them; what is watched is small.
//! A change counts when two readings in a row agree, so that a file that is being written is not read half.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Time between two readings; a change is seen within two of them.
const EVERY: Duration = Duration::from_millis(500);

/// Calls `read`, which may block, for ever and gives every settled change to `changed`, first of all if it differs from
/// `known`.
pub async fn watch<T>(known: T, read: impl Fn() -> T + Clone + Send + 'static, mut changed: impl FnMut(T))
where
    T: Clone + PartialEq + Send + 'static,
{
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut settled, mut latest) = (known.clone(), known);
    loop {
        ticks.tick().await;
        let Ok(reading) = tokio::task::spawn_blocking(read.clone()).await else { continue };
        if reading != settled && reading == latest {
            settled = reading.clone();
            changed(reading.clone());
        }
        latest = reading;
    }
}
