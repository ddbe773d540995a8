//! Problems of the values of flags.

use std::fmt::Display;

/// A problem of the value of a flag: what was found, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum FlagError {
    /// Not in the form that is allowed, or not one of the values.
    #[error("expected {allowed}, found `{found}`")]
    Unexpected { allowed: String, found: String },
    /// As `Unexpected`, for a value that may be a secret or that clap shows.
    #[error("expected {allowed}")]
    UnexpectedHidden { allowed: &'static str },
    /// Another reason, often that of the parser of another module or of the system.
    #[error("{reason}")]
    Refused { reason: String },
}

impl FlagError {
    /// Creates the error of a value that is not one of those that are allowed.
    pub(super) fn unexpected(allowed: impl Display, found: &str) -> Self {
        Self::Unexpected { allowed: allowed.to_string(), found: found.to_owned() }
    }

    /// Creates the error of a value that is refused for this reason.
    pub(super) fn refused(reason: impl Display) -> Self {
        Self::Refused { reason: reason.to_string() }
    }
}
