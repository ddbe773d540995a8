//! Counts and logs of gRPC connections.

use std::net::SocketAddr;
use std::sync::Arc;

use tracing::{debug, warn};

use crate::http2::observer::{CloseReason, ConnectionObserver};
use crate::telemetry::connections::ConnectionMetrics;
use crate::telemetry::log_throttle::LogThrottle;

/// Counts the events of connections, and logs those that an operator may have to act on.
#[derive(Debug)]
pub(super) struct ConnectionLog {
    metrics: Arc<ConnectionMetrics>,
    refused: LogThrottle,
    closed: LogThrottle,
}

impl ConnectionLog {
    pub(super) fn new(metrics: Arc<ConnectionMetrics>) -> Self {
        Self { metrics, refused: LogThrottle::default(), closed: LogThrottle::default() }
    }
}

impl ConnectionObserver for ConnectionLog {
    fn opened(&self) {
        self.metrics.connections.inc();
    }

    fn ended(&self) {
        self.metrics.connections.dec();
    }

    fn closed(&self, reason: CloseReason, peer: Option<SocketAddr>) {
        self.metrics.cut(reason);
        let kind = reason.name();
        match reason {
            CloseReason::Full | CloseReason::Address | CloseReason::Memory => {
                if let Some(times) = self.refused.due() {
                    warn!(
                        kind,
                        times,
                        "gRPC connections rejected: limit reached, and no other connection is idle"
                    );
                }
            }
            CloseReason::GivenUp
            | CloseReason::Flood
            | CloseReason::Unread
            | CloseReason::Silent => {
                if let Some(times) = self.closed.due() {
                    warn!(kind, ?peer, times, "connection closed due to client behavior");
                } else {
                    debug!(kind, ?peer, "connection closed due to client behavior");
                }
            }
            // Scanners and HTTP/1 health checks violate the protocol, too.
            CloseReason::Evicted | CloseReason::Protocol => {}
        }
    }

    fn handshake_failed(&self, kind: &'static str) {
        self.metrics.handshake_failed(kind);
    }
}
