//! Metrics of closed connections, rejected calls, forbidden domains and dropped spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_http2::observer::CloseReason;

use super::span_export::SpanMetrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Metrics of gRPC connections, of calls that are rejected, and of spans.
#[derive(Debug, Default)]
pub struct ConnectionMetrics {
    /// Open gRPC connections.
    pub connections: Gauge,
    /// Calls rejected because their messages did not arrive in time, or because too many arrived at
    /// once.
    pub slow_calls: Counter,
    /// Calls rejected because their messages exceed `--max-message`.
    pub oversized_messages: Counter,
    /// Calls for a domain that their client may not request.
    pub forbidden: Counter,
    /// Exported and dropped spans.
    pub spans: SpanMetrics,
    cut: Family<KindLabel, Counter>,
}

impl ConnectionMetrics {
    /// Counts a closed connection.
    pub fn cut(&self, cut: CloseReason) {
        self.cut.get_or_create(&KindLabel { kind: cut.name() }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.spans.register(registry);
        for cut in CloseReason::ALL {
            drop(self.cut.get_or_create(&KindLabel { kind: cut.name() }));
        }
        registry.register(
            "grpc_connections",
            "Number of open gRPC connections",
            self.connections.clone(),
        );
        let cut = "Number of gRPC connections closed because of client behavior or to make room for others, by kind";
        registry.register("grpc_connections_cut", cut, self.cut.clone());
        let slow = "Number of calls refused because their messages were late, or too many messages were being received";
        registry.register("slow_calls", slow, self.slow_calls.clone());
        let oversized = "Number of calls refused because messages exceed --max-message; Envoy admits such requests by default";
        registry.register("oversized_messages", oversized, self.oversized_messages.clone());
        let forbidden = "Number of calls refused with PERMISSION_DENIED because the client has no access to the domain";
        registry.register("forbidden_calls", forbidden, self.forbidden.clone());
    }
}
