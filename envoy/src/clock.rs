//! The clock of loans: it also counts the time for which the machine is suspended.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The start of the clock: an instant, and the time since boot at it.
static START: OnceLock<(Instant, Duration)> = OnceLock::new();

/// Returns the current instant. Instants of this clock are compared only with each other: they are
/// those of `Instant`, which stands still during a suspension, moved by the time since boot.
pub(crate) fn now() -> Instant {
    let (instant, boot) = *START.get_or_init(|| (Instant::now(), since_boot()));
    instant.checked_add(since_boot().saturating_sub(boot)).unwrap_or(instant)
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
