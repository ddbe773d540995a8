//! Metrics of exported spans.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The counters of exported and dropped spans.
#[derive(Debug, Default)]
pub struct SpanMetrics {
    /// Spans accepted by the collector.
    pub sent: Counter,
    /// Spans dropped because the queue was full or the collector unavailable.
    pub dropped: Counter,
}

impl SpanMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("spans_sent", "Spans that the collector has taken", self.sent.clone());
        let dropped = "Spans that were recorded and not taken: too many waited, or the collector was away";
        registry.register("spans_dropped", dropped, self.dropped.clone());
    }
}
