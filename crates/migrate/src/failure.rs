//! The errors of a migration: a file that cannot be read, understood or written.

use std::fmt::Display;

use tollgate_policy::ProblemReport;

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A manifest is no YAML.
    #[error("{0}")]
    Yaml(ProblemReport),
    /// A file cannot be read, understood or written; the text names the file.
    #[error("{0}")]
    File(String),
}

impl MigrationError {
    pub(crate) fn file(name: impl Display, reason: impl Display) -> Self {
        Self::File(format!("{name}: {reason}"))
    }
}

/// The reason why a part of a deployment cannot be read. It contains no values, which may be
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnreadablePart(pub(crate) String);
