//! Sources of policies.

pub mod files;

use crate::{ProblemReport, Source};

/// The result of one reading.
pub type SourceReading = Result<Vec<Source>, ProblemReport>;
