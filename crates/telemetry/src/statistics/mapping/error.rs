//! Errors in mapping files.

use thiserror::Error;

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
