//! `tollgate replay`: decide a recorded trace in virtual time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::block_on;
use super::load;
use crate::algorithm::time::{Micros, Timestamp};
use crate::grpc::json;
use crate::grpc::request::{self, RequestBounds};
use crate::grpc::response::{self, AnswerStyle};
use crate::limiter::{Decision, InForce, Limiter, Modes, Standing};
use crate::settings::{Place, Reading, RedisFlags, place};
use crate::store::any::AnyStore;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::store::redis::{RedisOptions, RedisStore, Time};
use crate::telemetry::metrics::Metrics;

/// Decide a recorded trace.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace has one JSON object a line; `at` is microseconds since the epoch or RFC 3339 text:
  {\"at\": \"2026-11-21T12:00:00Z\", \"request\": {\"domain\": \"gateway\", \"descriptors\": [
     {\"entries\": [{\"key\": \"remote_address\", \"value\": \"203.0.113.7\"}]}]}}        (on one line)

Example:
  tollgate replay --policy config/policies trace.jsonl > decisions.jsonl")]
pub struct Replay {
    /// A policy file or directory. May be given again.
    #[arg(long, value_name = "PATH", required = true)]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Where counters live: `memory`, or a Redis URL; keys get a prefix of their own and are removed at the end.
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    #[command(flatten)]
    redis: RedisFlags,
    /// The trace; `-` is standard input.
    #[arg(value_name = "TRACE", default_value = "-")]
    trace: PathBuf,
}

/// Time for one line: the store is waited for, since a trace has no caller in a hurry.
const PATIENCE: Duration = Duration::from_secs(10);

type Replayed = Limiter<AnyStore<Arc<ManualClock>>>;

impl Replay {
    /// Writes a line for each line of the trace, and a summary on standard error. Exit 2 where something cannot be read.
    pub fn run(self) -> ExitCode {
        match block_on(self.replay()) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => fail(&error),
            Err(error) => fail(&error),
        }
    }

    async fn replay(self) -> Result<(), Box<dyn std::error::Error>> {
        let place = self.redis.complete(place(&self.store)?)?;
        let loaded = load(&self.reading, &self.policy).map_err(|report| report.to_string())?;
        let policies = loaded.1.policies;

        let clock = Arc::new(ManualClock::default());
        let metrics = Metrics::new();
        let store = match place {
            Place::Memory => {
                let room = Bounds { max_bytes: usize::MAX, domain_max_bytes: usize::MAX };
                AnyStore::Memory(Arc::new(MemoryStore::new(room, Arc::clone(&clock))))
            }
            Place::Redis(options) => {
                let options = RedisOptions { prefix: own_prefix(), ..*options };
                AnyStore::Redis(RedisStore::connect(options, Time::Given(Arc::clone(&clock)), Arc::clone(&metrics)))
            }
        };
        let in_force = InForce::new(metrics);
        in_force.install(policies);
        let limiter = Limiter::new(in_force, store, Modes::default());
        let connected = tokio::time::timeout(PATIENCE, limiter.store().connected()).await;
        connected.map_err(|_| format!("--store cannot be reached within {PATIENCE:?}"))?;

        let input: Box<dyn BufRead> = match self.trace.as_os_str() == "-" {
            true => Box::new(io::stdin().lock()),
            false => {
                let open = std::fs::File::open(&self.trace);
                Box::new(io::BufReader::new(open.map_err(|error| format!("{}: {error}", self.trace.display()))?))
            }
        };
        let decided = self.decide_all(input, &limiter, &clock).await;
        if let AnyStore::Redis(store) = limiter.store() {
            store.clear().await?;
        }
        decided
    }

    /// Decides each line and prints the answers and the summary.
    async fn decide_all(
        &self,
        input: impl BufRead,
        limiter: &Replayed,
        clock: &ManualClock,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut output = io::BufWriter::new(io::stdout().lock());
        let mut summary = Summary::default();
        for (number, line) in (1u64..).zip(input.lines()) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let failed = |error| format!("{}:{number}: {error}", self.trace.display());
            let answer = decide(limiter, clock, &line, &mut summary).await.map_err(failed)?;
            // The next line sees the counters without charges that were not owed.
            limiter.store().settled().await;
            writeln!(output, "{answer}")?;
        }
        output.flush()?;
        summary.print();
        Ok(())
    }
}

