//! Observable exceptions to the promise that admitted hits never exceed a limit.
//!
//! Other exceptions show in `decisions` with the outcome `presumed_allowed`, `local_decisions`,
//! `unknown_charges`, `take_backs_lost`, `store_evicted_keys` and `store_clock_offset_seconds`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters of observable exceptions to the promise that admitted hits never exceed a limit.
#[derive(Debug, Default)]
pub struct Exceptions {
    /// Refunded hits.
    pub refunded_hits: Counter,
    /// Hits charged past a limit with costs that are known only afterwards.
    pub overrun_hits: Counter,
    /// Hits admitted by a weighted estimate.
    pub estimated_hits: Counter,
    /// Observed restarts of the store's servers.
    pub store_restarts: Counter,
}

impl Exceptions {
    pub(super) fn register(&self, registry: &mut Registry) {
        let refunded = "Number of hits refunded by callers; a retried refund counts twice";
        registry.register("refunded_hits", refunded, self.refunded_hits.clone());
        let overrun =
            "Number of hits charged beyond their limit because the cost was known only afterwards";
        registry.register("overrun_hits", overrun, self.overrun_hits.clone());
        let estimated = "Number of hits admitted by a weighted estimate of usage";
        registry.register("estimated_hits", estimated, self.estimated_hits.clone());
        let restarts = "Number of observed store server restarts; each loses the counters that were not persisted";
        registry.register("store_restarts", restarts, self.store_restarts.clone());
    }
}
