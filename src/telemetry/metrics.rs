//! Every metric's name, labels and meaning.
//!
//! Rules look their counters up once, when a policy is installed; a request only adds.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::guard::Guard;
use super::plain;
use super::spans::SpanMetrics;
use super::stats::Stats;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    domain: String,
    rule: String,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
enum Outcome {
    allowed,
    denied,
    shadow_denied,
    unlimited,
    presumed_allowed,
    presumed_denied,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    kind: &'static str,
}

/// What becomes of an attempt to load.
const LOADED: &str = "loaded";
const REFUSED: &str = "refused";

/// The process's metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    decisions: Family<RuleLabels, Counter>,
    store_errors: Family<ErrorLabels, Counter>,
    reloads: Family<ErrorLabels, Counter>,
    tls_loads: Family<ErrorLabels, Counter>,
    tls_handshake_failures: Family<ErrorLabels, Counter>,
    policy_is_refused: Gauge,
    tls_is_refused: Gauge,
    unknown_domain: Counter,
    invalid_requests: Counter,
    /// Charges that were undone because another slot denied or failed.
    pub take_backs: Counter,
    /// Those of them that could not be undone.
    pub take_backs_lost: Counter,
    /// Charges of which it is not known whether they were written.
    pub unknown_charges: Counter,
    /// Denied hits that were to be written, and were not for too much was under way.
    pub dropped_charges: Counter,
    /// Checks that this process decided alone, by its share of the limit.
    pub local_decisions: Counter,
    /// Checks that a remembered denial answered.
    pub deny_cache_hits: Counter,
    /// Checks that none did, where denials are remembered.
    pub deny_cache_misses: Counter,
    /// Blocks of hits that were taken in advance.
    pub lease_blocks: Counter,
    /// Hits of blocks that were used, counted when their block ends.
    pub lease_hits_used: Counter,
    /// Those that were not: given back, or gone with their window.
    pub lease_hits_unused: Counter,
    /// Those of which it is not known whether they were charged, and those that could not be given back.
    pub lease_hits_lost: Counter,
    /// Hits of the blocks that are held now.
    pub lease_hits_outstanding: Gauge,
    /// 1 while there is a connection to the control plane.
    pub xds_connected: Gauge,
    /// Attempts to connect to it after the first.
    pub xds_reconnects: Counter,
    /// Processes that share the store, as far as is known.
    pub replicas: Gauge,
    store_connections: Gauge,
    store_connects: Counter,
    /// Counters in the memory store.
    pub memory_counters: Gauge,
    /// Bytes that they take.
    pub memory_bytes: Gauge,
    /// What is kept out.
    pub guard: Guard,
    /// What becomes of spans.
    pub spans: SpanMetrics,
    stats: Option<Arc<Stats>>,
}

/// The counters of one rule: descriptors that came to it, by what became of them.
#[derive(Debug)]
pub struct RuleMetrics {
    /// There was room.
    pub allowed: Counter,
    /// There was none.
    pub denied: Counter,
    /// There was none, and the rule only watches.
    pub shadow_denied: Counter,
    /// The rule says that there is no limit.
    pub unlimited: Counter,
    /// The store failed, and the limit let pass.
    pub presumed_allowed: Counter,
    /// The store failed, and the limit denied.
    pub presumed_denied: Counter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Arc<Self> {
        Self::with_stats(None)
    }

