//! Observable exceptions to the promise that admitted hits never exceed a limit.
//!
//! Other exceptions show in `decisions` with the outcome `presumed_allowed`, `local_decisions`,
//! `unknown_charges`, `take_backs_lost`, `store_restarts`, `store_evicted_keys` and
//! `store_clock_offset_seconds`.

use crate::count::Counter;
use crate::snapshot::MetricsSnapshot;

/// Counters of observable exceptions to the promise that admitted hits never exceed a limit.
#[derive(Debug, Default)]
pub struct Exceptions {
    /// Refunded hits.
    pub refunded_hits: Counter,
    /// Hits charged past a limit with costs that are known only afterwards.
    pub overrun_hits: Counter,
    /// Hits admitted by a weighted estimate.
    pub estimated_hits: Counter,
}

impl Exceptions {
    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let refunded = "Number of hits refunded by callers; a retried refund counts twice.";
        out.counter("refunded_hits", refunded, &self.refunded_hits);
        let overrun =
            "Number of hits charged beyond their limit because the cost was known only afterwards.";
        out.counter("overrun_hits", overrun, &self.overrun_hits);
        let estimated = "Number of hits admitted by a weighted estimate of usage.";
        out.counter("estimated_hits", estimated, &self.estimated_hits);
    }
}
