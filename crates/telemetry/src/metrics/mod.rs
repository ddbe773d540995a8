//! All metrics of the process.
//!
//! Rules resolve their counters once, when a policy is installed, so a request only increments.
//! Label values are rules, nodes of the store and fixed words, never request data, so the number of
//! series is bounded.
//!
//! | file | contents |
//! |---|---|
//! | `cost_ratio` | costs of committed holds relative to their reserved hits |
//! | `names` | names and help texts of all metrics |
//! | `exceptions` | observable exceptions to the promise |
//! | `holds` | charges that are corrected later, bounded |
//! | `rules` | counters of rules, bounded |
//! | `leases`, `loans`, `quotas` | hits charged in advance: by this process, for others |
//! | `latency` | histograms with one part per worker |
//! | `servers` | metrics that the store's servers report |
//! | `stat_gauges` | gauges in the statistics of envoyproxy/ratelimit |
//! | `undecided` | store errors of rules, by kind and effect |
//! | `process` | process metrics from the operating system |
//! | `exposition` | text formats |

mod cost_ratio;
mod exceptions;
mod exposition;
mod holds;
mod latency;
mod leases;
mod loans;
mod names;
mod process;
mod quotas;
mod rules;
mod servers;
mod stat_gauges;
mod undecided;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use self::cost_ratio::{CostRatio, EstimateSummary};
pub use self::exceptions::Exceptions;
pub use self::holds::{HoldCounters, HoldMetrics};
use self::latency::Latencies;
pub use self::leases::LeaseMetrics;
pub use self::loans::{LoanCounters, LoanMetrics};
pub use self::process::Process;
pub use self::quotas::QuotaMetrics;
use self::rules::RuleFamilies;
pub use self::rules::RuleMetrics;
pub use self::servers::Servers;
use self::stat_gauges::with_gauges;
pub use self::undecided::{Effect, UndecidedCounters, UndecidedTable, met};
use super::candidates::Candidates;
use super::connections::ConnectionMetrics;
use super::http::HttpMetrics;
use crate::histogram::Histogram;
use crate::statistics::Stats;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// Name of the call latency histogram.
const CALL_DURATION: &str = "call_duration";
/// Results of a load.
const LOADED: &str = "loaded";
const REFUSED: &str = "refused";

/// Metrics of the journal of denials.
#[derive(Debug, Default)]
pub struct JournalMetrics {
    /// Memory used, in bytes.
    pub bytes: Gauge,
    /// Denials dropped because the journal was full.
    pub dropped: Counter,
    /// Keys evicted in favor of others.
    pub replaced: Counter,
}

/// Options of the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricsOptions {
    /// Maximum number of rules with series of their own.
    pub max_rules: usize,
    /// Fraction of a limit above which an allowed descriptor counts as near the limit.
    pub near_limit_ratio: f32,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self { max_rules: 10_000, near_limit_ratio: 0.8 }
    }
}

