//! `tollgate reset`: resets a counter.

use std::process::ExitCode;

use super::counter::CounterArgs;

/// Reset a counter: clears used hits, debt, grants and recorded callers, and sets its clock.
///
/// The counter is then as if never used, by the store's clock. It also ends the stop of a counter
/// that was written while that clock was ahead.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if the counter is reset, 2 if the request is rejected or fails.

Examples:
  # Reset the counter of user ann
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
