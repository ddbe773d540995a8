//! Metrics of HTTP connections that are closed early, and of requests that are rejected.

use crate::count::{Counter, Gauge};
use crate::family::Family;
use crate::snapshot::MetricsSnapshot;

/// An HTTP listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpPort {
    /// Probes, metrics and decisions.
    Public,
    /// Administration.
    Admin,
    /// The statistics of envoyproxy/ratelimit.
    Stats,
}

/// Reason for closing an HTTP connection that the client had not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpCloseReason {
    /// The connection had been answered the longest when a new one replaced it; none was idle.
    Full,
    /// The connection had been idle the longest when a new one replaced it.
    Idle,
    /// The client did not send a complete request head in time.
    SlowHead,
    /// The client did not read the response.
    Unread,
    /// The client sent something other than HTTP, or a head that is too long.
    Protocol,
    /// The TLS handshake failed.
    Handshake,
}

/// Reason for rejecting an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// A token is required and missing.
    NoToken,
    /// The token is unknown.
    UnknownToken,
    /// The token is read-only.
    ReadOnly,
    /// The `Host` is neither an IP address nor `localhost`: DNS rebinding could redirect it.
    Host,
    /// A write without a header that makes browsers send a preflight request.
    ContentType,
    /// A browser sent the request for a page of another origin.
    Origin,
    /// The body is too large.
    TooLarge,
    /// The body did not arrive in time.
    TooSlow,
    /// The maximum number of requests was in flight.
    Busy,
}

/// The metrics of all listeners.
#[derive(Debug)]
pub struct HttpMetrics {
    connections: Family<Gauge, 1>,
    /// By port and kind.
    cut: Family<Counter, 2>,
    refused: Family<Counter, 2>,
}

impl HttpPort {
    const ALL: [Self; 3] = [Self::Public, Self::Admin, Self::Stats];

    /// Returns the name used in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "http",
            Self::Admin => "admin",
            Self::Stats => "stats",
        }
    }
}

impl HttpCloseReason {
    const ALL: [Self; 6] =
        [Self::Full, Self::Idle, Self::SlowHead, Self::Unread, Self::Protocol, Self::Handshake];

    /// Returns the name used in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Idle => "idle",
            Self::SlowHead => "slow_head",
            Self::Unread => "unread_answers",
            Self::Protocol => "protocol_error",
            Self::Handshake => "handshake",
        }
    }
}

impl HttpRefusal {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::NoToken,
        Self::UnknownToken,
        Self::ReadOnly,
        Self::Host,
        Self::ContentType,
        Self::Origin,
        Self::TooLarge,
        Self::TooSlow,
        Self::Busy,
    ];

    /// Returns the name used in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::UnknownToken => "unknown_token",
            Self::ReadOnly => "read_only",
            Self::Host => "host",
            Self::ContentType => "content_type",
            Self::Origin => "origin",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::Busy => "busy",
        }
    }

    /// Returns the ports on which a request can be rejected for this reason.
    fn ports(self) -> &'static [HttpPort] {
        match self {
            Self::NoToken
            | Self::UnknownToken
            | Self::ReadOnly
            | Self::Host
            | Self::ContentType => &[HttpPort::Admin],
            Self::Origin | Self::TooLarge => &[HttpPort::Public, HttpPort::Admin],
            Self::TooSlow => &[HttpPort::Public],
            Self::Busy => &HttpPort::ALL,
        }
    }
}

/// The series of the ports that are always open start at zero.
impl Default for HttpMetrics {
    fn default() -> Self {
        let metrics = Self {
            connections: Family::default(),
            cut: Family::default(),
            refused: Family::default(),
        };
        for port in [HttpPort::Public, HttpPort::Admin] {
            let name = port.name();
            metrics.connections.show([[name]]);
            metrics.cut.show(HttpCloseReason::ALL.map(|cut| [name, cut.name()]));
            let refusals = HttpRefusal::ALL.into_iter().filter(|kind| kind.ports().contains(&port));
            metrics.refused.show(refusals.map(|refusal| [name, refusal.name()]));
        }
        metrics
    }
}

impl HttpMetrics {
    /// Returns the gauge of a listener's open connections.
    pub fn connections(&self, port: HttpPort) -> Gauge {
        self.connections.of([port.name()])
    }

    /// Counts a closed connection.
    pub fn cut(&self, port: HttpPort, cut: HttpCloseReason) {
        self.cut.of([port.name(), cut.name()]).inc();
    }

    /// Counts a rejected request.
    pub fn refused(&self, port: HttpPort, refusal: HttpRefusal) {
        self.refused.of([port.name(), refusal.name()]).inc();
    }

    /// Returns the number of requests that were rejected.
    pub fn refusals(&self, port: HttpPort, refusal: HttpRefusal) -> u64 {
        self.refused.of([port.name(), refusal.name()]).get()
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let open = "Number of open HTTP connections.";
        out.gauges("http_connections", open, self.connections.series(["port"]));
        let cut = "Number of HTTP connections closed because of client behavior or a connection limit, by kind.";
        out.counters("http_connections_cut", cut, self.cut.series(["port", "kind"]));
        let refused =
            "Number of HTTP requests refused for lack of access or because of a limit, by kind.";
        out.counters("http_refused_requests", refused, self.refused.series(["port", "kind"]));
    }
}
