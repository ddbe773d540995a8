//! Comparison of two running services: sends the same requests to both and lists the differences.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::responses::{CallResult, FieldDifference, differences};
use crate::cli::block_on;
use crate::cli::client_tls::ClientTlsFlags;
use crate::cli::output::{print, report_error};
use crate::cli::replay::NonEmptyLines;
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::json;
use crate::grpc::proto::RateLimitRequest;

/// Maximum number of differences to print, and of lines that are skipped; further ones are counted.
const MAX_SHOWN: usize = 20;
/// Number of times that a peek is repeated, to detect a service that charges hits for it.
const REPEATS: u32 = 2;

/// The two services, and the requests for both.
pub(super) struct ServicePair<'m> {
    pub(super) live: &'m str,
    pub(super) against: &'m str,
    pub(super) trace: &'m Path,
    pub(super) tls: &'m ClientTlsFlags,
    /// Set to send 0 hits, which charges nothing.
    pub(super) peek: bool,
}

/// The result of a trace.
#[derive(Default)]
struct LiveComparison {
    requests: u64,
    different: u64,
    shown: String,
    shown_count: usize,
    /// Number of lines of the trace that are not requests.
    skipped: u64,
    /// Number of differences by field.
    fields: BTreeMap<&'static str, u64>,
}

/// Prints the differences. Exits with 0 if there are none, 1 if there are some, 2 if a service does
/// not respond or a line of the trace is not a request.
pub(super) fn run(both: &ServicePair<'_>) -> ExitCode {
    match block_on(both.compare()).map_err(|error| error.to_string()).and_then(|compared| compared)
    {
        Ok(comparison) => {
            print(&comparison);
            match (comparison.skipped, comparison.different) {
                (0, 0) => ExitCode::SUCCESS,
                (0, _) => ExitCode::FAILURE,
                (_, _) => ExitCode::from(2),
            }
        }
        Err(error) => report_error(error),
    }
}

impl ServicePair<'_> {
    async fn compare(&self) -> Result<LiveComparison, String> {
        let mut lines = NonEmptyLines::open(self.trace).map_err(|error| error.to_string())?;
        let tls = self.tls.read().map_err(|error| error.to_string())?;
        let connect = |address| RateLimitClient::connect(address, tls.as_ref());
        let mut old = connect(self.live).await.map_err(|error| error.to_string())?;
        let mut new = connect(self.against).await.map_err(|error| error.to_string())?;
        let mut comparison = LiveComparison::default();
        let mut is_peek_tested = !self.peek;
        while let Some(line) = lines.next().map_err(|error| error.to_string())? {
            let request = match read(line, self.peek) {
                Ok(request) => request,
                Err(error) => {
                    comparison.skip(&lines.position(), &error);
                    continue;
                }
            };
            let (old_result, new_result) =
                tokio::join!(call(&mut old, &request), call(&mut new, &request));
            let failed = |address: &str, error| format!("{address}, {}: {error}", lines.position());
            let old_result = old_result.map_err(|error| failed(self.live, error))?;
            let new_result = new_result.map_err(|error| failed(self.against, error))?;
            if !is_peek_tested {
                is_peek_tested = self.test_peek(&mut old, &request, &old_result).await?;
            }
            comparison.add(
                &lines.position(),
                &request,
                &differences(&old_result, &new_result, self.peek),
            );
        }
        match comparison.requests {
            0 => Err(format!("{}no requests in {}", comparison.shown, self.trace.display())),
            _ => Ok(comparison),
        }
    }

    /// Repeats a peek at the old service. Returns `false` if its response cannot show whether hits
    /// are charged.
    ///
    /// # Errors
    /// Each peek charges a hit.
    async fn test_peek(
        &self,
        old: &mut RateLimitClient,
        request: &RateLimitRequest,
        first: &CallResult,
    ) -> Result<bool, String> {
        let Some(first) = remaining(first).filter(|remaining| *remaining >= REPEATS) else {
            return Ok(false);
        };
        let mut before = first;
        for _ in 0..REPEATS {
            let result =
                call(old, request).await.map_err(|error| format!("{}: {error}", self.live))?;
            match remaining(&result) {
                Some(now) if now.checked_add(1) == Some(before) => before = now,
                _ => return Ok(true),
            }
        }
        Err(format!(
            "{}: --peek charges hits: limit_remaining fell from {first} to {before} in {REPEATS} peeks. Either this \
             envoyproxy/ratelimit is from before the end of 2024 and ignores 0 hits, or other clients use the same \
             counter. Run without --peek, with values that no client uses",
            self.live
        ))
    }
}