/// The metrics of the process.
pub struct Metrics {
    registry: Mutex<Registry>,
    options: MetricsOptions,
    rules: RuleFamilies,
    calls: Arc<Latencies>,
    node_calls: Arc<Latencies>,
    /// Decisions of candidate limits.
    pub candidates: Candidates,
    store_errors: Family<KindLabels, Counter>,
    policy_loads: Family<KindLabels, Counter>,
    tls_loads: Family<KindLabels, Counter>,
    tls_handshake_failures: Family<KindLabels, Counter>,
    policy_is_refused: Gauge,
    tls_is_refused: Gauge,
    unknown_domain: Counter,
    invalid_requests: Counter,
    /// Charges that were taken back because another slot denied or failed.
    pub take_backs: Counter,
    /// Charges that could not be taken back.
    pub take_backs_lost: Counter,
    /// Charges that may or may not have been written.
    pub unknown_charges: Counter,
    /// Denied hits that were not written because too many writes were in flight.
    pub dropped_charges: Counter,
    /// Checks that this process decided alone, by its share of the limit.
    pub local_decisions: Counter,
    /// Checks answered by a cached denial.
    pub deny_cache_hits: Counter,
    /// Checks without a cached denial, if denials are cached.
    pub deny_cache_misses: Counter,
    /// Hits charged in advance.
    pub leases: LeaseMetrics,
    /// Hits lent to clients.
    pub loans: LoanMetrics,
    /// 1 while connected to the control plane.
    pub xds_connected: Gauge,
    /// Connection attempts to the control plane after the first.
    pub xds_reconnects: Counter,
    /// Number of replicas that share the store, as far as is known.
    pub replicas: Gauge,
    store_connections: Gauge,
    store_connects: Counter,
    /// Counters in the memory store.
    pub memory_counters: Gauge,
    /// Bytes used by those counters.
    pub memory_bytes: Gauge,
    /// Time of the last successful policy load, in seconds since the epoch.
    policy_loaded_at: Gauge,
    /// Exceptions to the promise.
    pub exceptions: Exceptions,
    /// Charges that are corrected later.
    pub holds: HoldMetrics,
    /// Metrics of the journal of denials.
    pub journal: JournalMetrics,
    /// Metrics that the store's servers report.
    pub servers: Servers,
    /// Rejected and closed gRPC connections, rejected calls, dropped spans.
    pub clients: ConnectionMetrics,
    /// HTTP connections and requests.
    pub http: HttpMetrics,
    stats: Option<Arc<Stats>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Creates all metrics, at zero.
    pub fn new() -> Arc<Self> {
        Self::with_stats(None)
    }

    /// Creates all metrics, with the statistics of envoyproxy/ratelimit if `stats` is set.
    pub fn with_stats(stats: Option<Stats>) -> Arc<Self> {
        Self::with(MetricsOptions::default(), stats)
    }

    /// Creates all metrics with these options.
    pub fn with(options: MetricsOptions, stats: Option<Stats>) -> Arc<Self> {
        let deny_cache_hits = Counter::default();
        let deny_cache_misses = Counter::default();
        let store_connections = Gauge::default();
        let stats = stats.map(|stats| {
            with_gauges(stats, &deny_cache_hits, &deny_cache_misses, &store_connections)
        });
        let metrics = Self {
            registry: Mutex::default(),
            options,
            rules: RuleFamilies::new(options.max_rules),
            calls: Latencies::new(CALL_DURATION, "Duration of calls, from request to response", ""),
            node_calls: Latencies::new(
                "store_call_duration",
                "Duration of calls to a store server, from request to reply",
                "node",
            ),
            candidates: Candidates::new(options.max_rules),
            store_errors: Family::default(),
            policy_loads: Family::default(),
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
            leases: LeaseMetrics::default(),
            loans: LoanMetrics::new(options.max_rules),
            xds_connected: Gauge::default(),
            xds_reconnects: Counter::default(),
            replicas: Gauge::default(),
            store_connections,
            store_connects: Counter::default(),
            memory_counters: Gauge::default(),
            memory_bytes: Gauge::default(),
            policy_loaded_at: Gauge::default(),
            exceptions: Exceptions::default(),
            holds: HoldMetrics::new(options.max_rules),
            journal: JournalMetrics::default(),
            servers: Servers::default(),
            clients: ConnectionMetrics::default(),
            http: HttpMetrics::default(),
            stats,
        };
        metrics.register();
        metrics.show_kinds();
        Arc::new(metrics)
    }

    /// Creates the series of a store error kind at zero: a rate over a series that appears with its
    /// first event would miss that event.
    pub fn show_store_error(&self, kind: &'static str) {
        drop(self.store_errors.get_or_create(&KindLabels { kind }));
    }

