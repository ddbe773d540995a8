//! Every metric of the process.
//!
//! Rules look their counters up once, when a policy is installed; a request only adds. Labels are rules, nodes of the store and
//! words of ours, never what requests bring: the number of series is bounded.
//!
//! | file | what it knows |
//! |---|---|
//! | `names` | what each metric is called, and what it says |
//! | `exceptions` | what breaks the promise, as far as it can be seen |
//! | `rules` | the counters of rules, bounded |
//! | `leases` | what is taken in advance |
//! | `latency` | histograms of which each worker writes a part |
//! | `servers` | what servers of the store report of themselves |
//! | `process` | what the system says of this process |
//! | `exposition` | the text formats |

mod exceptions;
mod exposition;
mod latency;
mod leases;
mod names;
mod process;
mod rules;
mod servers;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use self::exceptions::Exceptions;
use self::latency::Latencies;
pub use self::latency::Latency;
pub use self::leases::Leases;
pub use self::process::Process;
pub use self::rules::RuleMetrics;
use self::rules::Rules;
pub use self::servers::Servers;
use super::candidates::Candidates;
use super::guard::Guard;
use super::stats::Stats;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    kind: &'static str,
}

/// How long calls take.
const CALL_DURATION: &str = "call_duration";
/// What becomes of an attempt to load.
const LOADED: &str = "loaded";
const REFUSED: &str = "refused";

/// What the journal of denials takes and costs.
#[derive(Debug, Default)]
pub struct JournalMetrics {
    /// Bytes that it takes.
    pub bytes: Gauge,
    /// Denials for which it had no room.
    pub dropped: Counter,
    /// Keys in it that went for others.
    pub replaced: Counter,
}

/// What metrics are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How many rules have series of their own.
    pub max_rules: usize,
    /// The part of a limit above which what is allowed is near it.
    pub near_limit_ratio: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_rules: 10_000, near_limit_ratio: 0.8 }
    }
}

/// The process's metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    options: Options,
    rules: Rules,
    calls: Arc<Latencies>,
    node_calls: Arc<Latencies>,
    /// What limits that are tried out would have done.
    pub candidates: Candidates,
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
    /// What is taken in advance.
    pub leases: Leases,
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
    /// When policies were last put in force, in seconds since the epoch.
    policy_loaded_at: Gauge,
    /// What breaks the promise.
    pub exceptions: Exceptions,
    /// What the journal of denials takes and costs.
    pub journal: JournalMetrics,
    /// What servers of the store report of themselves.
    pub servers: Servers,
    /// What is kept out.
    pub guard: Guard,
    stats: Option<Arc<Stats>>,
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
        Self::with(Options::default(), stats)
    }

    /// The same, with options.
    pub fn with(options: Options, stats: Option<Stats>) -> Arc<Self> {
        let (deny_cache_hits, deny_cache_misses) = (Counter::default(), Counter::default());
        let store_connections = Gauge::default();
        let stats = stats.map(|stats| with_gauges(stats, &deny_cache_hits, &deny_cache_misses, &store_connections));
        let metrics = Self {
            registry: Mutex::default(),
            options,
            rules: Rules::new(options.max_rules),
            calls: Latencies::new(CALL_DURATION, "Time from a request to its answer", ""),
            node_calls: Latencies::new("store_call_duration", "Time from a question to a server to its answer", "node"),
            candidates: Candidates::new(options.max_rules),
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
            leases: Leases::default(),
            xds_connected: Gauge::default(),
            xds_reconnects: Counter::default(),
            replicas: Gauge::default(),
            store_connections,
            store_connects: Counter::default(),
            memory_counters: Gauge::default(),
            memory_bytes: Gauge::default(),
            policy_loaded_at: Gauge::default(),
            exceptions: Exceptions::default(),
            journal: JournalMetrics::default(),
            servers: Servers::default(),
            guard: Guard::default(),
            stats,
        };
        metrics.register();
        metrics.show_kinds();
        Arc::new(metrics)
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

    /// What metrics are kept.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The counters of one rule; the same ones after a reload. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> RuleMetrics {
        self.rules.of(domain, rule)
    }

    /// Forgets the series of all rules but these, which are domains and paths.
    pub fn keep_rules(&self, rules: &HashSet<(&str, &str)>) {
        self.rules.keep(rules);
    }

    /// Where a worker takes down how long its calls take.
    pub fn call_latency(&self) -> Arc<Latency> {
        self.calls.part("")
    }

    /// Where a worker takes down how long a server of the store takes; the series goes when no worker has it any more.
    pub fn node_latency(&self, node: &str) -> Arc<Latency> {
        self.node_calls.part(node)
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
        if loaded {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.policy_loaded_at.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        }
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

    /// All metrics in the OpenMetrics text format, with exemplars of calls that are traced.
    ///
    /// # Errors
    /// Where the text cannot be written, which a string always can.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let name = format!("tollgate_{CALL_DURATION}_seconds");
        self.encode().map(|text| exposition::with_exemplars(&text, &name, &self.calls.exemplars("")))
    }

    /// The same in the older text format of Prometheus, for readers that do not ask for the other.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_plain(&self) -> Result<String, std::fmt::Error> {
        self.encode().map(|text| exposition::plain(&text))
    }

    fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

/// The statistics that show what is counted here already.
fn with_gauges(stats: Stats, hits: &Counter, misses: &Counter, connections: &Gauge) -> Arc<Stats> {
    let read = |counter: &Counter| {
        let counter = counter.clone();
        move || i64::try_from(counter.get()).unwrap_or(i64::MAX)
    };
    let (hits, misses, connections) = (read(hits), read(misses), connections.clone());
    let (found, sought) = (hits.clone(), misses.clone());
    let stats = stats
        .with_gauge("ratelimit.localcache.hitCount", hits)
        .with_gauge("ratelimit.localcache.missCount", misses)
        .with_gauge("ratelimit.localcache.lookupCount", move || found().saturating_add(sought()))
        .with_gauge("ratelimit.redis_pool.cx_active", move || connections.get());
    Arc::new(stats)
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
