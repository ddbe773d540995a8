//! Estimated server time of checks, which bounds what one call contains.

use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::{Algorithm, Limit};

/// Server time in microseconds, as measured: of any check; of each window of a sliding window; of a
/// log, plus one for each [`LOG_HITS_A_US`] hits of its limit.
const CHECK_US: u32 = 4;
const SLIDING_US: u32 = 5;
const LOG_US: u32 = 6;
const LOG_HITS_A_US: u32 = 50;
/// Additional server time of a change of one counter.
pub(super) const CHANGE_US: u32 = 8;

/// Returns the server time of a check in microseconds.
pub(super) fn cost_us(limit: &Limit) -> u32 {
    match limit.algorithm() {
        Algorithm::FixedWindow(_) | Algorithm::Gcra(_) => CHECK_US,
        // Every permit is read.
        Algorithm::Concurrency(permits) => CHECK_US.saturating_add(permits.in_flight()),
        Algorithm::SlidingWindow(_) => limit.windows().iter().map(|_| SLIDING_US).sum(),
        Algorithm::SlidingLog(_) => {
            let most = limit.windows().iter().map(Window::limit).max().unwrap_or_default();
            LOG_US.saturating_add(most / LOG_HITS_A_US)
        }
    }
}
