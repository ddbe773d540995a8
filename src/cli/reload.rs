//! `tollgate reload`: makes a running service reload its policies, and prints the result.

use std::process::ExitCode;

use super::api::ServerArgs;
use super::said::{no_answer, say};
use super::{block_on, table};
use crate::admin::api::policies::Reloaded;

/// Reload the policies of a running service, and print the result.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Changed files are seen without it within two seconds; this tells what is wrong with them, and when they are in force.
Exit code: 0 in force, 2 refused, or no answer.")]
pub struct Reload {
    #[command(flatten)]
    server: ServerArgs,
}

impl Reload {
    /// Requests the reload and prints the result.
    pub fn run(self) -> ExitCode {
        let told = block_on(self.server.post::<Reloaded>("policies/reload", &()));
        match told.map_err(|error| error.to_string()).and_then(|told| told) {
            Ok(Reloaded { is_changed, changes, policies }) => {
                let what = if is_changed { "other" } else { "the same" };
                let rules = table::counted(policies.rules, "rule");
                say(format_args!("{what} policies are in force: {}, {rules}\n", policies.version));
                if let Some(changes) = changes.filter(|_| is_changed) {
                    say(format_args!("{changes}\n"));
                }
                ExitCode::SUCCESS
            }
            Err(error) => no_answer(error),
        }
    }
}