    /// The same, with the statistics of envoyproxy/ratelimit where somebody wants them.
    pub fn with_stats(stats: Option<Stats>) -> Arc<Self> {
        let (deny_cache_hits, deny_cache_misses) = (Counter::default(), Counter::default());
        let read = |counter: &Counter| {
            let counter = counter.clone();
            move || i64::try_from(counter.get()).unwrap_or(i64::MAX)
        };
        let (hits, misses) = (read(&deny_cache_hits), read(&deny_cache_misses));
        let (found, sought) = (hits.clone(), misses.clone());
        let store_connections = Gauge::default();
        let connected = store_connections.clone();
        let stats = stats.map(|stats| {
            let stats = stats
                .with_gauge("ratelimit.localcache.hitCount", hits)
                .with_gauge("ratelimit.localcache.missCount", misses)
                .with_gauge("ratelimit.localcache.lookupCount", move || found().saturating_add(sought()));
            Arc::new(stats.with_gauge("ratelimit.redis_pool.cx_active", move || connected.get()))
        });
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("tollgate")),
            decisions: Family::default(),
            store_errors: Family::default(),
            reloads: Family::default(),
            tls_loads: Family::default(),
            tls_handshake_failures: Family::default(),
            policy_is_refused: Gauge::default(),
            tls_is_refused: Gauge::default(),
            unknown_domain: Counter::default(),
            invalid_requests: Counter::default(),
            take_backs: Counter::default(),
            take_backs_lost: Counter::default(),
            unknown_charges: Counter::default(),
            dropped_charges: Counter::default(),
            local_decisions: Counter::default(),
            deny_cache_hits,
            deny_cache_misses,
            lease_blocks: Counter::default(),
            lease_hits_used: Counter::default(),
            lease_hits_unused: Counter::default(),
            lease_hits_lost: Counter::default(),
            lease_hits_outstanding: Gauge::default(),
            xds_connected: Gauge::default(),
            xds_reconnects: Counter::default(),
            replicas: Gauge::default(),
            store_connections,
            store_connects: Counter::default(),
            memory_counters: Gauge::default(),
            memory_bytes: Gauge::default(),
            guard: Guard::default(),
            spans: SpanMetrics::default(),
            stats,
        };
        metrics.register();
        metrics.show_kinds();
        Arc::new(metrics)
    }

    fn register(&self) {
        let mut registry = self.registry.lock();
        registry.register("decisions", "Descriptors decided, by rule and outcome", self.decisions.clone());
        registry.register("store_errors", "Checks that the store could not judge, by kind", self.store_errors.clone());
        registry.register("policy_loads", "Attempts to load the policies, by result", self.reloads.clone());
        let refused = "1 while the policies as they are now are refused, and older ones or none are in force";
        registry.register("policy_refused", refused, self.policy_is_refused.clone());
        let loads = "Attempts to load the certificates of the gRPC listener, by result";
        registry.register("tls_loads", loads, self.tls_loads.clone());
        let refused = "1 while the certificates as they are now are refused, and older ones are in force";
        registry.register("tls_refused", refused, self.tls_is_refused.clone());
        let failures = "Handshakes of the gRPC listener that failed, by kind";
        registry.register("tls_handshake_failures", failures, self.tls_handshake_failures.clone());
        let unknown = "Requests of a domain that no policy is for";
        registry.register("unknown_domain_requests", unknown, self.unknown_domain.clone());
        let invalid = "Requests answered INVALID_ARGUMENT";
        registry.register("invalid_requests", invalid, self.invalid_requests.clone());
        let undone = "Charges undone because another slot denied or failed";
        registry.register("take_backs", undone, self.take_backs.clone());
        let lost = "Charges that should have been undone and could not be";
        registry.register("take_backs_lost", lost, self.take_backs_lost.clone());
        let unknown = "Charges of which it is not known whether they were written";
        registry.register("unknown_charges", unknown, self.unknown_charges.clone());
        let dropped = "Denied hits that were to be written, and were not for too much was under way";
        registry.register("dropped_charges", dropped, self.dropped_charges.clone());
        let local = "Checks decided by this process alone, by its share of the limit, while the store was away";
        registry.register("local_decisions", local, self.local_decisions.clone());
        let remembered = "Checks that a remembered denial answered";
        registry.register("deny_cache_hits", remembered, self.deny_cache_hits.clone());
        let asked = "Checks that no remembered denial answered, where denials are remembered";
        registry.register("deny_cache_misses", asked, self.deny_cache_misses.clone());
        self.register_leases(&mut registry);
        self.guard.register(&mut registry);
        self.spans.register(&mut registry);
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

    fn register_leases(&self, registry: &mut Registry) {
        registry.register("lease_blocks", "Blocks of hits taken in advance", self.lease_blocks.clone());
        let used = "Hits of ended blocks that were used, without asking the store";
        registry.register("lease_hits_used", used, self.lease_hits_used.clone());
        let unused = "Hits of ended blocks that were not: given back, or gone with their window";
        registry.register("lease_hits_unused", unused, self.lease_hits_unused.clone());
        let lost = "Hits of blocks that were perhaps charged and never held, or could not be given back";
        registry.register("lease_hits_lost", lost, self.lease_hits_lost.clone());
        let outstanding = "Hits of the blocks that are held";
        registry.register("lease_hits_outstanding", outstanding, self.lease_hits_outstanding.clone());
    }

    /// Shows a kind of store error at zero, before there is one: a rate of what appears with its first event misses that one.
    pub fn show_store_error(&self, kind: &'static str) {
        drop(self.store_errors.get_or_create(&ErrorLabels { kind }));
    }

    /// The same for what is known here.
    fn show_kinds(&self) {
        for family in [&self.reloads, &self.tls_loads] {
            for kind in [LOADED, REFUSED] {
                drop(family.get_or_create(&ErrorLabels { kind }));
            }
        }
    }

    /// The counters of one rule; the same ones after a reload.
    pub fn of_rule(&self, domain: &str, rule: &str) -> RuleMetrics {
        let counter = |outcome| {
            let labels = RuleLabels { domain: domain.to_owned(), rule: rule.to_owned(), outcome };
            self.decisions.get_or_create(&labels).clone()
        };
        RuleMetrics {
            allowed: counter(Outcome::allowed),
            denied: counter(Outcome::denied),
            shadow_denied: counter(Outcome::shadow_denied),
            unlimited: counter(Outcome::unlimited),
            presumed_allowed: counter(Outcome::presumed_allowed),
            presumed_denied: counter(Outcome::presumed_denied),
        }
    }

    /// Counts a request of a domain that no policy is for.
    pub fn unknown_domain(&self, domain: &str) {
        self.unknown_domain.inc();
        if let Some(stats) = self.stats() {
            stats.domain_not_found(domain);
        }
    }

    /// Counts a request that could not be read, or asked for what cannot be.
    pub fn invalid_request(&self) {
        self.invalid_requests.inc();
        if let Some(stats) = self.stats() {
            stats.service.service_error.add(1);
        }
    }

    /// Counts a connection to a server of the store, from here to [`disconnected`](Self::disconnected).
    pub fn connected(&self) {
        self.store_connections.inc();
        self.store_connects.inc();
        if let Some(stats) = self.stats() {
            stats.service.cx_total.add(1);
        }
    }

    /// The connection is gone.
    pub fn disconnected(&self) {
        self.store_connections.dec();
        if let Some(stats) = self.stats() {
            stats.service.cx_local_close.add(1);
        }
    }

    /// Counts a check that the store could not judge.
    pub fn store_error(&self, kind: &'static str) {
        self.store_errors.get_or_create(&ErrorLabels { kind }).inc();
    }

    /// The statistics of envoyproxy/ratelimit, where they are on.
    pub fn stats(&self) -> Option<&Arc<Stats>> {
        self.stats.as_ref()
    }

    /// Counts an attempt to load the policies.
    pub fn policy_load(&self, loaded: bool) {
        if let Some(stats) = self.stats() {
            let service = &stats.service;
            if loaded { &service.config_load_success } else { &service.config_load_error }.add(1);
        }
        self.reloads.get_or_create(&ErrorLabels { kind: if loaded { LOADED } else { REFUSED } }).inc();
        self.policy_is_refused.set(i64::from(!loaded));
    }

    /// Counts an attempt to load the certificates of the gRPC listener.
    pub fn tls_load(&self, loaded: bool) {
        self.tls_loads.get_or_create(&ErrorLabels { kind: if loaded { LOADED } else { REFUSED } }).inc();
        self.tls_is_refused.set(i64::from(!loaded));
    }

    /// Counts a handshake that failed.
    pub fn tls_handshake_failed(&self, kind: &'static str) {
        self.tls_handshake_failures.get_or_create(&ErrorLabels { kind }).inc();
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// Where the text cannot be written, which a string always can.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// The same in the older text format of Prometheus, for readers that do not ask for the other.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_plain(&self) -> Result<String, std::fmt::Error> {
        self.render().map(|text| plain::of(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_loaded_and_refused_is_shown_before_either_happened() {
        let metrics = Metrics::new();
        let shows = |line: &str| metrics.render().unwrap().lines().any(|shown| shown == line);
        assert!(shows("tollgate_policy_loads_total{kind=\"refused\"} 0") && shows("tollgate_policy_refused 0"));
        metrics.policy_load(false);
        assert!(shows("tollgate_policy_loads_total{kind=\"refused\"} 1") && shows("tollgate_policy_refused 1"));
        metrics.policy_load(true);
        assert!(shows("tollgate_policy_loads_total{kind=\"loaded\"} 1") && shows("tollgate_policy_refused 0"));
    }
}
