//! Metrics of quotas: the hits that proxies hold by RLQS.

use crate::count::{Counter, Gauge};
use crate::family::Family;
use crate::snapshot::MetricsSnapshot;

/// The metrics of quotas.
#[derive(Debug, Default)]
pub struct QuotaMetrics {
    /// Open streams.
    pub streams: Gauge,
    /// Buckets of those streams.
    pub buckets: Gauge,
    /// Reports of buckets.
    pub reports: Counter,
    /// Hits lent to proxies.
    pub lent: Counter,
    /// Lent hits that proxies admitted.
    pub spent: Counter,
    /// Lent hits that were given back.
    pub returned: Counter,
    /// Lent hits that were neither admitted nor given back.
    pub stranded: Counter,
    /// Hits admitted beyond all loans of a stream.
    pub overrun: Counter,
    /// Hits admitted before the first report of a bucket on a stream.
    pub first: Counter,
    /// Responses that the connection did not accept at once.
    pub unsent: Counter,
    /// Reports of buckets beyond the bounds.
    pub refused: Counter,
    /// New buckets whose limit RLQS cannot enforce.
    pub unsupported: Counter,
    /// Assignments by `on_store_error`.
    pub failures: Counter,
    ended: Family<Counter, 1>,
}

impl QuotaMetrics {
    /// Creates the series of ended streams at zero.
    pub fn show_kinds(&self, ends: &[&'static str]) {
        self.ended.show(ends.iter().map(|kind| [*kind]));
    }

    /// Counts a stream that this side ended.
    pub fn ended(&self, kind: &'static str) {
        self.ended.of([kind]).inc();
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        out.gauge("rlqs_streams", "Number of open RLQS streams.", &self.streams);
        let buckets = "Number of buckets of open RLQS streams.";
        out.gauge("rlqs_buckets", buckets, &self.buckets);
        let reports = "Number of reports of buckets.";
        out.counter("rlqs_reports", reports, &self.reports);
        let lent = "Number of hits lent to proxies by RLQS.";
        out.counter("rlqs_hits_lent", lent, &self.lent);
        let spent = "Number of lent hits that proxies admitted.";
        out.counter("rlqs_hits_spent", spent, &self.spent);
        let returned = "Number of lent hits that were not admitted and were given back.";
        out.counter("rlqs_hits_returned", returned, &self.returned);
        let stranded = "Number of lent hits that were neither admitted nor given back.";
        out.counter("rlqs_hits_stranded", stranded, &self.stranded);
        let overrun =
            "Number of hits that proxies admitted beyond their loans, charged afterwards.";
        out.counter("rlqs_overrun_hits", overrun, &self.overrun);
        let first = "Number of hits admitted before the first report of a bucket on a stream, charged afterwards.";
        out.counter("rlqs_first_hits", first, &self.first);
        let unsent = "Number of responses that a connection did not accept at once; their hits were given back.";
        out.counter("rlqs_unsent_responses", unsent, &self.unsent);
        let refused = "Number of reports of buckets beyond the bounds.";
        out.counter("rlqs_refused_reports", refused, &self.refused);
        let unsupported = "Number of new buckets whose limit RLQS cannot enforce.";
        out.counter("rlqs_unsupported_buckets", unsupported, &self.unsupported);
        let failures = "Number of assignments by `on_store_error` while the store failed.";
        out.counter("rlqs_failure_assignments", failures, &self.failures);
        let ended = "Number of RLQS streams ended by the service, by reason.";
        out.counters("rlqs_streams_ended", ended, self.ended.series(["kind"]));
    }
}
