//! All errors that prevent the service from starting, reported together.

use std::fmt;

/// All errors that prevent the service from starting.
#[derive(Debug, Default)]
pub struct CannotStart(pub(super) Vec<String>);

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{}", problem.trim_end()))
    }
}

impl std::error::Error for CannotStart {}
