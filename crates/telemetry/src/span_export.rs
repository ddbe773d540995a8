//! Metrics of exported spans.

use crate::count::Counter;
use crate::snapshot::MetricsSnapshot;

/// The counters of exported and dropped spans.
#[derive(Debug, Default)]
pub struct SpanMetrics {
    /// Spans accepted by the collector.
    pub sent: Counter,
    /// Spans dropped because the queue was full or the collector unavailable.
    pub dropped: Counter,
}

impl SpanMetrics {
    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        out.counter("spans_sent", "Number of spans accepted by the collector.", &self.sent);
        let dropped = "Number of recorded spans dropped because the queue was full or the collector unavailable.";
        out.counter("spans_dropped", dropped, &self.dropped);
    }
}
