//! `tollgate explain`: shows which rule a descriptor matches, and why.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::load;
use super::output::{print, report_error};
use crate::journal::key::read_text;
use crate::policy::explain;
use crate::settings::ReadingFlags;

/// Show which rule a descriptor matches, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints each matching step with the rules that were tried, and the limit of the matching rule.

Exit codes: 0 if a rule matches, 1 if none matches, 2 if the policies or the descriptor are invalid.

Examples:
  # Explain the rule for user 42 on the free plan
  tollgate explain --policy config/policies/ tiers plan=free,user=42")]
pub struct Explain {
    /// Policy file or directory. May be repeated
    #[arg(
        long = "policy",
        value_name = "PATH",
        env = "TOLLGATE_POLICY",
        default_value = "config/policies"
    )]
    policies: Vec<PathBuf>,
    /// Domain of the descriptor
    domain: String,
    /// Descriptor: key=value,key=value. A value may contain `=`
    #[arg(value_name = "KEY=VALUE,...")]
    descriptor: String,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

impl Explain {
    /// Prints the explanation.
    pub fn run(self) -> ExitCode {
        let policies = match load(&self.reading, &self.policies).map(|(_, loaded)| loaded) {
            Ok(loaded) => loaded.policies,
            Err(report) => {
                // A closed standard error is no reason to fail.
                let _ = write!(io::stderr(), "{report}");
                return ExitCode::from(2);
            }
        };
        let owned = match read_text(&self.descriptor) {
            Ok(owned) => owned,
            Err(error) => {
                return report_error(format_args!("descriptor `{}`: {error}", self.descriptor));
            }
        };
        let (text, rule) = explain::explain(&policies, &self.domain, &owned.entries());
        print(text);
        if rule.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
