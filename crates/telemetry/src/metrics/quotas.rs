//! Metrics of quotas: the hits that proxies hold by RLQS.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::KindLabels;

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
    ended: Family<KindLabels, Counter>,
}

impl QuotaMetrics {
    /// Creates the series of ended streams at zero.
    pub fn show_kinds(&self, ends: &[&'static str]) {
        for kind in ends {
            drop(self.ended.get_or_create(&KindLabels { kind }));
        }
    }

    /// Counts a stream that this side ended.
    pub fn ended(&self, kind: &'static str) {
        self.ended.get_or_create(&KindLabels { kind }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("rlqs_streams", "Number of open RLQS streams", self.streams.clone());
        let buckets = "Number of buckets of open RLQS streams";
        registry.register("rlqs_buckets", buckets, self.buckets.clone());
        let reports = "Number of reports of buckets";
        registry.register("rlqs_reports", reports, self.reports.clone());
        let lent = "Number of hits lent to proxies by RLQS";
        registry.register("rlqs_hits_lent", lent, self.lent.clone());
        let spent = "Number of lent hits that proxies admitted";
        registry.register("rlqs_hits_spent", spent, self.spent.clone());
        let returned = "Number of lent hits that were not admitted and were given back";
        registry.register("rlqs_hits_returned", returned, self.returned.clone());
        let stranded = "Number of lent hits that were neither admitted nor given back";
        registry.register("rlqs_hits_stranded", stranded, self.stranded.clone());
        let overrun = "Number of hits that proxies admitted beyond their loans, charged afterwards";
        registry.register("rlqs_overrun_hits", overrun, self.overrun.clone());
        let first = "Number of hits admitted before the first report of a bucket on a stream, charged afterwards";
        registry.register("rlqs_first_hits", first, self.first.clone());
        let unsent = "Number of responses that a connection did not accept at once; their hits were given back";
        registry.register("rlqs_unsent_responses", unsent, self.unsent.clone());
        let refused = "Number of reports of buckets beyond the bounds";
        registry.register("rlqs_refused_reports", refused, self.refused.clone());
        let unsupported = "Number of new buckets whose limit RLQS cannot enforce";
        registry.register("rlqs_unsupported_buckets", unsupported, self.unsupported.clone());
        let failures = "Number of assignments by `on_store_error` while the store failed";
        registry.register("rlqs_failure_assignments", failures, self.failures.clone());
        let ended = "Number of RLQS streams ended by the service, by reason";
        registry.register("rlqs_streams_ended", ended, self.ended.clone());
    }
}
