//! `tollgate check`: whether policies can be used, before they are.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::policy::source::files;
use crate::policy::{self, Imposes, Options, PolicySet, Report};

/// Check policy files: exit status 0, or 1 with a report of everything that is wrong
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate check config/policies/\n\nErrors are printed to standard error, with file, line and \
                        column; warnings too, and do not change the exit status."
)]
pub struct Check {
    /// Policy files, or directories that hold them (*.yaml, *.yml)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Add up the rules of a domain that stands in several documents, instead of refusing it
    #[arg(long)]
    merge_domains: bool,
    /// A file of options for rules that stand in the others; repeatable
    #[arg(long, value_name = "FILE")]
    overlay: Vec<PathBuf>,
}

impl Check {
    /// Prints what was found.
    pub fn run(self) -> ExitCode {
        match self.check() {
            Ok((found, warnings)) => {
                // Nobody left to tell is no reason to fail.
                let _ = write!(io::stderr(), "{warnings}");
                let _ = writeln!(io::stdout(), "{found}");
                ExitCode::SUCCESS
            }
            Err(report) => {
                let _ = write!(io::stderr(), "{report}");
                ExitCode::FAILURE
            }
        }
    }

    fn check(&self) -> Result<(Found, Report), Report> {
        let sources = files::read(&self.paths, &self.overlay)?;
        let loaded = policy::load(&sources, &Options { merge_domains: self.merge_domains })?;
        Ok((Found::of(sources.len(), &loaded.policies, loaded.warnings.len()), loaded.warnings))
    }
}

/// What there is, in numbers.
#[derive(Debug)]
struct Found {
    files: usize,
    domains: usize,
    rules: usize,
    limits: usize,
    warnings: usize,
    version: String,
}

impl Found {
    fn of(files: usize, policies: &PolicySet, warnings: usize) -> Self {
        Self {
            files,
            domains: policies.policies().count(),
            rules: policies.rules().count(),
            limits: policies.rules().filter(|rule| matches!(rule.imposes(), Imposes::Limit(_))).count(),
            warnings,
            version: policies.version().to_owned(),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
        let parts = [
            count(self.files, "file"),
            count(self.domains, "domain"),
            count(self.rules, "rule"),
            count(self.limits, "limit"),
            count(self.warnings, "warning"),
        ];
        write!(f, "ok: {}; version {}", parts.join(", "), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn check(text: &str) -> Result<(Found, Report), Report> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(file.path(), text).unwrap();
        Check { paths: vec![file.path().to_owned()], merge_domains: false, overlay: vec![] }.check()
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
