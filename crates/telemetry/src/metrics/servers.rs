//! Metrics that the store's servers report about themselves.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabels {
    node: String,
    replica: String,
}

/// Metrics that the store's servers report about themselves, by server address.
#[derive(Debug, Default)]
pub struct Servers {
    evicted_keys: Family<NodeLabels, Gauge>,
    clock_offset: Family<NodeLabels, Gauge<f64, AtomicU64>>,
    replica_clock_offset: Family<ReplicaLabels, Gauge<f64, AtomicU64>>,
}

impl Servers {
    /// Sets the number of keys that a server has evicted, and the seconds by which its clock is
    /// ahead of this process's clock.
    pub fn set(&self, node: &str, evicted_keys: u64, clock_offset: f64) {
        let labels = NodeLabels { node: node.to_owned() };
        self.evicted_keys
            .get_or_create(&labels)
            .set(i64::try_from(evicted_keys).unwrap_or(i64::MAX));
        self.clock_offset.get_or_create(&labels).set(clock_offset);
    }

    /// Removes the series of a server that no longer belongs to the store.
    pub fn forget(&self, node: &str) {
        let labels = NodeLabels { node: node.to_owned() };
        self.evicted_keys.remove(&labels);
        self.clock_offset.remove(&labels);
    }

    /// Sets the seconds by which a replica's clock is ahead of its server's clock.
    pub fn set_replica(&self, node: &str, replica: &str, clock_offset: f64) {
        let labels = ReplicaLabels { node: node.to_owned(), replica: replica.to_owned() };
        self.replica_clock_offset.get_or_create(&labels).set(clock_offset);
    }

    /// Removes the series of a replica whose clock offset is no longer known.
    pub fn forget_replica(&self, node: &str, replica: &str) {
        let labels = ReplicaLabels { node: node.to_owned(), replica: replica.to_owned() };
        self.replica_clock_offset.remove(&labels);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let evicted =
            "Number of keys evicted by a store server since its start, possibly including counters";
        registry.register("store_evicted_keys", evicted, self.evicted_keys.clone());
        let offset = "Seconds by which a store server's clock is ahead of this process's clock, within the round-trip time";
        registry.register_with_unit(
            "store_clock_offset",
            offset,
            Unit::Seconds,
            self.clock_offset.clone(),
        );
        let offset = "Seconds by which a replica's clock is ahead of its master's clock, within the round-trip time";
        let family = self.replica_clock_offset.clone();
        registry.register_with_unit("store_replica_clock_offset", offset, Unit::Seconds, family);
    }
}
