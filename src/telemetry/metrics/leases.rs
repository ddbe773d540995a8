//! What is taken in advance, and what becomes of it.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Its metrics.
#[derive(Debug, Default)]
pub struct Leases {
    /// Blocks of hits that were taken in advance.
    pub blocks: Counter,
    /// Hits of blocks that were used, counted when their block ends.
    pub used: Counter,
    /// Those that were not: given back, or gone with their window.
    pub unused: Counter,
    /// Those of which it is not known whether they were charged, and those that could not be given back.
    pub lost: Counter,
    /// Hits of the blocks that are held now.
    pub outstanding: Gauge,
}

impl Leases {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("lease_blocks", "Blocks of hits taken in advance", self.blocks.clone());
        let used = "Hits of ended blocks that were used, without asking the store";
        registry.register("lease_hits_used", used, self.used.clone());
        let unused = "Hits of ended blocks that were not: given back, or gone with their window";
        registry.register("lease_hits_unused", unused, self.unused.clone());
        let lost = "Hits of blocks that were perhaps charged and never held, or could not be given back";
        registry.register("lease_hits_lost", lost, self.lost.clone());
        let outstanding = "Hits of the blocks that are held";
        registry.register("lease_hits_outstanding", outstanding, self.outstanding.clone());
    }
}
