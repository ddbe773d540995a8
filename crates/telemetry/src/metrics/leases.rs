//! Metrics of leases, the hits charged in advance.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of leases.
#[derive(Debug, Default)]
pub struct LeaseMetrics {
    /// Blocks of hits charged in advance.
    pub blocks: Counter,
    /// Used hits of blocks, counted when the block ends.
    pub used: Counter,
    /// Unused hits of ended blocks: returned, or expired with their window.
    pub unused: Counter,
    /// Hits of blocks that may have been charged, and hits that could not be returned.
    pub lost: Counter,
    /// Hits of the blocks held now.
    pub outstanding: Gauge,
}

impl LeaseMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "lease_blocks",
            "Number of blocks of hits leased in advance",
            self.blocks.clone(),
        );
        let used = "Number of hits of ended leases that were used";
        registry.register("lease_hits_used", used, self.used.clone());
        let unused = "Number of hits of ended leases that were unused: returned, or expired with their window";
        registry.register("lease_hits_unused", unused, self.unused.clone());
        let lost =
            "Number of leased hits lost: possibly charged but never received, or not returned";
        registry.register("lease_hits_lost", lost, self.lost.clone());
        let outstanding = "Number of hits in current leases";
        registry.register("lease_hits_outstanding", outstanding, self.outstanding.clone());
    }
}
