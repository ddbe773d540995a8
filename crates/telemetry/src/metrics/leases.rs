//! Metrics of leases, the hits charged in advance.

use crate::count::{Counter, Gauge};
use crate::snapshot::MetricsSnapshot;

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
    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        out.counter("lease_blocks", "Number of blocks of hits leased in advance.", &self.blocks);
        let used = "Number of hits of ended leases that were used.";
        out.counter("lease_hits_used", used, &self.used);
        let unused = "Number of hits of ended leases that were unused: returned, or expired with their window.";
        out.counter("lease_hits_unused", unused, &self.unused);
        let lost =
            "Number of leased hits lost: possibly charged but never received, or not returned.";
        out.counter("lease_hits_lost", lost, &self.lost);
        let outstanding = "Number of hits in current leases.";
        out.gauge("lease_hits_outstanding", outstanding, &self.outstanding);
    }
}