/// Returns the remaining hits of the first limit in a response.
fn remaining(result: &CallResult) -> Option<u32> {
    let statuses = &result.as_ref().ok()?.statuses;
    statuses
        .iter()
        .find(|status| status.current_limit.is_some())
        .map(|status| status.limit_remaining)
}

/// Parses a request, alone or as `request` of a line of a trace.
fn read(line: &[u8], peek: bool) -> Result<RateLimitRequest, String> {
    let mut line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let request = line.get_mut("request").map(Value::take).unwrap_or(line);
    let mut request = json::request_message(request).map_err(|error| error.to_string())?;
    if peek {
        for descriptor in &mut request.descriptors {
            descriptor.hits_addend = Some(0);
            descriptor.is_negative_hits = false;
        }
    }
    Ok(request)
}

/// Sends a request. An error from the service is a result; an error of the connection is not.
async fn call(
    client: &mut RateLimitClient,
    request: &RateLimitRequest,
) -> Result<CallResult, String> {
    match client.should_rate_limit(request.clone()).await {
        Ok(response) => Ok(Ok(response)),
        Err(error @ ClientError::Answer(_)) => Ok(Err(error.to_string())),
        Err(error @ (ClientError::Connect { .. } | ClientError::NoAnswer(_))) => {
            Err(format!("{error}{}", error.advice()))
        }
    }
}

impl LiveComparison {
    fn add(&mut self, position: &str, request: &RateLimitRequest, differences: &[FieldDifference]) {
        self.requests = self.requests.saturating_add(1);
        self.different = self.different.saturating_add(u64::from(!differences.is_empty()));
        for FieldDifference { descriptor, field, old, new } in differences {
            let count = self.fields.entry(field).or_default();
            *count = count.saturating_add(1);
            let of = descriptor.map(|index| named(request, index)).unwrap_or_default();
            self.show(&format!("{position}: {of}{field}: {old} from --live, {new} from --against"));
        }
    }

    /// Counts a line that is not a request.
    fn skip(&mut self, position: &str, error: &str) {
        self.skipped = self.skipped.saturating_add(1);
        self.show(&format!("{position}: skipped: {error}"));
    }

    fn show(&mut self, line: &str) {
        if self.shown_count < MAX_SHOWN {
            self.shown_count = self.shown_count.saturating_add(1);
            self.shown.push_str(line);
            self.shown.push('\n');
        }
    }
}

/// Formats a descriptor as `user=ann: `, in the form that `tollgate hit` accepts.
fn named(request: &RateLimitRequest, index: usize) -> String {
    let entries = request
        .descriptors
        .get(index)
        .map(|descriptor| descriptor.entries.as_slice())
        .unwrap_or_default();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entry = |entry: &crate::grpc::proto::rate_limit_descriptor::Entry| {
        format!("{}={}", lossy(&entry.key), lossy(&entry.value))
    };
    format!("{}: ", entries.iter().map(entry).collect::<Vec<_>>().join(","))
}

impl fmt::Display for LiveComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)?;
        let all = self.fields.values().sum::<u64>().saturating_add(self.skipped);
        let more = all.saturating_sub(u64::try_from(self.shown_count).unwrap_or(u64::MAX));
        if more > 0 {
            writeln!(f, "… and {more} more")?;
        }
        let same = self.requests.saturating_sub(self.different);
        writeln!(f, "{} requests: {same} equal, {} different", self.requests, self.different)?;
        match self.skipped {
            0 => {}
            1 => writeln!(f, "1 line of the trace is not a request")?,
            lines => writeln!(f, "{lines} lines of the trace are not requests")?,
        }
        if self.fields.is_empty() {
            return Ok(());
        }
        let fields: Vec<String> =
            self.fields.iter().map(|(field, count)| format!("{field} {count}")).collect();
        writeln!(f, "  {}", fields.join(", "))?;
        let counts = ["code", "limit_remaining", "overall_code", "response_headers_to_add"];
        if self.fields.keys().all(|field| counts.contains(field)) {
            writeln!(
                f,
                "Only counts differ: one service had counted hits before, or other clients use the same counters."
            )?;
            writeln!(f, "Run with --peek, or with values that neither service has counted.")?;
        }
        Ok(())
    }
}
