//! Replay of a trace on any store, with one line of output per line.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::line::{Format, LineError};
use super::order::TimeOrder;
use super::{LINE_TIMEOUT, NonEmptyLines};
use crate::algorithm::time::Micros;
use crate::cli::CommandError;
use crate::cli::output::print_stderr;
use crate::grpc::json;
use crate::grpc::response::{self, AnswerStyle};
use crate::limiter::{Decision, Limiter, StatusKind};
use crate::printable::escaped_json;
use crate::store::any::AnyStore;
use crate::store::backend::Backend as _;
use crate::store::clock::ManualClock;

/// The limiter of a replay.
pub(super) type Replayed = Limiter<AnyStore<Arc<ManualClock>>>;

/// Decides each line, and prints the responses and the summary.
///
/// # Errors
/// The first line that cannot be read.
pub(super) async fn decide_all(
    mut lines: NonEmptyLines<impl BufRead>,
    limiter: &Replayed,
    clock: &ManualClock,
) -> Result<(), CommandError> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut summary = ReplaySummary::default();
    while let Some(line) = lines.next()? {
        let decided = decide(limiter, clock, line, &mut summary).await;
        let decided = decided.map_err(|error| error.at(&lines.position()))?;
        // Waits for pending refunds, so that the next line does not see them as charges.
        limiter.store().settled().await;
        writeln!(output, "{}", escaped_json(&decided.to_string()))?;
    }
    output.flush()?;
    summary.print();
    Ok(())
}

async fn decide(
    limiter: &Replayed,
    clock: &ManualClock,
    line: &[u8],
    summary: &mut ReplaySummary,
) -> Result<Value, LineError> {
    let Some(line) = Format::Trace.read(line)? else {
        return Err(LineError::NoRequest);
    };
    clock.set(line.instant);
    summary.order.add(line.instant);
    let at = &line.at;
    let snapshot = limiter.snapshot();
    let live = snapshot.as_deref().ok_or(LineError::NoPolicy)?;
    let content = line.by(live.policies())?;
    let request = match content.request() {
        Ok(request) => request,
        Err(invalid) => return Ok(failed(at, "INVALID_ARGUMENT", &invalid.to_string())),
    };
    let now = Instant::now();
    let deadline = now.checked_add(LINE_TIMEOUT).unwrap_or(now);
    let decision = match limiter.decide(&snapshot, &request, deadline).await {
        Ok(decision) => decision,
        Err(undecided) => return Ok(failed(at, "UNAVAILABLE", &undecided.to_string())),
    };
    summary.add(&decision);
    let descriptors: Vec<Value> = decision
        .statuses()
        .iter()
        .map(|status| {
            let retry_after = status.retry_after().map(Micros::get);
            let reset_after = status.reset_after().map(Micros::get);
            json!({"retry_after_us": retry_after, "reset_after_us": reset_after})
        })
        .collect();
    let mut message = Vec::new();
    response::write(&decision, &AnswerStyle::default(), response::Receiver::Proxy, &mut message);
    let response = json::response(&message).map_err(LineError::Response)?;
    Ok(json!({"at": at, "response": response, "descriptors": descriptors}))
}

/// Returns the line for a request that failed with an error.
fn failed(at: &Value, code: &str, message: &str) -> Value {
    json!({"at": at, "error": {"code": code, "message": message}})
}

/// Number of descriptors by rule and outcome.
#[derive(Default)]
struct ReplaySummary {
    rules: BTreeMap<(String, String), [u64; 3]>,
    requests: u64,
    denied: u64,
    order: TimeOrder,
}

impl ReplaySummary {
    fn add(&mut self, decision: &Decision<'_>) {
        self.requests += 1;
        self.denied += u64::from(decision.is_over_limit());
        for status in decision.statuses() {
            let key = match status.rule() {
                Some(rule) => (rule.domain().to_owned(), rule.path().to_owned()),
                None => (String::new(), "(no rule)".to_owned()),
            };
            let counts = self.rules.entry(key).or_default();
            let [allowed, denied, shadow] = counts;
            let count = match status.kind() {
                StatusKind::Denied | StatusKind::PresumedDenied => denied,
                StatusKind::ShadowDenied => shadow,
                StatusKind::NoLimit
                | StatusKind::Unlimited
                | StatusKind::Allowed
                | StatusKind::PresumedAllowed => allowed,
            };
            *count += 1;
        }
    }

    fn print(&self) {
        self.order.note().into_iter().for_each(print_stderr);
        print_stderr(format_args!("{} requests, {} over limit", self.requests, self.denied));
        for ((domain, rule), [allowed, denied, shadow]) in &self.rules {
            print_stderr(format_args!(
                "  {allowed:>9} ok {denied:>9} over {shadow:>9} shadow  {domain} {rule}"
            ));
        }
    }
}
