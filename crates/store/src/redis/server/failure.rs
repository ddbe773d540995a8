//! Failures of calls to a node, classified by the possible reactions.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tollgate_core::printable::excerpt;

use crate::StoreError;
use crate::redis::config::url::ServerAddress;

/// Maximum bytes of a server's text in messages.
const MAX_TEXT: usize = 256;

/// Returns a server's text as messages show it: in one line of bounded length.
pub(in crate::redis) fn shown(text: impl std::fmt::Display) -> String {
    excerpt(&text.to_string(), MAX_TEXT).into_owned()
}

/// Text in the error of Redis (since 6.0) and Valkey for a forbidden command, but not for a
/// forbidden key.
const OF_COMMANDS: &str = "permissions to run the";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) enum CallFailure {
    /// Not sent: the node is not connected, or known to be down.
    Unavailable,
    /// May have run: no reply arrived in time.
    Late,
    /// May have run: the connection broke.
    Lost,
    /// Did not run: the slot is at another node.
    Moved(ServerAddress),
    /// Did not run: the slot is being moved to this address, which serves it after `ASKING`.
    Ask(ServerAddress),
    /// Did not run; may be retried after a backoff.
    Again,
    /// Did not run: the server is a replica. `Node::ask` returns it as [`Again`](Self::Again).
    ReadOnly,
    /// Did not run: the node does not know the script.
    NoScript,
    /// Did not run: the connection was closed while idle.
    NotSent,
    /// Did not run, perhaps because of another request in the same command.
    RetryAlone,
    /// Did not run: permission denied, perhaps only for one of the keys. Contains the text of the
    /// error.
    Forbidden(String),
    /// Did not run: the server wants another login. Contains the text of the error.
    LoginRefused(String),
    /// Did not run, and never will: the text of the error.
    Refused(String),
}

impl CallFailure {
    pub(in crate::redis) fn of(error: &RedisError) -> Self {
        #[allow(
            clippy::wildcard_enum_match_arm,
            reason = "both enums are another crate's and grow"
        )]
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                redirection(error).map_or(Self::Again, Self::Moved)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                redirection(error).map_or(Self::Again, Self::Ask)
            }
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::BusyLoading) => {
                Self::Again
            }
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                Self::ReadOnly
            }
            // Some of the keys are being moved to another node: each is available alone.
            ErrorKind::Server(ServerErrorKind::TryAgain) => Self::RetryAlone,
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Forbidden(shown(error)),
            _ if is_of_login(error) => Self::LoginRefused(shown(error)),
            ErrorKind::Io => Self::Lost,
            _ if error.is_connection_dropped() || error.is_io_error() => Self::Lost,
            _ => Self::Refused(shown(error)),
        }
    }

    /// Returns the failure that a reply reports, if it does.
    pub(super) fn in_reply(reply: Value) -> Option<Self> {
        reply.extract_error().err().map(|error| Self::of(&error))
    }

    /// Turns a redirection into an error with the next step.
    pub(super) fn without_redirection(self) -> Self {
        #[allow(clippy::wildcard_enum_match_arm, reason = "all other failures stay as they are")]
        match self {
            Self::Moved(address) | Self::Ask(address) => Self::Refused(format!(
                "the server is a node of a Cluster and redirects to {address}, which is not \
                 followed; set the store to redis-cluster://"
            )),
            other => other,
        }
    }

    /// Returns `true` if every call of this user fails so, until its login or its rights change.
    pub(super) fn is_of_user(&self) -> bool {
        match self {
            Self::LoginRefused(_) => true,
            Self::Forbidden(_) => self.is_of_command(),
            Self::Unavailable
            | Self::Late
            | Self::Lost
            | Self::Moved(_)
            | Self::Ask(_)
            | Self::Again
            | Self::ReadOnly
            | Self::NoScript
            | Self::NotSent
            | Self::RetryAlone
            | Self::Refused(_) => false,
        }
    }

    /// Returns `true` if the user may not run the command, with any key.
    pub(super) fn is_of_command(&self) -> bool {
        matches!(self, Self::Forbidden(text) if text.contains(OF_COMMANDS))
    }

    /// Classifies a reply that no script of this crate returns.
    pub(in crate::redis) fn of_reply(reply: Value) -> Self {
        Self::in_reply(reply)
            .unwrap_or_else(|| Self::Refused("unexpected reply to a script".to_owned()))
    }
}

/// Returns the address that a redirection names.
fn redirection(error: &RedisError) -> Option<ServerAddress> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(ServerAddress::Tcp(host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// Returns `true` if the server refuses the user or the password, or wants one.
pub(in crate::redis) fn is_of_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

impl From<CallFailure> for StoreError {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Unavailable
            | CallFailure::Moved(_)
            | CallFailure::Ask(_)
            | CallFailure::Again
            | CallFailure::ReadOnly
            | CallFailure::NoScript
            | CallFailure::NotSent => Self::Unavailable,
            CallFailure::Late => Self::Late,
            CallFailure::Lost => Self::Lost,
            CallFailure::RetryAlone
            | CallFailure::Forbidden(_)
            | CallFailure::LoginRefused(_)
            | CallFailure::Refused(_) => Self::Refused,
        }
    }
}
