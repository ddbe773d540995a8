//! Metrics that the store's servers report about themselves.

use crate::count::{FloatGauge, Gauge};
use crate::family::Family;
use crate::snapshot::MetricsSnapshot;

/// Metrics that the store's servers report about themselves, by server address.
#[derive(Debug, Default)]
pub struct Servers {
    evicted_keys: Family<Gauge, 1>,
    clock_offset: Family<FloatGauge, 1>,
    /// By the addresses of the server and of the replica.
    replica_clock_offset: Family<FloatGauge, 2>,
}

impl Servers {
    /// Sets the number of keys that a server has evicted, and the seconds by which its clock is
    /// ahead of this process's clock.
    pub fn set(&self, node: &str, evicted_keys: u64, clock_offset: f64) {
        let evicted_keys = i64::try_from(evicted_keys).unwrap_or(i64::MAX);
        self.evicted_keys.of([node.to_owned()]).set(evicted_keys);
        self.clock_offset.of([node.to_owned()]).set(clock_offset);
    }

    /// Removes the series of a server that no longer belongs to the store.
    pub fn forget(&self, node: &str) {
        self.evicted_keys.remove([node.to_owned()]);
        self.clock_offset.remove([node.to_owned()]);
    }

    /// Sets the seconds by which a replica's clock is ahead of its server's clock.
    pub fn set_replica(&self, node: &str, replica: &str, clock_offset: f64) {
        self.replica_clock_offset.of([node, replica].map(str::to_owned)).set(clock_offset);
    }

    /// Removes the series of a replica whose clock offset is no longer known.
    pub fn forget_replica(&self, node: &str, replica: &str) {
        self.replica_clock_offset.remove([node, replica].map(str::to_owned));
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let evicted = "Number of keys evicted by a store server since its start, possibly including counters.";
        out.gauges("store_evicted_keys", evicted, self.evicted_keys.series(["node"]));
        let offset = "Seconds by which a store server's clock is ahead of this process's clock, within the round-trip time.";
        out.gauges("store_clock_offset_seconds", offset, self.clock_offset.series(["node"]));
        let offset = "Seconds by which a replica's clock is ahead of its master's clock, within the round-trip time.";
        let series = self.replica_clock_offset.series(["node", "replica"]);
        out.gauges("store_replica_clock_offset_seconds", offset, series);
    }
}
