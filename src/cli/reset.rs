//! `tollgate reset`: a counter becomes as if never used.

use std::process::ExitCode;

use super::counter::Which;

/// Have a counter be as if never used: nothing used, owed or granted.
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
    /// Asks and prints.
    pub fn run(self) -> ExitCode {
        self.which.change("counter/reset", ())
    }
}