async fn decide(limiter: &Replayed, clock: &ManualClock, line: &str, summary: &mut Summary) -> Result<Value, String> {
    let mut line: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let at = line.get("at").cloned().unwrap_or_default();
    clock.set(instant(&at)?);
    let message = line.get_mut("request").map(Value::take).ok_or("`request` is missing")?;
    let message = json::request(message).map_err(|error| format!("request: {error}"))?;
    let bounds = RequestBounds { descriptors: usize::MAX, entries: usize::MAX };
    let request = match request::read(&message, &bounds) {
        Ok(request) => request,
        Err(invalid) => return Ok(refused(&at, "INVALID_ARGUMENT", &invalid.to_string())),
    };
    let snapshot = limiter.snapshot();
    let now = Instant::now();
    let deadline = now.checked_add(PATIENCE).unwrap_or(now);
    let decision = match limiter.decide(&snapshot, &request, deadline).await {
        Ok(decision) => decision,
        Err(undecided) => return Ok(refused(&at, "UNAVAILABLE", &undecided.to_string())),
    };
    summary.add(&decision);
    let us = |length: Option<Micros>| length.map(Micros::get);
    let descriptors: Vec<Value> = decision
        .statuses()
        .iter()
        .map(|status| json!({"retry_after_us": us(status.retry_after()), "reset_after_us": us(status.reset_after())}))
        .collect();
    let mut answer = Vec::new();
    response::write(&decision, &AnswerStyle::default(), &mut answer);
    let response = json::response(&answer).map_err(|error| error.to_string())?;
    Ok(json!({"at": at, "response": response, "descriptors": descriptors}))
}

/// What no other store's keys begin with.
fn own_prefix() -> Vec<u8> {
    format!("replay-{:032x}:", rand::random::<u128>()).into_bytes()
}

/// The line for a request that got an error instead of an answer.
fn refused(at: &Value, code: &str, message: &str) -> Value {
    json!({"at": at, "error": {"code": code, "message": message}})
}

fn instant(at: &Value) -> Result<Timestamp, String> {
    let us = match at {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let parsed = text.parse::<jiff::Timestamp>().ok();
            parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok())
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    us.map(Timestamp::from_micros).ok_or_else(|| format!("`at` must be microseconds or RFC 3339 text, found {at}"))
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

/// What became of the descriptors of each rule.
#[derive(Default)]
struct Summary {
    rules: BTreeMap<(String, String), [u64; 3]>,
    requests: u64,
    denied: u64,
}

impl Summary {
    fn add(&mut self, decision: &Decision<'_>) {
        self.requests = self.requests.saturating_add(1);
        self.denied = self.denied.saturating_add(u64::from(decision.is_over_limit()));
        for status in decision.statuses() {
            let of_rule = |rule: &crate::policy::Rule| (rule.domain().to_owned(), rule.path().to_owned());
            let key = status.rule().map_or_else(|| (String::new(), "(no rule)".to_owned()), of_rule);
            let counts = self.rules.entry(key).or_default();
            let [allowed, denied, shadow] = counts;
            let count = match status.standing() {
                Standing::Denied | Standing::PresumedDenied => denied,
                Standing::ShadowDenied => shadow,
                Standing::NoLimit | Standing::Unlimited | Standing::Allowed | Standing::PresumedAllowed => allowed,
            };
            *count = count.saturating_add(1);
        }
    }

    fn print(&self) {
        eprintln!("{} requests, {} over limit", self.requests, self.denied);
        for ((domain, rule), [allowed, denied, shadow]) in &self.rules {
            eprintln!("  {allowed:>9} ok {denied:>9} over {shadow:>9} shadow  {domain} {rule}");
        }
    }
}
