//! Comparison of two running services: sends the same requests to both, and lists the differences.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::answers::{Answer, Difference, differences};
use crate::cli::block_on;
use crate::cli::client_tls::ClientTlsFlags;
use crate::cli::replay::Lines;
use crate::cli::said::{no_answer, say};
use crate::grpc::client::{Client, ClientError};
use crate::grpc::json;
use crate::grpc::proto::RateLimitRequest;

/// Maximum number of differences to print; further ones are counted.
const MAX_SHOWN: usize = 20;

/// The two services, and the requests for both.
pub(super) struct Both<'m> {
    pub(super) live: &'m str,
    pub(super) against: &'m str,
    pub(super) trace: &'m Path,
    pub(super) tls: &'m ClientTlsFlags,
    /// Set to send 0 hits, which charges nothing.
    pub(super) peek: bool,
}

/// The result of a trace.
#[derive(Default)]
struct Comparison {
    requests: u64,
    different: u64,
    shown: String,
    shown_count: usize,
    /// Number of differences by field.
    fields: BTreeMap<&'static str, u64>,
}

/// Prints the differences. Exits with 0 if there are none, 1 if there are some, 2 if a service does
/// not respond.
pub(super) fn run(both: &Both<'_>) -> ExitCode {
    match block_on(both.compare()).map_err(|error| error.to_string()).and_then(|compared| compared) {
        Ok(comparison) => {
            say(&comparison);
            if comparison.different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => no_answer(error),
    }
}

impl Both<'_> {
    async fn compare(&self) -> Result<Comparison, String> {
        let mut lines = Lines::open(self.trace)?;
        let tls = self.tls.read().map_err(|error| error.to_string())?;
        let connect = |address| Client::connect(address, tls.as_ref());
        let (there, here) = (connect(self.live).await, connect(self.against).await);
        let (mut there, mut here) =
            (there.map_err(|error| error.to_string())?, here.map_err(|error| error.to_string())?);
        let mut comparison = Comparison::default();
        while let Some(line) = lines.next()? {
            let request = read(line, self.peek);
            let request = request.map_err(|error| format!("{}: {error}", lines.place()))?;
            let both = tokio::join!(ask(&mut there, &request), ask(&mut here, &request));
            let of = |address: &str, error| format!("{address}, {}: {error}", lines.place());
            let there = both.0.map_err(|error| of(self.live, error))?;
            let here = both.1.map_err(|error| of(self.against, error))?;
            comparison.add(&lines.place(), &request, &differences(&there, &here, self.peek));
        }
        match comparison.requests {
            0 => Err(format!("{}: no requests", self.trace.display())),
            _ => Ok(comparison),
        }
    }
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

/// Sends a request. An error of the service counts as a response; one of the connection does not.
async fn ask(client: &mut Client, request: &RateLimitRequest) -> Result<Answer, String> {
    match client.should_rate_limit(request.clone()).await {
        Ok(response) => Ok(Ok(response)),
        Err(error @ ClientError::Answer(_)) => Ok(Err(error.to_string())),
        Err(error @ (ClientError::Connect { .. } | ClientError::NoAnswer(_))) => Err(error.to_string()),
    }
}

impl Comparison {
    fn add(&mut self, place: &str, request: &RateLimitRequest, differences: &[Difference]) {
        self.requests = self.requests.saturating_add(1);
        self.different = self.different.saturating_add(u64::from(!differences.is_empty()));
        for Difference { descriptor, field, there, here } in differences {
            let count = self.fields.entry(field).or_default();
            *count = count.saturating_add(1);
            if self.shown_count < MAX_SHOWN {
                self.shown_count = self.shown_count.saturating_add(1);
                let of = descriptor.map(|index| named(request, index)).unwrap_or_default();
                let _ = writeln!(self.shown, "{place}: {of}{field}: {there} there, {here} here");
            }
        }
    }
}

/// Formats a descriptor as `user=ann: `, in the form that `tollgate hit` accepts.
fn named(request: &RateLimitRequest, index: usize) -> String {
    let entries = request.descriptors.get(index).map(|descriptor| descriptor.entries.as_slice()).unwrap_or_default();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entry = |entry: &crate::grpc::proto::rate_limit_descriptor::Entry| {
        format!("{}={}", lossy(&entry.key), lossy(&entry.value))
    };
    format!("{}: ", entries.iter().map(entry).collect::<Vec<_>>().join(","))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)?;
        let all: u64 = self.fields.values().sum();
        let more = all.saturating_sub(u64::try_from(self.shown_count).unwrap_or(u64::MAX));
        if more > 0 {
            writeln!(f, "… and {more} more")?;
        }
        let same = self.requests.saturating_sub(self.different);
        writeln!(f, "{} requests: {same} answered alike, {} differently", self.requests, self.different)?;
        if self.fields.is_empty() {
            return Ok(());
        }
        let fields: Vec<String> = self.fields.iter().map(|(field, count)| format!("{field} {count}")).collect();
        writeln!(f, "  {}", fields.join(", "))?;
        let counts = ["code", "limit_remaining", "overall_code", "response_headers_to_add"];
        if self.fields.keys().all(|field| counts.contains(field)) {
            writeln!(
                f,
                "Only counts differ: counters that one of them had used before, or that others use meanwhile?"
            )?;
            writeln!(f, "Ask with --peek, or for values that neither has counted.")?;
        }
        Ok(())
    }
}
