//! Limits, checks and stores that several tests use.

use std::sync::Arc;

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::quota::{Report, Window};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate_core::descriptor::CounterKey;

use crate::Check;
use crate::clock::ManualClock;
use crate::memory::{Bounds, MemoryStore};

/// A store whose clock stands still unless it is set.
pub(crate) type SteppedMemory = Arc<MemoryStore<Arc<ManualClock>>>;

/// An instant in no special place of its window.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_780_000_000_123_456);

/// Returns an empty store of 1 MiB at an instant.
pub(crate) fn memory_at(now: Timestamp) -> (SteppedMemory, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.set(now);
    let bounds = Bounds { max_bytes: 1 << 20, domain_max_bytes: 1 << 20 };
    (Arc::new(MemoryStore::new(bounds, Arc::clone(&clock))), clock)
}

/// Returns windows, by their amounts and seconds.
fn windows(amounts: &[(u32, u64)]) -> Vec<Window> {
    let windows = amounts.iter();
    windows.map(|(hits, length)| Window::new(*hits, Micros::from_secs(*length)).unwrap()).collect()
}

/// Returns a limit of fixed windows, by their amounts and seconds.
pub(crate) fn fixed(amounts: &[(u32, u64)], charge: Charge, on_error: OnStoreError) -> Limit {
    let algorithm = Algorithm::FixedWindow(FixedWindow::new(windows(amounts)).unwrap());
    Limit::new(algorithm, charge, on_error).unwrap()
}

/// Returns a limit that is charged when admitted, whose error is one of its requests.
pub(crate) fn admitted(algorithm: Algorithm) -> Limit {
    Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap()
}

pub(crate) fn log(amount: u32, seconds: u64) -> Limit {
    admitted(Algorithm::SlidingLog(SlidingLog::new(windows(&[(amount, seconds)])).unwrap()))
}

pub(crate) fn sliding(amount: u32, seconds: u64) -> Limit {
    let sliding = SlidingWindow::new(windows(&[(amount, seconds)]), 60, Estimate::Strict);
    admitted(Algorithm::SlidingWindow(sliding.unwrap()))
}

pub(crate) fn gcra(amount: u32, seconds: u64) -> Limit {
    let [window] = <[_; 1]>::try_from(windows(&[(amount, seconds)])).unwrap();
    admitted(Algorithm::Gcra(Gcra::new(window, None, None).unwrap()))
}

/// Returns a charge of one hit.
pub(crate) fn check<'a>(name: &'a [u8], limit: &'a Limit) -> Check<'a> {
    Check {
        key: CounterKey::of("d", name),
        limit,
        hits: Hits::Charge(1),
        role: Role::Enforce,
        recorded: &[],
        lease: None,
        hold: None,
    }
}

/// Returns an outcome of the store, after which no hits are left.
pub(crate) fn outcome(allowed: bool, retry_after: Option<Micros>) -> Outcome {
    let report = Report { remaining: 0, beyond: 0, window: 0, reset_after: None, retry_after };
    Outcome { allowed, report, by: JudgedBy::Store, hold: HoldEffect::Nothing }
}
