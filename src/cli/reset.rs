//! `tollgate reset`: resets a counter to its unused state.

use std::process::ExitCode;

use super::counter::Which;

/// Reset a counter to its unused state: no hits used, no debt, no grant.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 done, 2 refused, or no answer.

Example:
  tollgate reset gateway user=ann")]
pub struct Reset {
    #[command(flatten)]
    which: Which,
}

impl Reset {
    /// Requests the reset and prints the result.
    pub fn run(self) -> ExitCode {
        self.which.change("counter/reset", ())
    }
}
