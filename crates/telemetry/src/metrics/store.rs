//! Metrics of the store: charges, denials, leases, connections and servers.

use std::sync::Arc;

use super::latency::Latencies;
use super::leases::LeaseMetrics;
use super::loans::BlockMetrics;
use super::servers::Servers;
use crate::count::{Counter, Gauge, level};
use crate::family::Family;
use crate::histogram::Histogram;
use crate::snapshot::{MetricSeries, MetricsSnapshot, SampleValue};

/// The metrics of the store.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    errors: Family<Counter, 1>,
    calls: Latencies,
    /// Connections made to servers.
    pub connects: Counter,
    /// Connections that have closed.
    pub disconnects: Counter,
    /// Connections that authenticated again, after their credentials had changed.
    pub reauthentications: Counter,
    /// Connections that were replaced while in use, because of their age or credentials.
    pub renewed_connections: Counter,
    /// Attempts to do either that failed.
    pub renewal_failures: Counter,
    /// Runs of a credentials command that failed.
    pub credentials_failures: Counter,
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
    /// Hits charged for clients.
    pub loans: BlockMetrics,
    /// Number of replicas that share the store, as far as is known.
    pub replicas: Gauge,
    /// Counters in the memory store.
    pub memory_counters: Gauge,
    /// Bytes used by those counters.
    pub memory_bytes: Gauge,
    /// Metrics that the servers report.
    pub servers: Servers,
    /// Observed restarts of servers.
    pub restarts: Counter,
}

impl StoreMetrics {
    /// Creates the series of an error kind at zero: a rate over a series that appears with its
    /// first event would miss that event.
    pub fn show_store_error(&self, kind: &'static str) {
        self.errors.show([[kind]]);
    }

    /// Counts a check that failed.
    pub fn store_error(&self, kind: &'static str) {
        self.errors.of([kind]).inc();
    }

    /// Returns the number of checks that failed with a kind of error.
    pub fn store_errors(&self, kind: &'static str) -> u64 {
        self.errors.of([kind]).get()
    }

    /// Returns a worker's part of the latency histogram of a server. The series ends when no worker
    /// holds a part.
    pub fn node_latency(&self, node: &str) -> Arc<Histogram> {
        self.calls.part(node)
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let help = "Number of checks that failed in the store, by kind.";
        out.counters("store_errors", help, self.errors.series(["kind"]));
        let help = "Duration of calls to a store server, from request to reply";
        out.histograms("store_call_duration_seconds", help, self.calls.series("node"));
        let help = "Number of open connections to store servers.";
        let open = SampleValue::Level(level(&self.connects, &self.disconnects));
        out.gauges("store_connections", help, vec![MetricSeries::plain(open)]);
        let help = "Number of connections made to store servers.";
        out.counter("store_connects", help, &self.connects);
        let help = "Number of connections to store servers that authenticated again in place, after their credentials had changed.";
        out.counter("store_reauthentications", help, &self.reauthentications);
        let help = "Number of connections to store servers that were replaced while in use, because of their age or of changed credentials.";
        out.counter("store_renewed_connections", help, &self.renewed_connections);
        let help = "Number of attempts to authenticate or replace a connection in use that failed; it stays in use.";
        out.counter("store_renewal_failures", help, &self.renewal_failures);
        let help = "Number of runs of --redis-credentials-command that gave no valid credentials.";
        out.counter("store_credentials_failures", help, &self.credentials_failures);
        let help =
            "Number of charges taken back because another slot or this process denied or failed.";
        out.counter("take_backs", help, &self.take_backs);
        let help = "Number of charges that could not be taken back.";
        out.counter("take_backs_lost", help, &self.take_backs_lost);
        let help = "Number of charges that may or may not have been written.";
        out.counter("unknown_charges", help, &self.unknown_charges);
        let help =
            "Number of charges of denied hits not written because too many writes were in flight.";
        out.counter("dropped_charges", help, &self.dropped_charges);
        let help = "Number of checks decided by this process alone, within its share of the limit, after a store error.";
        out.counter("local_decisions", help, &self.local_decisions);
        let help = "Number of checks answered by a cached denial.";
        out.counter("deny_cache_hits", help, &self.deny_cache_hits);
        let help = "Number of checks without a cached denial, if denials are cached.";
        out.counter("deny_cache_misses", help, &self.deny_cache_misses);
        self.leases.collect(out);
        self.loans.collect(out);
        let help = "Number of replicas registered in the store.";
        out.gauge("replicas", help, &self.replicas);
        let help = "Number of counters in the memory store.";
        out.gauge("memory_store_counters", help, &self.memory_counters);
        let help = "Memory used by the counters of the memory store in bytes.";
        out.gauge("memory_store_bytes", help, &self.memory_bytes);
        self.servers.collect(out);
        let help = "Number of observed store server restarts; each loses the counters that were not persisted.";
        out.counter("store_restarts", help, &self.restarts);
    }
}
