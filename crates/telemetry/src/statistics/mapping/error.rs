//! Errors in mapping files.

use std::fmt;

use thiserror::Error;

/// The error for a text that is not a mapping file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingFileError {
    pub(super) file: Option<String>,
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

/// The reason why a mapping of a file is ignored.
#[derive(Clone, Debug, Error)]
pub(super) enum MappingError {
    #[error("missing `match`")]
    NoMatch,
    #[error("missing `name`")]
    NoName,
    #[error(transparent)]
    Pattern(#[from] regex::Error),
    #[error("a `*` must be a whole level, found `{0}`")]
    PartOfLevel(String),
    #[error("expected action map or drop, found `{0}`")]
    Action(String),
    #[error("expected match_metric_type counter, gauge or observer, found `{0}`")]
    MetricType(String),
    #[error("expected `scale` to be a number above 0")]
    Scale,
    #[error("`{0}` is not a valid label name")]
    LabelName(String),
    #[error("expected a label value to be a string")]
    LabelValue,
}

impl fmt::Display for MappingFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        let space = if self.file.is_some() { " " } else { "" };
        write!(f, "{space}{}", self.message)
    }
}

impl std::error::Error for MappingFileError {}
