//! `tollgate reload`: makes a running service reload its policies, and prints the result.

use std::process::ExitCode;

use super::api::ServerArgs;
use super::output::print;
use super::{CommandError, try_block_on};
use crate::admin::api::policies::Reloaded;
use crate::printable::counted;

/// Reload the policies of a running service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The service reloads changed files within two seconds by itself. This command reloads at once and reports the result:
the changes, or the errors in the files.

Exit codes: 0 if the policies are in force, 2 if they are rejected or the request fails.

Examples:
  # Reload the policies of the local service
  tollgate reload")]
pub struct Reload {
    #[command(flatten)]
    server: ServerArgs,
}

impl Reload {
    /// Requests the reload and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Reloaded { is_changed, changes, policies } =
            try_block_on(self.server.post("policies/reload", &()))?;
        let result = if is_changed { "reloaded" } else { "unchanged" };
        let rules = counted(policies.rules, "rule");
        print(format_args!("policies {result}: version {}, {rules}\n", policies.version));
        if let Some(changes) = changes.filter(|_| is_changed) {
            print(format_args!("{changes}\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}
