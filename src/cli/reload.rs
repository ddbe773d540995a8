//! `tollgate reload`: makes a running service reload its policies, and prints the result.

use std::process::ExitCode;

use jiff::SignedDuration;

use super::api::ServerArgs;
use super::duration::duration;
use super::output::{print, print_stderr};
use super::replicas::{DEFAULT_WAIT, wait_for};
use super::{CommandError, try_block_on};
use crate::admin::api::policies::Reloaded;
use crate::printable::counted;

/// Reload the policies of a running service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The service reloads changed files within two seconds by itself. This command reloads at once and reports the result: \
the changes, or the errors in the files.

With --wait, it also waits until all replicas on the store have the same policies. They load their own files: this command \
makes only one of them reload at once.

Exit codes: 0 if the policies are in force, 1 if some replicas do not have them after --wait, 2 if they are rejected or a \
request fails.

Examples:
  # Reload the policies of the local service
  tollgate reload
  # Reload, and wait until all replicas on the same store have the new policies
  tollgate reload --wait 2m")]
pub struct Reload {
    #[command(flatten)]
    server: ServerArgs,
    /// Wait until all replicas have the same policies, at most this long.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = DEFAULT_WAIT, value_parser = duration)]
    wait: Option<SignedDuration>,
}

impl Reload {
    /// Requests the reload and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Reloaded { is_changed, changes, policies } =
            try_block_on(self.server.post("policies/reload", &()))?;
        let result = if is_changed { "reloaded" } else { "unchanged" };
        let rules = counted(policies.rules, "rule");
        let url = self.server.url();
        print(format_args!("policies {result} at {url}: version {}, {rules}\n", policies.version));
        if let Some(changes) = changes.filter(|_| is_changed) {
            print(format_args!("{changes}\n"));
        }
        let Some(wait) = self.wait else { return Ok(ExitCode::SUCCESS) };
        let waited = try_block_on(wait_for(&self.server, Some(policies.version), wait))?;
        print_stderr(waited.result(wait));
        Ok(if waited.is_everywhere { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
