//! Errors of subcommands that query a service, a store or policies.

use std::io;
use std::time::Duration;

use super::api::AdminCallError;
use crate::policy::requests::Unmappable;
use crate::policy::{NoCounter, ProblemReport};
use crate::settings::FlagError;
use crate::store::backend::BackendError;
use crate::telemetry::journal::key::NoEntries;

/// The reason why a subcommand failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// The system lacks the resources for a runtime.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Admin(#[from] AdminCallError),
    /// As `Admin`, for a question that files can answer.
    #[error("{0}; to read policy files instead: --policy PATH")]
    NotExplained(AdminCallError),
    /// Reports of policies have the prefix `error:` on each of their problems.
    #[error("{0}")]
    Policies(#[from] ProblemReport),
    #[error("{0}")]
    Flag(#[from] FlagError),
    #[error("descriptor `{text}`: {error}")]
    Descriptor { text: String, error: NoEntries },
    #[error("no request mapping `{name}` (mappings: {})", known.join(", "))]
    NoMapping { name: String, known: Vec<String> },
    #[error("--request must be a method and a target, found `{found}`")]
    RequestLine { found: String },
    #[error("--header must be NAME: VALUE, found `{found}`")]
    Header { found: String },
    #[error("denied: {0}")]
    Denied(#[from] Unmappable),
    #[error("`memory` is part of the service and needs no check; expected a Redis URL")]
    MemoryStore,
    #[error(
        "counters of `memory` can only be queried through the service; expected a Redis URL for --store"
    )]
    MemoryCounters,
    #[error("cannot connect to the store within {within:?}{}", reason_text(reason.as_deref()))]
    Unreachable { within: Duration, reason: Option<String> },
    #[error("cannot connect to --store within {within:?}")]
    UnreachableStore { within: Duration },
    #[error("{0}")]
    Store(#[from] BackendError),
    #[error("{0}")]
    NoCounter(NoCounter),
    #[error("rule `{rule}` does not record callers; add `record: [key]` to its rate_limit")]
    NotRecorded { rule: String },
}

fn reason_text(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}
