//! `tollgate verify`: sends concurrent requests to a rate limit service, and checks its answers.
//!
//! | file | contents |
//! |---|---|
//! | `rules` | the rules that can be verified, and requests that match them |
//! | `counters` | the counters that these requests use |
//! | `workload` | the requests of a run, and the history of their answers |
//! | `report` | the result, as text and JSON |

mod counters;
mod report;
mod rules;
mod workload;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use report::VerifyReport;
use rules::rules_of;
use workload::VerifyRun;

use super::client_tls::{ClientTlsFlags, UnreadableFile};
use super::output::{print, print_json, report_error};
use super::{block_on, load};
use crate::grpc::client::ClientError;
use crate::policy::ProblemReport;
use crate::settings::ReadingFlags;
use crate::verify::check::{CheckedProperty, Checker};
use crate::verify::history::ObservedCall;
use crate::verify::verdict::RunConditions;

/// Differences between clocks, in milliseconds, that are tried as explanations.
const SKEWS: [u64; 3] = [100, 1000, 10_000];

/// Most calls of a run: they are kept in memory until it ends, at about 200 bytes each.
const MAX_CALLS: u64 = 5_000_000;

/// Longest run, in seconds.
const MAX_DURATION: u64 = 86_400;

/// Verify that a running rate limit service enforces its limits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sends concurrent requests and checks that the answers are consistent with the limits. Works with
any service that implements Envoy's protocol. Keys without a value get fresh random values, so that
no other traffic shares the counters; rules without such a key are not checked.

Exit codes: 0 if all checked properties held, 1 if one was violated, 2 if the run is inconclusive
(a limit was not reached, most calls failed, a target is down) or could not start.

Examples:
  tollgate verify --target 127.0.0.1:8081 --policy config/policies/api-gateway.yaml

  # Two replicas of one service, one of which is restarted every 3 s
  tollgate verify --target 10.0.0.1:8081 --target 10.0.0.2:8081 --policy config/policies \\
    --duration 30 --disturb 'docker restart ratelimit-1' --history calls.jsonl")]
pub struct Verify {
    /// gRPC address of a replica, host:port; repeat it for each replica of one service.
    #[arg(long = "target", value_name = "ADDRESS", required = true)]
    targets: Vec<String>,
    /// Policy files that the service has loaded, or directories that contain them.
    #[arg(long, value_name = "PATH", required = true)]
    policy: Vec<PathBuf>,
    /// Duration of the run in seconds; Ctrl-C ends it early and prints the result.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MAX_DURATION))]
    duration: u64,
    /// Concurrent clients, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Requests per second of all clients together.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Deadline of a call, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=5000))]
    deadline: u64,
    /// Tolerated difference between the clocks of this machine, the replicas and the store, in
    /// milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    skew: u64,
    /// Command to run by `sh -c` while requests are sent, such as one that restarts a replica.
    #[arg(long, value_name = "COMMAND")]
    disturb: Option<String>,
    /// Seconds between the runs of the command.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, requires = "disturb", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    disturb_every: u64,
    /// File to write the history to: one call per line, as JSON.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

/// The error of a run without a result.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error("{}{}", .0, .0.advice())]
    Client(#[from] ClientError),
    #[error("{0}")]
    File(#[from] UnreadableFile),
    #[error("policies are invalid\n{0}")]
    Policy(#[from] ProblemReport),
    #[error("no rule can be verified: {0}")]
    NoRule(String),
    #[error(
        "{target} returned no decision: {error}\nIs it the gRPC port? See its log: its store may be down."
    )]
    NoDecision { target: String, error: String },
    #[error("{target} has no limit for {rule}\n--policy must match the policies of the service.")]
    NoLimit { target: String, rule: String },
    #[error("--duration x --rate is {0} calls, at most {MAX_CALLS} are checked; lower one of them")]
    TooManyCalls(u64),
    #[error("cannot write the history: {0}")]
    History(std::io::Error),
}

impl Verify {
    /// Runs the workload and prints the result.
    pub fn run(self) -> ExitCode {
        match block_on(self.verify()) {
            Ok(Ok(code)) => ExitCode::from(code),
            Ok(Err(error)) => report_error(error),
            Err(error) => report_error(error),
        }
    }

