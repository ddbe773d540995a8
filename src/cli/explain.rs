//! `tollgate explain`: shows which rule a descriptor matches, and why.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::load;
use super::said::{no_answer, say};
use crate::journal::key::read_text;
use crate::policy::explain;
use crate::settings::ReadingFlags;

/// Show which rule a descriptor matches and why: each step, what was tried, the limit in words
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate explain --policy config/policies/ tiers plan=free,user=42\n\nExit status 0 where a \
                        rule is hit, 1 where none is, 2 where the policies cannot be read."
)]
pub struct Explain {
    /// Policy file, or a directory that contains them; repeatable
    #[arg(long = "policy", value_name = "PATH", env = "TOLLGATE_POLICY", default_value = "config/policies")]
    policies: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Domain of the descriptor
    domain: String,
    /// Descriptor: key=value,key=value; a value may contain further `=`
    #[arg(value_name = "KEY=VALUE,...")]
    descriptor: String,
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
            Err(wrong) => return no_answer(format_args!("descriptor `{}`: {wrong}", self.descriptor)),
        };
        let (text, rule) = explain::explain(&policies, &self.domain, &owned.entries());
        say(text);
        if rule.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
