//! What is kept out, cut off or dropped: connections, calls, domains, spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::spans::SpanMetrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Why a connection of gRPC was not kept, though it could have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// There were as many as there may be.
    Full,
    /// Its client gave up one call after the other before it was answered.
    GivenUp,
    /// Its client sent more of some frame than anybody needs.
    Flood,
    /// Its client did not read what it was sent.
    Unread,
    /// Its client answered no ping.
    Silent,
    /// Its client broke the protocol, or spoke another one.
    Protocol,
}

/// Its metrics.
#[derive(Debug, Default)]
pub struct Guard {
    /// Connections of gRPC that are open.
    pub connections: Gauge,
    /// Calls that were refused since their messages did not come in time, or since too many came at once.
    pub slow_calls: Counter,
    /// Calls for a domain that is not their client's.
    pub forbidden: Counter,
    /// What becomes of spans.
    pub spans: SpanMetrics,
    cut: Family<Kind, Counter>,
}

impl Cut {
    const ALL: [Self; 6] = [Self::Full, Self::GivenUp, Self::Flood, Self::Unread, Self::Silent, Self::Protocol];

    /// As metrics and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::GivenUp => "given_up_calls",
            Self::Flood => "flood",
            Self::Unread => "unread_answers",
            Self::Silent => "silent",
            Self::Protocol => "protocol_error",
        }
    }
}

impl Guard {
    /// Counts a connection that was not kept.
    pub fn cut(&self, cut: Cut) {
        self.cut.get_or_create(&Kind { kind: cut.name() }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.spans.register(registry);
        for cut in Cut::ALL {
            drop(self.cut.get_or_create(&Kind { kind: cut.name() }));
        }
        registry.register("grpc_connections", "Connections of gRPC that are open", self.connections.clone());
        let cut =
            "Connections of gRPC that were closed for what their clients did, or for there being too many, by kind";
        registry.register("grpc_connections_cut", cut, self.cut.clone());
        let slow = "Calls refused because their messages did not come in time, or too much of such came at once";
        registry.register("slow_calls", slow, self.slow_calls.clone());
        let forbidden = "Calls answered PERMISSION_DENIED: their clients may not ask for that domain";
        registry.register("forbidden_calls", forbidden, self.forbidden.clone());
    }
}
