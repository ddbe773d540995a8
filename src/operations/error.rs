//! Reasons why an operation failed.

use tokio::task::JoinError;

use crate::grpc::request::InvalidRequest;
use crate::limiter::Undecided;
use crate::policy::{NoCounter, ProblemReport};
use crate::store::StoreError;
use crate::store::backend::BackendError;
use crate::store::scan::ScanError;
use crate::telemetry::journal::key::NoEntries;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum OperationError {
    /// The descriptor cannot be parsed.
    #[error("descriptor `{descriptor}`: {error}")]
    Descriptor { descriptor: String, error: NoEntries },
    /// The request is not valid.
    #[error("{0}")]
    Request(#[from] InvalidRequest),
    /// No counter has that descriptor.
    #[error("{0}")]
    NoCounter(NoCounter),
    /// The rule does not count its callers.
    #[error("rule `{rule}` does not record callers; add `record: [key]` to its rate_limit")]
    NotRecorded { rule: String },
    /// The descriptor has hashes in place of values.
    #[error(
        "rule `{rule}` hashes its values, and its counters cannot be looked up by hash; use the original value"
    )]
    HashedValues { rule: String },
    /// The rule counts nothing.
    #[error(
        "rule `{rule}` is a ban (requests_per_unit: 0) and has no counter; to admit callers, change the policy"
    )]
    Ban { rule: String },
    /// The store does not list callers.
    #[error("callers cannot be listed: {0}")]
    Callers(BackendError),
    /// The store does not list counters.
    #[error("counters cannot be listed: {0}")]
    Counters(ScanError),
    /// The position is that of no server of the store.
    #[error("{0}")]
    Position(ScanError),
    /// Policies are not read from files.
    #[error("policies come from a control plane and cannot be reloaded on request")]
    ControlPlane,
    /// The policies were read but are not valid.
    #[error("{0}\nthe previous policies remain in force")]
    Rejected(#[from] ProblemReport),
    /// The policies were not read, since the process ends.
    #[error("{0}")]
    Interrupted(#[from] JoinError),
    /// No policies are in force yet.
    #[error("no policy loaded yet")]
    NoPolicy,
    /// There is no decision.
    #[error("{0}")]
    Undecided(#[from] Undecided),
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
    /// The store failed, and may have applied a change.
    #[error("{0}; the change may have been applied: inspect the counter before you retry")]
    MaybeApplied(StoreError),
    /// The store failed while it listed counters.
    #[error("{0}")]
    Scan(ScanError),
}
