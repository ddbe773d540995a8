//! `tollgate verify`: sends concurrent requests to a rate limit service, and checks its answers.

mod rules;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};

use rules::{VerifiedRule, rules_of};

use super::client_tls::{ClientTlsFlags, UnreadableFile};
use super::output::{print, print_json, report_error};
use super::{block_on, load, table};
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::proto::rate_limit_response::Code;
use crate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use crate::policy::ProblemReport;
use crate::settings::ReadingFlags;
use crate::verify::check::{CheckedProperty, Contradiction, check};
use crate::verify::history::{ObservedAnswer, ObservedCall};

/// Check by its answers that a running rate limit service keeps its limits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads the policies that the service has in force, and uses fresh random values for keys without a
value, so that nothing else shares the counters. Works with any service of Envoy's protocol.

Exit codes: 0 if all properties held, 1 if one was broken, 2 if there is no result.

Examples:
  # Two replicas that share a Redis, one of which is restarted every 3 s
  tollgate verify --target 127.0.0.1:8081 --target 127.0.0.1:8082 --policy config/policies \\
    --disturb 'kubectl rollout restart deploy/ratelimit' --disturb-every 3")]
pub struct Verify {
    /// gRPC address of a replica, host:port; repeat it for each replica of one service.
    #[arg(long = "target", value_name = "ADDRESS", required = true)]
    targets: Vec<String>,
    /// Policy files of the service, or directories that contain them.
    #[arg(long, value_name = "PATH", required = true)]
    policy: Vec<PathBuf>,
    /// Seconds for which requests are sent.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    duration: u64,
    /// Concurrent clients, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Requests per second of all clients together.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Deadline of a call, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    deadline: u64,
    /// Difference between the clocks of this machine and the service to allow for, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50)]
    skew: u64,
    /// Command to run by `sh -c` while requests are sent, such as one that restarts a replica.
    #[arg(long, value_name = "COMMAND")]
    disturb: Option<String>,
    /// Seconds between the runs of the command.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, requires = "disturb")]
    disturb_every: u64,
    /// File to write the history to: one call a line, as JSON.
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
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{0}")]
    File(#[from] UnreadableFile),
    #[error("policies are invalid\n{0}")]
    Policy(#[from] ProblemReport),
    #[error("no rule can be verified: {0}")]
    NoRule(String),
    #[error("no call was decided; first error: {0}")]
    Undecided(String),
    #[error("cannot write the history: {0}")]
    History(std::io::Error),
}

/// The rules, the counters in use, and the calls so far.
struct VerifyRun {
    rules: Vec<VerifiedRule>,
    /// Rule and random value of each counter.
    counters: Vec<(usize, u64)>,
    /// Counter of each rule, and the calls that it still takes.
    current: Vec<(usize, u64)>,
    calls: Vec<ObservedCall>,
    skipped: Vec<String>,
    disturbances: Vec<String>,
    started: Instant,
    epoch: u64,
}

impl Verify {
    /// Runs the workload and prints the result.
    pub fn run(self) -> ExitCode {
        match block_on(self.verify()) {
            Ok(Ok(is_broken)) => ExitCode::from(u8::from(is_broken)),
            Ok(Err(error)) => report_error(error),
            Err(error) => report_error(error),
        }
    }

    async fn verify(&self) -> Result<bool, VerifyError> {
        let (_, loaded) = load(&self.reading, &self.policy)?;
        let (rules, skipped) = rules_of(&loaded.policies);
        if rules.is_empty() {
            return Err(VerifyError::NoRule(skipped.join("; ")));
        }
        let run = std::rc::Rc::new(RefCell::new(VerifyRun {
            current: vec![(0, 0); rules.len()],
            rules,
            counters: Vec::new(),
            calls: Vec::new(),
            skipped,
            disturbances: Vec::new(),
            started: Instant::now(),
            epoch: epoch_micros(),
        }));
        let tls = self.tls.read()?;
        let mut clients = Vec::new();
        for (index, target) in (0..self.clients).zip((0..self.targets.len()).cycle()) {
            if let Some(address) = self.targets.get(target) {
                let client = RateLimitClient::connect(address, tls.as_ref()).await?;
                clients.push((index, target, client));
            }
        }
        let local = tokio::task::LocalSet::new();
        local.run_until(self.drive(clients, &run)).await;
        let run = run.borrow();
        self.write_history(&run).map_err(VerifyError::History)?;
        self.report(&run)
    }

    /// Sends requests until the time is over.
    async fn drive(
        &self,
        clients: Vec<(u32, usize, RateLimitClient)>,
        run: &std::rc::Rc<RefCell<VerifyRun>>,
    ) {
        let mut tasks = JoinSet::new();
        let started = Instant::now();
        let duration = Duration::from_secs(self.duration);
        let pause = Duration::from_secs_f64(f64::from(self.clients) / f64::from(self.rate.max(1)));
        let deadline = Duration::from_millis(self.deadline);
        let count = self.clients;
        for (index, target, mut client) in clients {
            let run = std::rc::Rc::clone(run);
            tasks.spawn_local(async move {
                tokio::time::sleep(pause.mul_f64(f64::from(index) / f64::from(count))).await;
                let mut ticks = tokio::time::interval(pause.max(Duration::from_micros(1)));
                while started.elapsed() < duration {
                    ticks.tick().await;
                    let (counter, hits, request) = run.borrow_mut().next();
                    let begin = run.borrow().now();
                    let answer = client.should_rate_limit(request);
                    let answer = answer_of(tokio::time::timeout(deadline, answer).await);
                    let end = run.borrow().now();
                    let call = ObservedCall { counter, target, hits, begin, end, answer };
                    run.borrow_mut().calls.push(call);
                }
            });
        }
        if let Some(command) = &self.disturb {
            let every = Duration::from_secs(self.disturb_every.max(1));
            while started.elapsed().saturating_add(every) < duration {
                tokio::time::sleep(every).await;
                let text = command.clone();
                let shell = move || Command::new("sh").arg("-c").arg(text).status();
                let ended = match spawn_blocking(shell).await {
                    Ok(Ok(status)) => status.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                };
                run.borrow_mut().disturbances.push(ended);
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    fn write_history(&self, run: &VerifyRun) -> std::io::Result<()> {
        let Some(path) = &self.history else { return Ok(()) };
        let lines: Vec<String> = run.calls.iter().map(|call| json!(call).to_string()).collect();
        std::fs::write(path, format!("{}\n", lines.join("\n")))
    }

    /// Checks the history and prints the result; returns `true` if a property is broken.
    fn report(&self, run: &VerifyRun) -> Result<bool, VerifyError> {
        let unknown = run.calls.iter().filter(|call| call.is_unknown()).count();
        if unknown == run.calls.len() {
            let error = run.calls.iter().find_map(|call| match &call.answer {
                ObservedAnswer::Failed { error } => Some(error.clone()),
                ObservedAnswer::Admitted { .. }
                | ObservedAnswer::Denied { .. }
                | ObservedAnswer::Late => None,
            });
            return Err(VerifyError::Undecided(error.unwrap_or_else(|| "no answer".to_owned())));
        }
        let mut by_counter = BTreeMap::<usize, Vec<ObservedCall>>::new();
        for call in &run.calls {
            by_counter.entry(call.counter).or_default().push(call.clone());
        }
        let mut found: Vec<Contradiction> = Vec::new();
        for (counter, calls) in by_counter {
            if let Some(rule) = run.rule_of(counter) {
                found.extend(check(&rule.model, &calls, self.skew.saturating_mul(1000)));
            }
        }
        if self.json {
            let examples = CheckedProperty::ALL.map(|property| smallest(&found, property));
            let total = |property| found.iter().filter(|one| one.property == property).count();
            let properties = CheckedProperty::ALL.iter().zip(examples);
            let properties: Vec<_> = properties
                .map(|(property, example)| {
                    json!({"property": property, "contradictions": total(*property), "example": example})
                })
                .collect();
            let rules: Vec<_> = run.rules.iter().map(|rule| &rule.path).collect();
            let report = json!({
                "calls": run.calls.len(), "unknown": unknown, "counters": run.counters.len(),
                "rules": rules, "not_checked": run.skipped, "disturbances": run.disturbances,
                "properties": properties,
            });
            print_json(format_args!("{report}\n"));
        } else {
            print(self.text(run, unknown, &found));
        }
        Ok(!found.is_empty())
    }

    fn text(&self, run: &VerifyRun, unknown: usize, found: &[Contradiction]) -> String {
        let denied = run.calls.iter().filter(|call| call.is_denied()).count();
        let mut text = format!(
            "{} calls by {} clients to {} in {} s: {denied} denied, {unknown} without a decision\n\
             {} of {}; disturbances: {}\n",
            run.calls.len(),
            self.clients,
            table::counted(self.targets.len(), "target"),
            self.duration,
            table::counted(run.counters.len(), "counter"),
            table::counted(run.rules.len(), "rule"),
            run.disturbances.len(),
        );
        for reason in &run.skipped {
            text.push_str(&format!("not checked: {reason}\n"));
        }
        if denied == 0 {
            text.push_str("no call was denied: raise --duration or --rate to reach a limit\n");
        }
        text.push('\n');
        for property in CheckedProperty::ALL {
            let count = found.iter().filter(|one| one.property == property).count();
            let verdict = if count == 0 { "held  " } else { "BROKEN" };
            text.push_str(&format!("{verdict}  {}", property.text()));
            text.push_str(&if count == 0 {
                "\n".to_owned()
            } else {
                format!(" ({count} times)\n")
            });
        }
        for property in CheckedProperty::ALL {
            if let Some(example) = smallest(found, property) {
                text.push_str(&run.example_text(example, &self.targets));
            }
        }
        text
    }
}

impl VerifyRun {
    fn now(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.epoch.saturating_add(passed)
    }

    fn rule_of(&self, counter: usize) -> Option<&VerifiedRule> {
        self.rules.get(self.counters.get(counter)?.0)
    }

    /// Returns the counter, the hits and the request of the next call.
    fn next(&mut self) -> (usize, u64, RateLimitRequest) {
        let index = rand::random_range(0..self.rules.len().max(1));
        let hits = if rand::random_ratio(1, 5) { 2 } else { 1 };
        let empty = (0, hits, RateLimitRequest::default());
        let Some((rule, current)) = self.rules.get(index).zip(self.current.get_mut(index)) else {
            return empty;
        };
        if current.1 == 0 {
            // Twice the limit, so that it is reached and denials follow.
            let limit = rule.model.bounds.iter().map(|bound| bound.at_once()).min();
            let calls = limit.unwrap_or(1).saturating_mul(2).saturating_add(20);
            *current = (self.counters.len(), calls);
            self.counters.push((index, rand::random()));
        }
        current.1 = current.1.saturating_sub(1);
        let value = self.counters.get(current.0).map_or(0, |counter| counter.1);
        (current.0, hits, rule.request(value, hits))
    }

    fn example_text(&self, example: &Contradiction, targets: &[String]) -> String {
        let start = example.calls.iter().map(|call| call.begin).min().unwrap_or_default();
        let rule = example.calls.first().and_then(|call| self.rule_of(call.counter));
        let rule = rule.map_or("", |rule| &rule.path);
        let rows = example.calls.iter().map(|call| {
            let since = |time: u64| {
                let passed = time.saturating_sub(start);
                format!("{}.{:03} ms", passed / 1000, passed % 1000)
            };
            let answer = match &call.answer {
                ObservedAnswer::Admitted { remaining, .. } => format!("OK, {remaining} remaining"),
                ObservedAnswer::Denied { .. } => "OVER_LIMIT".to_owned(),
                ObservedAnswer::Failed { error } => error.clone(),
                ObservedAnswer::Late => "no answer".to_owned(),
            };
            let target = targets.get(call.target).cloned().unwrap_or_default();
            [since(call.begin), since(call.end), target, call.hits.to_string(), answer]
        });
        let calls = table::of(["begin", "end", "target", "hits", "answer"], rows);
        format!("\n{}: {rule}: {}\n{calls}", example.property.text(), example.reason)
    }
}

fn answer_of(
    answer: Result<Result<RateLimitResponse, ClientError>, tokio::time::error::Elapsed>,
) -> ObservedAnswer {
    let response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return ObservedAnswer::Failed { error: error.to_string() },
        Err(_) => return ObservedAnswer::Late,
    };
    let Some(status) = response.statuses.first().filter(|status| status.current_limit.is_some())
    else {
        let error = "the service has no limit here: does it have these policies?".to_owned();
        return ObservedAnswer::Failed { error };
    };
    let remaining = status.limit_remaining.into();
    let reset = status.duration_until_reset.as_ref();
    let reset = reset.and_then(|reset| u64::try_from(reset.seconds).ok());
    if response.overall_code == i32::from(Code::OverLimit) {
        ObservedAnswer::Denied { remaining, reset }
    } else {
        ObservedAnswer::Admitted { remaining, reset }
    }
}

/// Returns the contradiction of a property with the fewest calls.
fn smallest(found: &[Contradiction], property: CheckedProperty) -> Option<&Contradiction> {
    found.iter().filter(|one| one.property == property).min_by_key(|one| one.calls.len())
}

fn epoch_micros() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()
}
