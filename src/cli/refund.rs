//! `tollgate refund`: gives hits back to a counter.

use std::process::ExitCode;

use serde::Serialize;

use super::CommandError;
use super::counter::CounterArgs;

/// Refund hits to a counter, newest first, and never more than were used.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if the hits are refunded, 2 if the request is rejected or fails.

Examples:
  # Refund 5 hits to user ann
  tollgate refund 5 gateway user=ann")]
pub struct Refund {
    /// Number of hits to refund.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    hits: u32,
    #[command(flatten)]
    which: CounterArgs,
}

#[derive(Serialize)]
struct RefundRequest {
    hits: u32,
}

impl Refund {
    /// Requests the refund and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        self.which.change("counter/refund", RefundRequest { hits: self.hits })
    }
}
