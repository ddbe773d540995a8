//! A clock that also counts the time for which the machine is suspended.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The start of the clock: an instant, and the time of the other clock at it.
static START: OnceLock<(Instant, Duration)> = OnceLock::new();

/// Returns the current instant.
///
/// Instants of this clock are to be compared only with each other. They are those of [`Instant`],
/// which may stand still during a suspension, moved by the time since boot. Where the system has
/// no such clock, the time of day shows suspensions, unless it was set back by more.
pub fn now() -> Instant {
    let (start, other) = *START.get_or_init(|| (Instant::now(), since_then()));
    let passed = since_then().saturating_sub(other);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let passed = passed.max(start.elapsed());
    start.checked_add(passed).unwrap_or(start)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_then() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_then() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_advances_with_the_monotonic_clock() {
        let one = now();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let passed = now().saturating_duration_since(one);
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
    }
}
