//! All metrics of the process: a struct for each part of it, which sees no other.
//!
//! Rules resolve their counters once, when a policy is installed, so a request only increments.
//! Label values are rules, nodes of the store and fixed words, never request data, so the number of
//! series is bounded.
//!
//! | file | contents |
//! |---|---|
//! | `store` | the store: charges, denials, connections |
//! | `servers` | metrics that the store's servers report |
//! | `leases`, `loans`, `quotas` | hits charged in advance: by this process, for others |
//! | `held` | hits in the hands of clients and proxies |
//! | `rules` | counters of rules |
//! | `undecided` | store errors of rules, by kind and effect |
//! | `exceptions` | observable exceptions to the promise |
//! | `holds`, `cost_ratio` | charges that are corrected later, and their costs |
//! | `latency` | histograms with one part per worker |
//! | `loads` | loads of policies and certificates |
//! | `process` | process metrics from the operating system |

mod cost_ratio;
mod exceptions;
mod held;
mod holds;
mod latency;
mod leases;
mod loads;
mod loans;
mod process;
mod quotas;
mod rules;
mod servers;
mod store;
mod undecided;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

pub use self::cost_ratio::{CostRatio, EstimateSummary};
pub use self::exceptions::Exceptions;
pub use self::held::{ClientHits, HeldHits, ProxyHits};
pub use self::holds::{HoldCounters, HoldMetrics};
use self::latency::Latencies;
pub use self::leases::LeaseMetrics;
pub use self::loads::{PolicyMetrics, TlsMetrics};
pub use self::loans::{BlockMetrics, LoanCounters, LoanMetrics};
pub use self::process::Process;
pub use self::quotas::QuotaMetrics;
pub use self::rules::RuleMetrics;
pub use self::servers::Servers;
pub use self::store::StoreMetrics;
pub use self::undecided::{Effect, UndecidedCounters, UndecidedTable, met};
use super::build_info::BuildInfo;
use super::candidates::Candidates;
use super::connections::ConnectionMetrics;
use super::http::HttpMetrics;
pub use crate::count::Counter;
use crate::count::Gauge;
use crate::exposition::TextFormat;
use crate::family::RuleFamily;
use crate::histogram::Histogram;
use crate::snapshot::MetricsSnapshot;
use crate::span_export::SpanMetrics;
use crate::statistics::{StatSources, Stats};

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

/// Metrics of the control plane.
#[derive(Debug, Default)]
pub struct XdsMetrics {
    /// 1 while connected.
    pub connected: Gauge,
    /// Connection attempts after the first.
    pub reconnects: Counter,
}

/// Metrics of requests that were not decided.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    /// Requests for a domain without a policy.
    unknown_domain: Counter,
    /// Requests that cannot be decoded, or violate a bound.
    pub invalid: Counter,
    /// Requests before the first policy was loaded. Only a statistic of envoyproxy/ratelimit.
    pub without_policy: Counter,
    /// Requests that failed in the store. Only a statistic, like the former.
    pub without_store: Counter,
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
#[derive(Debug)]
pub struct Metrics {
    options: MetricsOptions,
    started: Process,
    rules: RuleFamily<RuleMetrics>,
    calls: Latencies,
    /// Requests that were not decided.
    pub requests: RequestMetrics,
    /// Decisions of candidate limits.
    pub candidates: Candidates,
    /// Exceptions to the promise.
    pub exceptions: Exceptions,
    /// Charges that are corrected later.
    pub holds: HoldMetrics,
    /// Hits lent to clients.
    pub loans: LoanMetrics,
    /// The store.
    pub store: Arc<StoreMetrics>,
    /// Rejected and closed gRPC connections, rejected calls.
    pub clients: Arc<ConnectionMetrics>,
    /// HTTP connections and requests.
    pub http: Arc<HttpMetrics>,
    /// Loads of policies.
    pub policies: Arc<PolicyMetrics>,
    /// Loads of certificates.
    pub tls: Arc<TlsMetrics>,
    /// The journal of denials.
    pub journal: JournalMetrics,
    /// The control plane.
    pub xds: XdsMetrics,
    /// Exported and dropped spans.
    pub spans: Arc<SpanMetrics>,
    stats: Option<Arc<Stats>>,
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
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let store = Arc::<StoreMetrics>::default();
        let policies = Arc::<PolicyMetrics>::default();
        let requests = RequestMetrics::default();
        let [config_loads, config_errors] = policies.counters();
        let sources = StatSources {
            config_loads,
            config_errors,
            invalid: requests.invalid.clone(),
            without_policy: requests.without_policy.clone(),
            without_store: requests.without_store.clone(),
            connects: store.connects.clone(),
            disconnects: store.disconnects.clone(),
            cache_hits: store.deny_cache_hits.clone(),
            cache_misses: store.deny_cache_misses.clone(),
        };
        Arc::new(Self {
            options,
            started: Process { begun },
            rules: RuleFamily::new(options.max_rules, RuleMetrics::shared()),
            calls: Latencies::default(),
            stats: stats.map(|stats| Arc::new(stats.of(sources))),
            requests,
            candidates: Candidates::new(options.max_rules),
            exceptions: Exceptions::default(),
            holds: HoldMetrics::new(options.max_rules),
            loans: LoanMetrics::new(options.max_rules),
            store,
            clients: Arc::default(),
            http: Arc::default(),
            policies,
            tls: Arc::default(),
            journal: JournalMetrics::default(),
            xds: XdsMetrics::default(),
            spans: Arc::default(),
        })
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
    pub fn undecided(&self, mut view: impl FnMut(&str, &str, UndecidedTable)) {
        self.rules.each(|domain, rule, metrics| {
            let table = metrics.undecided.table();
            if table.iter().flatten().any(|count| *count > 0) {
                view(domain, rule, table);
            }
        });
    }

