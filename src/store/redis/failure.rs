//! Why a call to a node brought no answer, by what may be done about it.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::url::Address;
use crate::store::StoreError;

/// A call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was not sent: the node is not connected, or known to be down.
    Unavailable,
    /// It may have run: no answer came in time.
    Late,
    /// It may have run: the connection broke.
    Lost,
    /// It did not run: the slot is at another node.
    Moved(Address),
    /// It did not run: the slot is on its way to another node, which takes it where it is asked.
    Ask(Address),
    /// It did not run, and may be sent again after a moment.
    Again,
    /// It did not run: the server is a replica. `Node::ask` returns it as [`Again`](Self::Again).
    ReadOnly,
    /// It did not run: the node does not know the script.
    NoScript,
    /// It did not run: the connection was closed while nobody used it.
    NotSent,
    /// It did not run, for a reason that may be that of another request in the same command.
    InCompany,
    /// It did not run, since the user may not, perhaps for one of the keys only: the text of the error.
    Forbidden(String),
    /// It did not run, and will not: the text of the error.
    Refused(String),
}

impl Failure {
    pub(super) fn of(error: &RedisError) -> Self {
        let redirected = || {
            let (address, _) = error.redirect_node()?;
            let (host, port) = address.rsplit_once(':')?;
            Some(Address::Tcp(host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        };
        #[allow(clippy::wildcard_enum_match_arm, reason = "both enums are another crate's and grow")]
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => redirected().map_or(Self::Again, Self::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => redirected().map_or(Self::Again, Self::Ask),
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::BusyLoading) => Self::Again,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Self::ReadOnly,
            // Some of the keys are on their way to another node: each of them alone is to be had.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::InCompany,
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Forbidden(error.to_string()),
            ErrorKind::Io => Self::Lost,
            _ if error.is_connection_dropped() || error.is_io_error() => Self::Lost,
            _ => Self::Refused(error.to_string()),
        }
    }

    /// Of a reply that is not what a script of ours returns.
    pub(super) fn of_reply(reply: Value) -> Self {
        match reply.extract_error() {
            Ok(_) => Self::Refused("the reply is none of our script".to_owned()),
            Err(error) => Self::of(&error),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable
            | Failure::Moved(_)
            | Failure::Ask(_)
            | Failure::Again
            | Failure::ReadOnly
            | Failure::NoScript
            | Failure::NotSent => Self::Unavailable,
            Failure::Late => Self::Late,
            Failure::Lost => Self::Lost,
            Failure::InCompany | Failure::Forbidden(_) | Failure::Refused(_) => Self::Refused,
        }
    }
}
