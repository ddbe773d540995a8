//! `tollgate check`: validates policies before they are deployed.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::load;
use super::said::say;
use crate::policy::{Imposes, PolicyReport, PolicySet, Rule};
use crate::settings::{MessageFlag, ReadingFlags};

/// Check policy files: exit status 0, or 1 with a report of all problems
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate check config/policies/\n\nErrors are printed to standard error, with file, line and \
                        column; warnings too, and do not change the exit status."
)]
pub struct CheckArgs {
    /// Policy files, or directories that contain them (*.yaml, *.yml)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    message: MessageFlag,
}

impl CheckArgs {
    /// Runs the check and prints the result.
    pub fn run(self) -> ExitCode {
        match self.check() {
            Ok((found, warnings)) => {
                // A closed standard error is no reason to fail.
                let _ = write!(io::stderr(), "{warnings}");
                say(format_args!("{found}\nrequests: --max-message of {}\n", self.message.room()));
                ExitCode::SUCCESS
            }
            Err(report) => {
                let _ = writeln!(io::stderr(), "{report}\nnot ok: {} to mend", counted(report.len()));
                ExitCode::FAILURE
            }
        }
    }

    fn check(&self) -> Result<(PolicyTotals, PolicyReport), PolicyReport> {
        let (files, loaded) = load(&self.reading, &self.paths)?;
        Ok((PolicyTotals::of(files, &loaded.policies, loaded.warnings.len()), loaded.warnings))
    }
}

/// Returns `1 thing` or `7 things`.
fn counted(things: usize) -> String {
    if things == 1 { "1 thing".to_owned() } else { format!("{things} things") }
}

/// Summary of the policies, in numbers.
#[derive(Debug)]
struct PolicyTotals {
    files: usize,
    domains: usize,
    rules: usize,
    limits: usize,
    candidates: usize,
    warnings: usize,
    version: String,
}

impl PolicyTotals {
    fn of(files: usize, policies: &PolicySet, warnings: usize) -> Self {
        Self {
            files,
            domains: policies.policies().count(),
            rules: policies.rules().count(),
            limits: policies.rules().filter(|rule| matches!(rule.imposes(), Imposes::Limit(_))).count(),
            candidates: policies.rules().filter_map(Rule::candidate).count(),
            warnings,
            version: policies.version().to_owned(),
        }
    }
}

impl fmt::Display for PolicyTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
        let parts = [
            count(self.files, "file"),
            count(self.domains, "domain"),
            count(self.rules, "rule"),
            count(self.limits, "limit"),
        ];
        let candidates = (self.candidates > 0).then(|| count(self.candidates, "candidate"));
        let parts: Vec<_> = parts.into_iter().chain(candidates).chain([count(self.warnings, "warning")]).collect();
        write!(f, "ok: {}; version {}", parts.join(", "), self.version)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use std::fs;

    fn check(text: &str) -> Result<(PolicyTotals, PolicyReport), PolicyReport> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(file.path(), text).unwrap();
        #[derive(clap::Parser)]
        struct CheckCommand {
            #[command(flatten)]
            check: CheckArgs,
        }
        let arguments = [OsStr::new("tollgate"), file.path().as_os_str()];
        <CheckCommand as clap::Parser>::parse_from(arguments).check.check()
    }

    #[test]
    fn a_good_file_is_told_in_numbers() {
        let text = "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1}\n- key: b\n";
        let (found, warnings) = check(text).unwrap();
        let text = found.to_string();
        assert!(text.starts_with("ok: 1 file, 1 domain, 2 rules, 1 limit, 0 warnings; version "), "{text}");
        assert!(warnings.is_empty());
    }

    #[test]
    fn a_bad_file_is_a_report() {
        assert_eq!(check("domain: ''\n").unwrap_err().len(), 1);
    }
}