    /// Removes the series of all rules except these pairs of domain and path.
    pub fn keep_rules(&self, rules: &HashSet<(&str, &str)>) {
        self.rules.keep(rules);
        self.holds.rules.keep(rules);
        self.loans.keep_rules(rules);
    }

    /// Returns a worker's part of the call latency histogram.
    pub fn call_latency(&self) -> Arc<Histogram> {
        self.calls.part("")
    }

    /// Counts a request for a domain without a policy.
    pub fn unknown_domain(&self, domain: &str) {
        self.requests.unknown_domain.inc();
        if let Some(stats) = self.stats() {
            stats.domain_not_found(domain);
        }
    }

    /// Returns the statistics of envoyproxy/ratelimit, if enabled.
    pub fn stats(&self) -> Option<&Arc<Stats>> {
        self.stats.as_ref()
    }

    /// Renders all metrics in the OpenMetrics text format, with exemplars of traced calls.
    pub fn render(&self) -> String {
        self.snapshot().text(TextFormat::OpenMetrics)
    }

    /// Renders all metrics in the older Prometheus text format, for scrapers that do not request
    /// OpenMetrics.
    pub fn render_plain(&self) -> String {
        self.snapshot().text(TextFormat::Prometheus)
    }

    fn snapshot(&self) -> MetricsSnapshot {
        let mut out = MetricsSnapshot::default();
        self.started.collect(&mut out);
        out.set_prefix("tollgate_");
        process::collect_build(BuildInfo::OF_PROGRAM, &mut out);
        rules::collect(&self.rules, &mut out);
        self.candidates.collect(&mut out);
        self.exceptions.collect(&mut out);
        self.holds.collect(&mut out);
        self.loans.collect(&mut out);
        self.store.collect(&mut out);
        self.clients.collect(&mut out);
        self.http.collect(&mut out);
        self.policies.collect(&mut out);
        self.tls.collect(&mut out);
        self.journal.collect(&mut out);
        self.xds.collect(&mut out);
        self.spans.collect(&mut out);
        let calls = "Duration of calls, from request to response";
        out.histograms("call_duration_seconds", calls, self.calls.series(""));
        self.requests.collect(&mut out);
        out
    }
}

impl RequestMetrics {
    fn collect(&self, out: &mut MetricsSnapshot) {
        let unknown = "Number of requests for a domain without a policy.";
        out.counter("unknown_domain_requests", unknown, &self.unknown_domain);
        let invalid = "Number of requests refused with INVALID_ARGUMENT.";
        out.counter("invalid_requests", invalid, &self.invalid);
    }
}

impl JournalMetrics {
    fn collect(&self, out: &mut MetricsSnapshot) {
        let bytes = "Memory used by the journal of denials in bytes.";
        out.gauge("journal_bytes", bytes, &self.bytes);
        let dropped = "Number of denials dropped because the journal was full.";
        out.counter("journal_dropped_denials", dropped, &self.dropped);
        let replaced = "Number of keys evicted from the journal in favor of others.";
        out.counter("journal_replaced_keys", replaced, &self.replaced);
    }
}

impl XdsMetrics {
    fn collect(&self, out: &mut MetricsSnapshot) {
        let connected = "1 if connected to the control plane; otherwise 0.";
        out.gauge("xds_connected", connected, &self.connected);
        let reconnects = "Number of connection attempts to the control plane after the first.";
        out.counter("xds_reconnects", reconnects, &self.reconnects);
    }
}

#[cfg(test)]
mod tests;
