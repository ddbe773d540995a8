//! `tollgate reset`: resets a counter to its unused state.

use std::process::ExitCode;

use super::counter::CounterArgs;

/// Reset a counter to its unused state: no hits used, no debt, no grant.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 done, 2 refused, or no answer.

Example:
  tollgate reset gateway user=ann")]
pub struct ResetArgs {
    #[command(flatten)]
    which: CounterArgs,
}

impl ResetArgs {
    /// Requests the reset and prints the result.
    pub fn run(self) -> ExitCode {
        self.which.change("counter/reset", ())
    }
}
