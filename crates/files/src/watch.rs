//! Detects file changes by polling.
//!
//! All files are read and compared twice a second. This detects in-place writes, renames and the
//! `..data` symlinks that Kubernetes swaps, on every file system, whereas change notifications miss
//! some of these on some of them; the watched data is small. A change is reported if two
//! consecutive reads agree, so that a file is not used while it is being written.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval between reads; a change is detected within two of them.
const EVERY: Duration = Duration::from_millis(500);

/// Runs forever: polls `read`, which may block, and passes each settled change to `changed`.
/// Contents that differ from `known` at the start are a change, too.
pub async fn watch<T>(
    known: T,
    read: impl Fn() -> T + Clone + Send + 'static,
    mut changed: impl FnMut(T),
) where
    T: Clone + PartialEq + Send + 'static,
{
    let mut last = known;
    watch_settled(read, |settled: &T| {
        if *settled != last {
            last = settled.clone();
            changed(settled.clone());
        }
    })
    .await;
}

/// Runs forever: polls `read`, which may block, and passes each reading that agrees with the one
/// before it to `settled`, whether it has changed or not.
pub async fn watch_settled<T>(
    read: impl Fn() -> T + Clone + Send + 'static,
    mut settled: impl FnMut(&T),
) where
    T: PartialEq + Send + 'static,
{
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut latest = None;
    loop {
        ticks.tick().await;
        let Ok(reading) = tokio::task::spawn_blocking(read.clone()).await else { continue };
        if latest.as_ref() == Some(&reading) {
            settled(&reading);
        }
        latest = Some(reading);
    }
}
