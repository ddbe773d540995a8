//! `tollgate grant`: grants hits in addition to a limit, until an instant.

use std::process::ExitCode;

use serde::Serialize;

use super::CommandError;
use super::counter::CounterArgs;

/// Grant hits in addition to the limit of a counter, for a limited time. They are used when the
/// limit is exhausted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A new grant replaces the current one, so repeating the command does not add hits. A grant of 0 hits ends it.

Exit codes: 0 if the hits are granted, 2 if the request is rejected or fails.

Examples:
  # Grant 100 hits for 10 minutes
  tollgate grant 100 --for 10m gateway user=ann
  # Grant 100 hits until a fixed time
  tollgate grant 100 --until 2026-06-01T12:30:00Z gateway user=ann
  # End the grant
  tollgate grant 0 gateway user=ann")]
#[group(skip)]
pub struct GrantArgs {
    /// Number of hits to grant.
    hits: u32,
    #[command(flatten)]
    end: Expiry,
    #[command(flatten)]
    which: CounterArgs,
}

/// End of the grant; required unless it has 0 hits.
#[derive(Debug, clap::Args, Serialize)]
#[group(multiple = false)]
struct Expiry {
    /// Duration of the grant, such as 10m.
    #[arg(long, value_name = "DURATION")]
    r#for: Option<String>,
    /// End of the grant, as RFC 3339.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

#[derive(Serialize)]
struct GrantRequest {
    hits: u32,
    #[serde(flatten)]
    end: Expiry,
}

impl GrantArgs {
    /// Requests the grant and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Self { hits, mut end, which } = self;
        if end.r#for.is_none() && end.until.is_none() {
            if hits > 0 {
                return Err("a grant has an end: set --for DURATION or --until TIME".into());
            }
            // A grant of no hits has no effect, however long it is.
            end.r#for = Some("1m".to_owned());
        }
        which.change("counter/grant", GrantRequest { hits, end })
    }
}
