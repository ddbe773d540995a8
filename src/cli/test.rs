//! `tollgate test`: runs the tests of policies, in memory and in virtual time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::findings::{FileFinding, JunitCase, ResultFormat, github, junit};
use super::output::{print, print_json};
use super::{CommandError, load, try_block_on};
use crate::policy::source::files;
use crate::policy::{Policy, Source};
use crate::printable::counted;
use crate::scenario::dry_run::DryRun;
use crate::scenario::test_file::{self, Mismatch, PendingTest, TestOutcome, UnlimitedStep};
use crate::settings::ReadingFlags;
use crate::yaml::report::Severity;

/// Run policy tests
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A test file, such as gateway.test.yaml, lists the policies that it tests, by paths relative to the file:
  policies: [gateway.yaml]
  tests:
    - test: 100 requests per minute and address
      steps:
        - { hit: remote_address=203.0.113.7, times: 100, expect: ok, remaining: 0 }
        - { hit: remote_address=203.0.113.7, expect: over_limit, retry_after: 1m }
        - { hit: remote_address=203.0.113.7, after: 1m, expect: ok }
Time is virtual: a test starts at 2026-01-01T00:00:00Z, or at the time of its key `at`. A step to which no rule applies \
is reported, unless it has `rule: none`.

Exit codes: 0 if all tests pass, 1 if one fails, 2 if tests or policies are invalid.

Examples:
  # Run all tests of a directory
  tollgate test config/policies")]
pub struct Test {
    /// Test files, or directories that contain them (*.test.yaml, *.test.yml)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Format of the results
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
    /// Print the result of each test as JSON, as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

/// The result of one test.
struct TestResult {
    file: String,
    test: String,
    outcome: TestOutcome,
}

impl Test {
    /// Runs the tests. Exits with 0 if all pass, 1 if one fails, 2 if they cannot be run.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let ran = try_block_on(self.run_all())?;
        match if self.json { ResultFormat::Json } else { self.format } {
            ResultFormat::Text => print(format_args!("{}\n", text_of(&ran))),
            ResultFormat::Json => print_json(format_args!("{}\n", json_of(&ran))),
            ResultFormat::Github => print(github(&findings_of(&ran))),
            ResultFormat::Junit => print(junit("tollgate test", &cases_of(&ran))),
        }
        Ok(ExitCode::from(u8::from(failed(&ran) > 0)))
    }

    async fn run_all(&self) -> Result<Vec<TestResult>, CommandError> {
        let sources = files::tests(&self.paths)?;
        let mut ran = Vec::new();
        for source in &sources {
            self.run_file(source, &mut ran).await?;
        }
        if ran.is_empty() {
            return Err("no tests found; see `tollgate test --help`".into());
        }
        Ok(ran)
    }

    async fn run_file(
        &self,
        source: &Source,
        ran: &mut Vec<TestResult>,
    ) -> Result<(), CommandError> {
        let file = test_file::read(source)?;
        let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
        let paths: Vec<_> = file.policies.iter().map(|path| folder.join(path)).collect();
        let policies = load(&self.reading, &paths)?.1.policies;
        let domains: Vec<_> =
            policies.policies().map(|policy| Policy::domain(policy).to_owned()).collect();
        let dry_run = DryRun::new(policies);
        for case in &file.cases {
            let domain = match (&case.domain, domains.as_slice()) {
                (Some(domain), _) => domain,
                (None, [domain]) => domain,
                (None, _) => {
                    return Err(format!(
                        "{}: test `{}`: `domain` is missing; expected one of {}",
                        source.name,
                        case.name,
                        domains.join(", ")
                    )
                    .into());
                }
            };
            let pending =
                PendingTest { case, domain, policies: &paths, dry_run: dry_run.without_counters() };
            let outcome = pending.outcome().await;
            ran.push(TestResult { file: source.name.clone(), test: case.name.clone(), outcome });
        }
        Ok(())
    }
}

fn failed(ran: &[TestResult]) -> usize {
    ran.iter().filter(|ran| ran.outcome.failure.is_some()).count()
}

/// Formats a line for each finding, and a summary line.
fn text_of(ran: &[TestResult]) -> String {
    let findings = findings_of(ran).into_iter();
    let mut lines: Vec<_> = findings
        .map(|FileFinding { severity, file, line, message, .. }| {
            let severity = if severity == Severity::Warning { "warning: " } else { "" };
            format!("{severity}{file}:{}: {message}", line.unwrap_or_default())
        })
        .collect();
    let all = counted(ran.len(), "test");
    lines.push(match failed(ran) {
        0 => format!("ok: {all} passed"),
        failed => format!("error: {failed} of {all} failed"),
    });
    lines.join("\n")
}

fn description_of(failure: &Mismatch) -> String {
    let Mismatch { request, expected, found, explain, .. } = failure;
    format!("{request}expected {expected}, found {found}; see {explain}")
}

fn warning_of(step: &UnlimitedStep) -> String {
    format!("no rule applies; if none should, set `rule: none`; see {}", step.explain)
}

/// Returns warnings and errors in the order of the tests.
fn findings_of(ran: &[TestResult]) -> Vec<FileFinding> {
    let mut findings = Vec::new();
    for TestResult { file, test, outcome } in ran {
        let finding = |severity, line, description: String| FileFinding {
            severity,
            file: file.clone(),
            line: Some(line),
            column: None,
            message: format!("{test}: {description}"),
        };
        for step in &outcome.unlimited {
            findings.push(finding(Severity::Warning, step.line, warning_of(step)));
        }
        if let Some(failure) = &outcome.failure {
            findings.push(finding(Severity::Error, failure.line, description_of(failure)));
        }
    }
    findings
}

fn cases_of(ran: &[TestResult]) -> Vec<JunitCase> {
    let mut cases = Vec::new();
    for TestResult { file, test, outcome } in ran {
        let failures = outcome.failure.iter().map(description_of).collect();
        let warnings = outcome.unlimited.iter();
        let warnings =
            warnings.map(|step| format!("warning: line {}: {}", step.line, warning_of(step)));
        let warnings = warnings.collect();
        cases.push(JunitCase { file: file.clone(), name: test.clone(), failures, warnings });
    }
    cases
}

fn json_of(ran: &[TestResult]) -> String {
    let mut tests = Vec::new();
    for TestResult { file, test, outcome } in ran {
        let is_ok = outcome.failure.is_none();
        let mut warnings = Vec::new();
        for step in &outcome.unlimited {
            warnings.push(json!({ "line": step.line, "message": warning_of(step) }));
        }
        let failure = outcome.failure.as_ref().map(|failure| {
            json!({
                "line": failure.line,
                "expected": failure.expected,
                "found": failure.found,
                "explain": failure.explain,
            })
        });
        tests.push(json!({
            "file": file,
            "test": test,
            "ok": is_ok,
            "failure": failure,
            "warnings": warnings,
        }));
    }
    json!({ "ok": failed(ran) == 0, "failed": failed(ran), "tests": tests }).to_string()
}
