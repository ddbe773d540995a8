//! All errors that prevent the service from starting, reported together.

use std::{fmt, io};

/// All errors that prevent the service from starting.
#[derive(Debug, Default)]
pub struct CannotStart(pub(super) Vec<String>);

impl CannotStart {
    /// Returns what was bound, or adds the error.
    pub(super) fn bound<T>(
        &mut self,
        flag: &str,
        address: impl fmt::Display,
        bound: io::Result<T>,
    ) -> Option<T> {
        bound.inspect_err(|error| self.0.push(format!("error: {flag} {address}: {error}"))).ok()
    }

    /// Returns what was loaded, or adds the errors.
    pub(super) fn loaded<T>(&mut self, loaded: Result<T, Vec<String>>) -> Option<T> {
        match loaded {
            Ok(loaded) => Some(loaded),
            Err(problems) => {
                self.0.extend(problems.iter().map(|problem| format!("error: {problem}")));
                None
            }
        }
    }
}

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{}", problem.trim_end()))
    }
}

impl std::error::Error for CannotStart {}
