//! `tollgate explain`: which rule a descriptor hits, and why.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::load;
use super::said::no_answer;
use crate::journal::key::read_text;
use crate::policy::explain;
use crate::settings::Reading;

/// Say which rule a descriptor hits and why: each step, what was tried, the limit in words
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate explain --policy config/policies/ tiers plan=free,user=42\n\nExit status 0 where a \
                        rule is hit, 1 where none is, 2 where the policies cannot be read."
)]
pub struct Explain {
    /// A policy file, or a directory that holds them; repeatable
    #[arg(long = "policy", value_name = "PATH", env = "TOLLGATE_POLICY", default_value = "config/policies")]
    policies: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// The domain
    domain: String,
    /// The descriptor: key=value,key=value; a value may hold further `=`
    #[arg(value_name = "KEY=VALUE,...")]
    descriptor: String,
}

impl Explain {
    /// Prints the explanation.
    pub fn run(self) -> ExitCode {
        let policies = match load(&self.reading, &self.policies).map(|(_, loaded)| loaded) {
            Ok(loaded) => loaded.policies,
            Err(report) => {
                // Nobody left to tell is no reason to fail.
                let _ = write!(io::stderr(), "{report}");
                return ExitCode::from(2);
            }
        };
        let owned = match read_text(&self.descriptor) {
            Ok(owned) => owned,
            Err(wrong) => return no_answer(format_args!("descriptor `{}`: {wrong}", self.descriptor)),
        };
        let (text, rule) = explain::explain(&policies, &self.domain, &owned.entries());
        let _ = write!(io::stdout(), "{text}");
        if rule.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
