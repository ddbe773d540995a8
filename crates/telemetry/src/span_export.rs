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
        registry.register(
            "spans_sent",
            "Number of spans accepted by the collector",
            self.sent.clone(),
        );
        let dropped = "Number of recorded spans dropped because the queue was full or the collector unavailable";
        registry.register("spans_dropped", dropped, self.dropped.clone());
    }
}
