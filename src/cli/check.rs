//! `tollgate check`: validates policies before they are deployed.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::findings::{FileFinding, JunitCase, ResultFormat, github, junit};
use super::load;
use super::output::{print, print_json};
use crate::policy::{Imposes, Loaded, PolicySet, ProblemReport, Rule};
use crate::printable::counted;
use crate::settings::{MessageFlag, ReadingFlags};
use crate::yaml::report::{Problem, Severity};

/// Validate policy files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All errors and warnings are printed to standard error, with file, line and column. With --format, they are printed to standard \
output instead, in that format.

Exit codes: 0 if the policies are valid, even with warnings, 1 if they are not, or --rlqs finds problems.

Examples:
  # Validate the policies of a directory
  tollgate check config/policies/
  # In a workflow of GitHub Actions: errors and warnings are shown beside the lines of a pull request
  tollgate check --format github config/policies/")]
pub struct CheckArgs {
    /// Policy files, or directories that contain them (*.yaml, *.yml)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Format of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
    /// Also print which limits RLQS can enforce, and what would help the others. Exit code 1 if
    /// there are others, or buckets that several rules could match
    #[arg(long, conflicts_with = "format")]
    rlqs: bool,
    #[command(flatten)]
    message: MessageFlag,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

impl CheckArgs {
    /// Runs the check and prints the result.
    pub fn run(self) -> ExitCode {
        let checked = self.check();
        if self.format == ResultFormat::Text {
            self.print_text(&checked);
        } else {
            print_for_programs(self.format, &checked);
        }
        let is_good = checked.as_ref().is_ok_and(|(_, loaded)| self.print_quotas(&loaded.policies));
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Prints the report of RLQS, if it is wanted. Returns `false` if it has problems.
    fn print_quotas(&self, policies: &PolicySet) -> bool {
        if !self.rlqs {
            return true;
        }
        let (text, is_good) = policies.quota_report();
        print(format_args!("\nRLQS:\n{text}"));
        is_good
    }

    fn print_text(&self, checked: &Checked) {
        match checked {
            Ok((found, loaded)) => {
                // A closed standard error is no reason to fail.
                let _ = write!(io::stderr(), "{}", loaded.warnings);
                let room = self.message.room(loaded.policies.most_open_limits());
                print(format_args!("{found}\nrequest size: --max-message {room}\n"));
            }
            Err(report) => {
                let _ = writeln!(io::stderr(), "{report}\nerror: {}", totals_of(report));
            }
        }
    }

    fn check(&self) -> Checked {
        let (files, loaded) = load(&self.reading, &self.paths)?;
        Ok((PolicyTotals::of(files, &loaded.policies, loaded.warnings.len()), loaded))
    }
}

/// The totals and the policies, or all problems.
type Checked = Result<(PolicyTotals, Loaded), ProblemReport>;

/// Prints all errors and warnings in a format for programs.
fn print_for_programs(format: ResultFormat, checked: &Checked) {
    let report = match checked {
        Ok((_, loaded)) => &loaded.warnings,
        Err(report) => report,
    };
    let found: Vec<_> = report.iter().map(finding_of).collect();
    match format {
        ResultFormat::Text => {}
        ResultFormat::Json => {
            let version = checked.as_ref().ok().map(|(totals, _)| &totals.version);
            let found: Vec<_> = found.iter().map(FileFinding::json).collect();
            print_json(format_args!(
                "{}\n",
                json!({ "ok": checked.is_ok(), "version": version, "problems": found })
            ));
        }
        ResultFormat::Github => print(github(&found)),
        ResultFormat::Junit => {
            let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
            let mut cases: Vec<_> = errors.map(case_of).collect();
            if cases.is_empty() {
                cases.push(JunitCase {
                    file: "policies".to_owned(),
                    name: "valid".to_owned(),
                    failures: Vec::new(),
                    warnings: Vec::new(),
                });
            }
            print(junit("tollgate check", &cases));
        }
    }
}

fn finding_of(problem: &Problem) -> FileFinding {
    let (file, position) = problem.place().unwrap_or_default();
    FileFinding {
        severity: problem.severity(),
        file: file.to_owned(),
        line: position.map(|(line, _)| line),
        column: position.map(|(_, column)| column),
        message: [&[problem.message().to_owned()], problem.notes()].concat().join("\n"),
    }
}

fn case_of(finding: &FileFinding) -> JunitCase {
    let FileFinding { file, line, message, .. } = finding;
    let name = line.map_or_else(|| "file".to_owned(), |line| format!("line {line}"));
    JunitCase { file: file.clone(), name, failures: vec![message.clone()], warnings: Vec::new() }
}

/// Returns the numbers of errors and of warnings; those that are not listed are only counted.
fn totals_of(report: &ProblemReport) -> String {
    let listed = report.iter().count();
    let errors = report.iter().filter(|problem| problem.severity() == Severity::Error).count();
    let warnings = listed - errors;
    let more = report.len().saturating_sub(listed);
    let mut parts = vec![counted(errors, "error")];
    if warnings > 0 {
        parts.push(counted(warnings, "warning"));
    }
    if more > 0 {
        parts.push(format!("{more} not listed"));
    }
    parts.join(", ")
}

/// Requirement of limits with holds on their callers.
const IDS: &str = "requests need a last entry tollgate.reserve with an ID that is unique and that clients cannot choose";

/// Summary of the policies, in numbers.
#[derive(Debug)]
struct PolicyTotals {
    files: usize,
    domains: usize,
    rules: usize,
    limits: usize,
    candidates: usize,
    /// Mappings of HTTP requests.
    mappings: usize,
    /// Rate limits with holds.
    holding: usize,
    /// Limits on hits in flight.
    in_flight: usize,
    warnings: usize,
    version: String,
}

impl PolicyTotals {
    fn of(files: usize, policies: &PolicySet, warnings: usize) -> Self {
        let limits = policies.rules().filter_map(|rule| match rule.imposes() {
            Imposes::Limit(limit) => Some(limit),
            Imposes::Nothing | Imposes::Unlimited => None,
        });
        let limits: Vec<_> = limits.collect();
        let in_flight = limits.iter().filter(|limit| limit.in_flight().is_some()).count();
        // A limit on hits in flight has holds as well.
        let with_holds = limits.iter().filter(|limit| limit.hold().is_some()).count();
        Self {
            files,
            domains: policies.policies().count(),
            rules: policies.rules().count(),
            limits: limits.len(),
            holding: with_holds.saturating_sub(in_flight),
            in_flight,
            candidates: policies.rules().filter_map(Rule::candidate).count(),
            mappings: policies.mappings().len(),
            warnings,
            version: policies.version().to_owned(),
        }
    }
}

impl fmt::Display for PolicyTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            counted(self.files, "file"),
            counted(self.domains, "domain"),
            counted(self.rules, "rule"),
            counted(self.limits, "limit"),
        ];
        let candidates = (self.candidates > 0).then(|| counted(self.candidates, "candidate"));
        let mappings = (self.mappings > 0).then(|| counted(self.mappings, "request mapping"));
        let parts: Vec<_> = parts
            .into_iter()
            .chain(candidates)
            .chain(mappings)
            .chain([counted(self.warnings, "warning")])
            .collect();
        write!(f, "ok: {}; version {}", parts.join(", "), self.version)?;
        if self.holding > 0 {
            let limits = counted(self.holding, "limit");
            write!(f, "\nholds: {limits} corrected by the cost of a commit; {IDS}")?;
        }
        if self.in_flight > 0 {
            let limits = counted(self.in_flight, "limit");
            write!(
                f,
                "\nin flight: {limits} whose permits end by a settle, or else at their ttl; {IDS}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use std::fs;

    fn check(text: &str) -> Checked {
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
    fn limits_with_holds_want_ids_that_clients_cannot_choose() {
        let text = "domain: d
descriptors:
- {key: a, rate_limit: {algorithm: concurrency, in_flight: 2, hold: {ttl: 60s}}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 1, hold: {ttl: 60s}}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 1}}
";
        let (found, _) = check(text).unwrap();
        let text = found.to_string();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(
            matches!(lines[..], [holds, permits] if holds.starts_with("holds: 1 limit corrected by")
                && permits.starts_with("in flight: 1 limit whose permits end by")),
            "{text}"
        );
        assert_eq!(text.matches("an ID that is unique and that clients cannot choose").count(), 2);
    }

    #[test]
    fn an_invalid_file_is_reported() {
        let report = check("domain: ''\n").unwrap_err();
        assert_eq!((report.len(), totals_of(&report).as_str()), (1, "1 error"));
    }
}