    /// Creates the series of the fixed kinds at zero, for the same reason.
    fn show_kinds(&self) {
        for family in [&self.policy_loads, &self.tls_loads] {
            for kind in [LOADED, REFUSED] {
                drop(family.get_or_create(&KindLabels { kind }));
            }
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &MetricsOptions {
        &self.options
    }

    /// Returns the counters of one rule. A reload keeps them. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> RuleMetrics {
        self.rules.of(domain, rule)
    }

    /// Calls `view` with each rule that has met store errors, and their numbers.
    pub fn undecided(&self, view: impl FnMut(&str, &str, UndecidedTable)) {
        self.rules.undecided.each(view);
    }

    /// Removes the series of all rules except these pairs of domain and path.
    pub fn keep_rules(&self, rules: &HashSet<(&str, &str)>) {
        self.rules.keep(rules);
        self.holds.keep(rules);
        self.loans.keep(rules);
    }

    /// Returns a worker's part of the call latency histogram.
    pub fn call_latency(&self) -> Arc<Histogram> {
        self.calls.part("")
    }

    /// Returns a worker's part of the latency histogram of a server of the store. The series ends
    /// when no worker holds a part.
    pub fn node_latency(&self, node: &str) -> Arc<Histogram> {
        self.node_calls.part(node)
    }

    /// Counts a request for a domain without a policy.
    pub fn unknown_domain(&self, domain: &str) {
        self.unknown_domain.inc();
        if let Some(stats) = self.stats() {
            stats.domain_not_found(domain);
        }
    }

    /// Counts an invalid request: it cannot be decoded, or violates a bound.
    pub fn invalid_request(&self) {
        self.invalid_requests.inc();
        if let Some(stats) = self.stats() {
            stats.service.service_error.add(1);
        }
    }

    /// Counts a connection to a server of the store as open until
    /// [`disconnected`](Self::disconnected).
    pub fn connected(&self) {
        self.store_connections.inc();
        self.store_connects.inc();
        if let Some(stats) = self.stats() {
            stats.service.cx_total.add(1);
        }
    }

    /// Counts a connection to a server of the store as closed.
    pub fn disconnected(&self) {
        self.store_connections.dec();
        if let Some(stats) = self.stats() {
            stats.service.cx_local_close.add(1);
        }
    }

    /// Counts a check that failed in the store.
    pub fn store_error(&self, kind: &'static str) {
        self.store_errors.get_or_create(&KindLabels { kind }).inc();
    }

    /// Returns the statistics of envoyproxy/ratelimit, if enabled.
    pub fn stats(&self) -> Option<&Arc<Stats>> {
        self.stats.as_ref()
    }

    /// Counts a policy load.
    pub fn policy_load(&self, loaded: bool) {
        if let Some(stats) = self.stats() {
            let service = &stats.service;
            if loaded { &service.config_load_success } else { &service.config_load_error }.add(1);
        }
        self.policy_loads
            .get_or_create(&KindLabels { kind: if loaded { LOADED } else { REFUSED } })
            .inc();
        self.policy_is_refused.set(i64::from(!loaded));
        if loaded {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.policy_loaded_at.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        }
    }

    /// Counts a load of the gRPC listener's certificates.
    pub fn tls_load(&self, loaded: bool) {
        self.tls_loads
            .get_or_create(&KindLabels { kind: if loaded { LOADED } else { REFUSED } })
            .inc();
        self.tls_is_refused.set(i64::from(!loaded));
    }

    /// Counts a failed TLS handshake.
    pub fn tls_handshake_failed(&self, kind: &'static str) {
        self.tls_handshake_failures.get_or_create(&KindLabels { kind }).inc();
    }

    /// Renders all metrics in the OpenMetrics text format, with exemplars of traced calls.
    ///
    /// # Errors
    /// If writing the text fails, which a `String` never does.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let name = format!("tollgate_{CALL_DURATION}_seconds");
        self.encode()
            .map(|text| exposition::with_exemplars(&text, &name, &self.calls.exemplars("")))
    }

    /// Renders all metrics in the older Prometheus text format, for scrapers that do not request
    /// OpenMetrics.
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

#[cfg(test)]
mod tests;
