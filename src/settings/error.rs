//! Problems of the values of flags.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{MemoryExcess, Size};
use crate::descriptor::HashKey;
use crate::receipts::ReceiptKeysError;
use crate::xds::XdsTargetError;

/// A problem of the value of a flag: what was found, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum FlagError {
    /// Not in the form that is allowed, or not one of the values.
    #[error("expected {allowed}, found `{found}`")]
    Unexpected { allowed: &'static str, found: String },
    /// As `Unexpected`, for a value that may be a secret or that clap shows.
    #[error("expected {allowed}")]
    UnexpectedHidden { allowed: &'static str },
    /// Neither the value that another error describes nor `off`.
    #[error("{0}; or off")]
    NeitherNorOff(Box<FlagError>),
    /// No protocol of OTLP.
    #[error("expected grpc or http/protobuf, found `{found}`; --no-spans sends none")]
    OtlpProtocol { found: String },
    /// No pair of a key and a value.
    #[error("expected key=value, found {found} in `***`, which may be a secret")]
    HiddenPair { found: &'static str },
    /// A size outside of its range.
    #[error("expected {least} to {most}, found `{found}`")]
    SizeRange { least: Size, most: Size, found: String },
    /// A number above its maximum.
    #[error("expected at most {most}, found {found}")]
    AboveMaximum { most: usize, found: usize },
    /// Less memory than its purpose needs.
    #[error("{purpose} need at least {least}, found `{found}`")]
    TooLittleMemory { purpose: &'static str, least: Size, found: String },
    /// A size that one connection could use, above its share of the memory for clients.
    #[error("requires --client-memory-max of at least {needed}, found {found}")]
    NeedsClientMemory { needed: Size, found: Size },
    /// More memory than the process may use.
    #[error(transparent)]
    Memory(#[from] MemoryExcess),
    /// A flag that excludes this one is set.
    #[error("cannot be used with {with}")]
    Conflict { with: &'static str },
    /// Another flag is missing.
    #[error("needs {what}")]
    Needs { what: &'static str },
    /// Other flags are missing.
    #[error("requires {what}")]
    Requires { what: String },
    /// No index of a replica.
    #[error("expected an index below --replicas {replicas}, found {found}")]
    ReplicaIndex { replicas: u32, found: u32 },
    /// A maximum delay below the minimum.
    #[error("expected at least {least:?}, which --xds-backoff-min is, found {found:?}")]
    Backoff { least: Duration, found: Duration },
    /// An admin port that anyone can reach and change.
    #[error(
        "{listen} is reachable from other machines without authentication: set --admin-token-file (and \
         --admin-read-token-file) or --admin-tls-client-ca, listen on 127.0.0.1:{}, or set \
         --admin-open-pages to serve only the plain pages",
        listen.port()
    )]
    OpenAdmin { listen: SocketAddr },
    /// A secret that can be guessed.
    #[error("a key must have at least {} bytes", HashKey::MIN_BYTES)]
    ShortKey,
    /// A file without keys for receipts.
    #[error("{}: {error}", file.display())]
    ReceiptKeys { file: PathBuf, error: ReceiptKeysError },
    /// No address of a control plane.
    #[error(transparent)]
    XdsTarget(#[from] XdsTargetError),
    /// The parser of another module, or the system, refused the value.
    #[error("{reason}")]
    Refused { reason: String },
}

impl FlagError {
    /// Creates the error of a value that is not one of those that are allowed.
    pub(super) fn unexpected(allowed: &'static str, found: &str) -> Self {
        Self::Unexpected { allowed, found: found.to_owned() }
    }

    /// Creates the error of a value that another module or the system refused.
    pub(super) fn refused(reason: impl Display) -> Self {
        Self::Refused { reason: reason.to_string() }
    }
}
