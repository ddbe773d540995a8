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
        self.holds.register(registry);
        self.clients.register(registry);
        self.http.register(registry);
        self.servers.register(registry);
        self.register_observation(registry);
        registry.register_collector(Box::new(Arc::clone(&self.calls)));
        registry.register_collector(Box::new(Arc::clone(&self.node_calls)));
        registry.register(
            "store_errors",
            "Number of checks that failed in the store, by kind",
            self.store_errors.clone(),
        );
        registry.register(
            "policy_loads",
            "Number of policy loads, by result",
            self.policy_loads.clone(),
        );
        let help = "1 if the last policy load was refused, so that older policies or none are in force; otherwise 0";
        registry.register("policy_refused", help, self.policy_is_refused.clone());
        let help = "Number of certificate loads of listeners, by result";
        registry.register("tls_loads", help, self.tls_loads.clone());
        let help = "1 if the last certificate load was refused, so that older certificates are in force; otherwise 0";
        registry.register("tls_refused", help, self.tls_is_refused.clone());
        let help = "Number of failed TLS handshakes on the gRPC listener, by kind";
        registry.register("tls_handshake_failures", help, self.tls_handshake_failures.clone());
        let help = "Number of requests for a domain without a policy";
        registry.register("unknown_domain_requests", help, self.unknown_domain.clone());
        let help = "Number of requests refused with INVALID_ARGUMENT";
        registry.register("invalid_requests", help, self.invalid_requests.clone());
        let help =
            "Number of charges taken back because another slot or this process denied or failed";
        registry.register("take_backs", help, self.take_backs.clone());
        let help = "Number of charges that could not be taken back";
        registry.register("take_backs_lost", help, self.take_backs_lost.clone());
        let help = "Number of charges that may or may not have been written";
        registry.register("unknown_charges", help, self.unknown_charges.clone());
        let help =
            "Number of charges of denied hits not written because too many writes were in flight";
        registry.register("dropped_charges", help, self.dropped_charges.clone());
        let help = "Number of checks decided by this process alone, within its share of the limit, after a store error";
        registry.register("local_decisions", help, self.local_decisions.clone());
        let help = "Number of checks answered by a cached denial";
        registry.register("deny_cache_hits", help, self.deny_cache_hits.clone());
        let help = "Number of checks without a cached denial, if denials are cached";
        registry.register("deny_cache_misses", help, self.deny_cache_misses.clone());
        self.leases.register(registry);
        self.loans.register(registry);
        let help = "1 if connected to the control plane; otherwise 0";
        registry.register("xds_connected", help, self.xds_connected.clone());
        let help = "Number of connection attempts to the control plane after the first";
        registry.register("xds_reconnects", help, self.xds_reconnects.clone());
        self.register_store(registry);
    }

    fn register_store(&self, registry: &mut Registry) {
        registry.register(
            "replicas",
            "Number of replicas registered in the store",
            self.replicas.clone(),
        );
        let help = "Number of open connections to store servers";
        registry.register("store_connections", help, self.store_connections.clone());
        let help = "Number of connections made to store servers";
        registry.register("store_connects", help, self.store_connects.clone());
    }

    fn register_observation(&self, registry: &mut Registry) {
        let help = "Time of the last successful policy load since the Unix epoch in seconds";
        registry.register_with_unit(
            "policy_loaded_timestamp",
            help,
            Unit::Seconds,
            self.policy_loaded_at.clone(),
        );
        let help = "Memory used by the journal of denials in bytes";
        registry.register("journal_bytes", help, self.journal.bytes.clone());
        let help = "Number of denials dropped because the journal was full";
        registry.register("journal_dropped_denials", help, self.journal.dropped.clone());
        let help = "Number of keys evicted from the journal in favor of others";
        registry.register("journal_replaced_keys", help, self.journal.replaced.clone());
        registry.register(
            "memory_store_counters",
            "Number of counters in the memory store",
            self.memory_counters.clone(),
        );
        registry.register(
            "memory_store_bytes",
            "Memory used by the counters of the memory store in bytes",
            self.memory_bytes.clone(),
        );
    }
}
