//! Names and help texts of all metrics.

use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::registry::{Registry, Unit};

use super::{Metrics, Process};

impl Metrics {
    pub(super) fn register(&self) {
        let mut registry = self.registry.lock();
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        registry.register_collector(Box::new(Process { begun }));
        let registry = registry.sub_registry_with_prefix("tollgate");
        self.rules.register(registry);
        self.candidates.register(registry);
        self.exceptions.register(registry);
        self.guard.register(registry);
        self.http.register(registry);
        self.servers.register(registry);
        self.register_observation(registry);
        registry.register_collector(Box::new(Arc::clone(&self.calls)));
        registry.register_collector(Box::new(Arc::clone(&self.node_calls)));
        registry.register("store_errors", "Checks that the store could not judge, by kind", self.store_errors.clone());
        registry.register("policy_loads", "Attempts to load the policies, by result", self.reloads.clone());
        let refused = "1 while the policies as they are now are refused, and older ones or none are in force";
        registry.register("policy_refused", refused, self.policy_is_refused.clone());
        let loads = "Attempts to load the certificates of listeners, by result";
        registry.register("tls_loads", loads, self.tls_loads.clone());
        let refused = "1 while the certificates as they are now are refused, and older ones are in force";
        registry.register("tls_refused", refused, self.tls_is_refused.clone());
        let failures = "Handshakes of the gRPC listener that failed, by kind";
        registry.register("tls_handshake_failures", failures, self.tls_handshake_failures.clone());
        let unknown = "Requests of a domain that no policy is for";
        registry.register("unknown_domain_requests", unknown, self.unknown_domain.clone());
        let invalid = "Requests answered INVALID_ARGUMENT";
        registry.register("invalid_requests", invalid, self.invalid_requests.clone());
        let undone = "Charges undone because another slot or this process denied or failed";
        registry.register("take_backs", undone, self.take_backs.clone());
        let lost = "Charges that should have been undone and could not be";
        registry.register("take_backs_lost", lost, self.take_backs_lost.clone());
        let unknown = "Charges of which it is not known whether they were written";
        registry.register("unknown_charges", unknown, self.unknown_charges.clone());
        let dropped = "Denied hits that were to be written, and were not for too much was under way";
        registry.register("dropped_charges", dropped, self.dropped_charges.clone());
        let local = "Checks decided by this process alone, by its share of the limit, as the store could not";
        registry.register("local_decisions", local, self.local_decisions.clone());
        let remembered = "Checks that a remembered denial answered";
        registry.register("deny_cache_hits", remembered, self.deny_cache_hits.clone());
        let asked = "Checks that no remembered denial answered, where denials are remembered";
        registry.register("deny_cache_misses", asked, self.deny_cache_misses.clone());
        self.leases.register(registry);
        let connected = "1 while there is a connection to the control plane";
        registry.register("xds_connected", connected, self.xds_connected.clone());
        let again = "Attempts to connect to the control plane after the first";
        registry.register("xds_reconnects", again, self.xds_reconnects.clone());
        registry.register("replicas", "Processes heard of in the store", self.replicas.clone());
        let connections = "Connections to servers of the store";
        registry.register("store_connections", connections, self.store_connections.clone());
        let connects = "Connections to servers of the store that were made";
        registry.register("store_connects", connects, self.store_connects.clone());
        registry.register("memory_store_counters", "Counters in the memory store", self.memory_counters.clone());
        registry.register("memory_store_bytes", "Bytes that those counters take", self.memory_bytes.clone());
    }

    fn register_observation(&self, registry: &mut Registry) {
        let loaded = "When policies were last put in force, since the epoch";
        registry.register_with_unit("policy_loaded_timestamp", loaded, Unit::Seconds, self.policy_loaded_at.clone());
        let bytes = "Bytes that the journal of denials takes";
        registry.register("journal_bytes", bytes, self.journal.bytes.clone());
        let dropped = "Denials that the journal had no room for";
        registry.register("journal_dropped_denials", dropped, self.journal.dropped.clone());
        let replaced = "Keys that went from the journal for others";
        registry.register("journal_replaced_keys", replaced, self.journal.replaced.clone());
    }
}
