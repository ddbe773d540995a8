//! What becomes of spans.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Its metrics.
#[derive(Debug, Default)]
pub struct SpanMetrics {
    /// Spans that the collector has taken.
    pub sent: Counter,
    /// Spans that it has not: too many waited, or it was away.
    pub dropped: Counter,
}

impl SpanMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("spans_sent", "Spans that the collector has taken", self.sent.clone());
        let dropped = "Spans that were recorded and not taken: too many waited, or the collector was away";
        registry.register("spans_dropped", dropped, self.dropped.clone());
    }
}
