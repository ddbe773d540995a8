//! `tollgate refund`: gives hits back to a counter.

use std::process::ExitCode;

use serde::Serialize;

use super::counter::CounterArgs;

/// Give hits back to a counter, newest first, never more than were used.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 done, 2 refused, or no answer.

Example:
  tollgate refund 5 gateway user=ann")]
pub struct Refund {
    /// Number of hits.
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
    pub fn run(self) -> ExitCode {
        self.which.change("counter/refund", RefundRequest { hits: self.hits })
    }
}
