//! `tollgate reset`: resets a counter, or all that are ahead of the store's clock.

use std::process::ExitCode;

use super::api::ServerArgs;
use super::counter::CounterArgs;
use super::output::{print, seconds_text};
use super::{CommandError, table, try_block_on};
use crate::admin::api::ahead::{ResetAheadView, ToResetAhead};
use crate::printable::counted;

/// Reset a counter: clears used hits, debt, grants and recorded callers, and sets its clock.
///
/// The counter is then as if never used, by the store's clock. It also ends the stop of a counter
/// that was written while that clock was ahead.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --ahead-of-clock, at most 10,000 counters are examined per second, and each part is recorded in the audit log. The \
command can be repeated. Counters in Redis need the permission +scan.

Exit codes: 0 if the counters are reset, 2 if the request is rejected or fails.

Examples:
  # Reset the counter of user ann
  tollgate reset gateway user=ann
  # Reset all counters that were written while the store's clock was ahead
  tollgate reset --ahead-of-clock")]
pub struct ResetArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
    /// Reset all counters whose clock is ahead of the store's by a second or more. They stand still
    /// until then otherwise.
    #[arg(long, conflicts_with_all = ["domain", "descriptor"])]
    ahead_of_clock: bool,
    /// Domain of the counter.
    #[arg(required_unless_present = "ahead_of_clock")]
    domain: Option<String>,
    /// Descriptor of the counter, key=value,key=value, as in the output of `tollgate denials`.
    #[arg(value_name = "KEY=VALUE,...", required_unless_present = "ahead_of_clock")]
    descriptor: Option<String>,
}

impl ResetArgs {
    /// Requests the reset and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Self { server, json, domain, descriptor, .. } = self;
        if let Some((domain, descriptor)) = domain.zip(descriptor) {
            let which = CounterArgs { server, json, domain, descriptor };
            return which.change("counter/reset", ());
        }
        let mut total = ResetAheadView { examined: 0, reset: 0, farthest_us: 0, next: None };
        try_block_on(reset_ahead(&server, &mut total))
            .map_err(|error| format!("{error}; until then: {}", text(&total).trim_end()))?;
        print(if json {
            table::json(&total)
        } else {
            format!("{}: {}", server.url(), text(&total))
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Requests one part after the other, and adds up the results.
async fn reset_ahead(server: &ServerArgs, total: &mut ResetAheadView) -> Result<(), CommandError> {
    let mut from = None;
    loop {
        let body = ToResetAhead { from };
        let part: ResetAheadView = server.post("counters/reset-ahead", &body).await?;
        total.examined = total.examined.saturating_add(part.examined);
        total.reset = total.reset.saturating_add(part.reset);
        total.farthest_us = total.farthest_us.max(part.farthest_us);
        from = part.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

fn text(total: &ResetAheadView) -> String {
    let examined = counted(total.examined, "counter");
    if total.reset == 0 {
        return format!("{examined} examined, none ahead of the store's clock\n");
    }
    format!(
        "{examined} examined, {} reset; the farthest was {} ahead of the store's clock\n",
        total.reset,
        seconds_text(i64::try_from(total.farthest_us.div_ceil(1_000_000)).unwrap_or(i64::MAX))
    )
}
