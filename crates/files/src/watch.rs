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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// The documentation promises two seconds.
    #[tokio::test(start_paused = true)]
    async fn a_change_is_passed_on_within_a_second_and_a_half() {
        let contents = Arc::new(AtomicU64::new(0));
        let reader = Arc::clone(&contents);
        let (passed, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let read = move || reader.load(Ordering::Relaxed);
        let watching = tokio::spawn(watch(0, read, move |value| {
            passed.send((value, Instant::now())).unwrap();
        }));
        for (number, pause_ms) in (1..).zip([700, 499, 501, 1_250]) {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            contents.store(number, Ordering::Relaxed);
            let written = Instant::now();
            let (value, at) = seen.recv().await.unwrap();
            assert_eq!(value, number);
            assert!(at - written <= 3 * EVERY, "{:?}", at - written);
        }
        watching.abort();
    }
}
