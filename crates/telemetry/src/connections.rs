//! Metrics of gRPC connections, rejected calls and forbidden domains.

use tollgate_http2::observer::CloseReason;

use crate::count::{Counter, Gauge};
use crate::family::Family;
use crate::snapshot::MetricsSnapshot;

/// Metrics of gRPC connections, and of calls that are rejected.
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
    cut: Family<Counter, 1>,
    handshake_failures: Family<Counter, 1>,
}

impl ConnectionMetrics {
    /// Counts a closed connection.
    pub fn cut(&self, cut: CloseReason) {
        self.cut.of([cut.name()]).inc();
    }

    /// Counts a failed TLS handshake.
    pub fn handshake_failed(&self, kind: &'static str) {
        self.handshake_failures.of([kind]).inc();
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        self.cut.show(CloseReason::ALL.map(|cut| [cut.name()]));
        out.gauge("grpc_connections", "Number of open gRPC connections.", &self.connections);
        let cut = "Number of gRPC connections closed because of client behavior or to make room for others, by kind.";
        out.counters("grpc_connections_cut", cut, self.cut.series(["kind"]));
        let slow = "Number of calls refused because their messages were late, or too many messages were being received.";
        out.counter("slow_calls", slow, &self.slow_calls);
        let oversized = "Number of calls refused because messages exceed --max-message; Envoy admits such requests by default.";
        out.counter("oversized_messages", oversized, &self.oversized_messages);
        let forbidden = "Number of calls refused with PERMISSION_DENIED because the client has no access to the domain.";
        out.counter("forbidden_calls", forbidden, &self.forbidden);
        let failures = "Number of failed TLS handshakes on the gRPC listener, by kind.";
        let series = self.handshake_failures.series(["kind"]);
        out.counters("tls_handshake_failures", failures, series);
    }
}
