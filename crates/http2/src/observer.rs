//! Events of connections, for metrics and logs.

use std::fmt::Debug;
use std::net::SocketAddr;

/// Reason for closing a connection that the client had not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The maximum number of connections was open, and none was idle.
    Full,
    /// The maximum number of connections of the client's address was open, and none was idle.
    Address,
    /// The memory budget of clients was exhausted, and no connection was idle.
    Memory,
    /// Evicted to make room: it was idle, its network had the most connections, or its calls held
    /// the most memory.
    Evicted,
    /// The client reset call after call before it was answered.
    GivenUp,
    /// The client sent more frames of a kind than any legitimate use needs.
    Flood,
    /// The client did not read the responses.
    Unread,
    /// The client did not answer a ping.
    Silent,
    /// The client violated the protocol, or spoke another one.
    Protocol,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Address,
        Self::Memory,
        Self::Evicted,
        Self::GivenUp,
        Self::Flood,
        Self::Unread,
        Self::Silent,
        Self::Protocol,
    ];

    /// Returns the name for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Address => "full_address",
            Self::Memory => "memory",
            Self::Evicted => "evicted",
            Self::GivenUp => "given_up_calls",
            Self::Flood => "flood",
            Self::Unread => "unread_answers",
            Self::Silent => "silent",
            Self::Protocol => "protocol_error",
        }
    }
}

/// Receives the events of connections. Called by all workers, so it must not block.
pub trait ConnectionObserver: Debug + Send + Sync {
    /// A connection was registered.
    fn opened(&self) {}

    /// A registered connection has ended.
    fn ended(&self) {}

    /// A connection was refused or closed, and its client had not closed it. `peer` is absent if
    /// the client is not known, or connected by a Unix socket.
    fn closed(&self, _reason: CloseReason, _peer: Option<SocketAddr>) {}

    /// A TLS handshake failed; `kind` is the name of the kind of failure.
    fn handshake_failed(&self, _kind: &'static str) {}
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl ConnectionObserver for NoObserver {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        let mut names = CloseReason::ALL.map(CloseReason::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CloseReason::ALL.len());
    }
}