    /// Returns the exit code.
    async fn verify(&self) -> Result<u8, VerifyError> {
        let calls = self.duration.saturating_mul(self.rate.into());
        if calls > MAX_CALLS {
            return Err(VerifyError::TooManyCalls(calls));
        }
        let (_, loaded) = load(&self.reading, &self.policy)?;
        let (rules, skipped) = rules_of(&loaded.policies, self.skew);
        if rules.is_empty() {
            return Err(VerifyError::NoRule(skipped.join("; ")));
        }
        let mut run = VerifyRun::new(rules, skipped);
        let tls = self.tls.read()?;
        let clients = self.connect(tls.as_ref(), &mut run).await?;
        let run = Rc::new(RefCell::new(run));
        let local = tokio::task::LocalSet::new();
        local.run_until(self.drive(clients, &run)).await;
        let run = run.borrow();
        self.write_history(&run).map_err(VerifyError::History)?;
        let checker = self.check(&run, self.skew);
        let conditions = RunConditions {
            calls: run.calls.len(),
            unknown: run.calls.iter().filter(|call| call.is_unknown()).count(),
            unreached: run.never_reached().len(),
            skew: self.skew.saturating_mul(1000),
            clock_moved: run.clock_moved,
            deadline: self.deadline.saturating_mul(1000),
            paused: run.paused,
        };
        let report = VerifyReport::new(self, &run, checker.results(), &conditions);
        let report = if report.depends_on_clocks() {
            report.with_explaining_skew(self.explaining_skew(&run))
        } else {
            report
        };
        if self.json {
            print_json(format_args!("{}\n", report.json()));
        } else {
            print(report.text());
        }
        Ok(report.exit_code())
    }

    /// Returns the difference between clocks, in milliseconds, that would explain all answers.
    fn explaining_skew(&self, run: &VerifyRun) -> Option<u64> {
        let is_violated = |counter: usize, calls: &[ObservedCall], skew: u64| {
            let mut checker = Checker::new(skew.saturating_mul(1000));
            let rule = run.rule_of(counter);
            rule.inspect(|rule| checker.examine(&rule.model, calls));
            let mut results = checker.results().iter();
            results.any(|result| {
                result.property != CheckedProperty::AnsweredInTime && result.contradictions > 0
            })
        };
        let mut counters = run.by_counter();
        counters.retain(|counter, calls| is_violated(*counter, calls, self.skew));
        // With larger ones, nothing is found, whatever the answers.
        let rules = counters.keys().filter_map(|counter| run.rule_of(*counter));
        let max = rules.map(|rule| rule.max_skew).min().unwrap_or_default();
        let mut skews = SKEWS.into_iter().filter(|skew| *skew > self.skew && *skew <= max);
        skews.find(|skew| {
            !counters.iter().any(|(counter, calls)| is_violated(*counter, calls, *skew))
        })
    }

    /// Checks the calls of each counter, with a skew in milliseconds.
    fn check(&self, run: &VerifyRun, skew: u64) -> Checker {
        let mut checker = Checker::new(skew.saturating_mul(1000));
        for (counter, calls) in run.by_counter() {
            if let Some(rule) = run.rule_of(counter) {
                checker.examine(&rule.model, &calls);
            }
        }
        checker
    }

    fn write_history(&self, run: &VerifyRun) -> std::io::Result<()> {
        let Some(path) = &self.history else { return Ok(()) };
        let mut text = String::new();
        for call in &run.calls {
            text.push_str(&report::call_json(run, &self.targets, call).to_string());
            text.push('\n');
        }
        std::fs::write(path, text)
    }
}
