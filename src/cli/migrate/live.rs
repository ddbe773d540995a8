//! Comparison of two running services: sends the same requests to both and lists the differences.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::comparison::LiveComparison;
use super::responses::{CallResult, ComparedCalls, differences};
use crate::cli::client_tls::ClientTlsFlags;
use crate::cli::output::print;
use crate::cli::replay::NonEmptyLines;
use crate::cli::{CommandError, try_block_on};
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::json::{self, JsonError};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

/// Number of times that a peek is repeated, to detect a service that charges hits for it.
const REPEATS: u32 = 2;

/// The two services, and the requests for both.
pub(super) struct ServicePair<'m> {
    pub(super) live: &'m str,
    pub(super) against: &'m str,
    pub(super) trace: &'m Path,
    pub(super) tls: &'m ClientTlsFlags,
    pub(super) calls: ComparedCalls,
}

/// Prints the differences. Exits with 0 if there are none, 1 if there are some, 2 if a service does
/// not respond or a line of the trace is not a request.
pub(super) fn run(both: &ServicePair<'_>) -> Result<ExitCode, CommandError> {
    let comparison = try_block_on(both.compare())?;
    print(&comparison);
    Ok(match (comparison.skipped, comparison.different) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        (_, _) => ExitCode::from(2),
    })
}

impl ServicePair<'_> {
    async fn compare(&self) -> Result<LiveComparison, CommandError> {
        let mut lines = NonEmptyLines::open(self.trace)?;
        let tls = self.tls.options();
        let mut old = RateLimitClient::connect(self.live, tls.as_ref()).await?;
        let mut new = RateLimitClient::connect(self.against, tls.as_ref()).await?;
        let mut comparison = LiveComparison::default();
        let mut is_peek_tested = self.calls == ComparedCalls::Charging;
        while let Some(line) = lines.next()? {
            let request = match read(line, self.calls) {
                Ok(request) => request,
                Err(error) => {
                    comparison.skip(&lines.position(), error);
                    continue;
                }
            };
            let (old_result, new_result) =
                tokio::join!(call(&mut old, &request), call(&mut new, &request));
            let position = format!(", {}", lines.position());
            let old_result = old_result.map_err(|error| failed(self.live, &position, error))?;
            let new_result = new_result.map_err(|error| failed(self.against, &position, error))?;
            if !is_peek_tested {
                is_peek_tested = self.test_peek(&mut old, &request, &old_result).await?;
            }
            comparison.add(
                &lines.position(),
                &differences(&old_result, &new_result, self.calls),
                |index| descriptor_text(request.descriptors.get(index)),
            );
        }
        if comparison.requests == 0 {
            let trace = self.trace.display();
            return Err(format!("{}no requests in {trace}", comparison.shown()).into());
        }
        Ok(comparison)
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
    ) -> Result<bool, CommandError> {
        let Some(first) = remaining(first).filter(|remaining| *remaining >= REPEATS) else {
            return Ok(false);
        };
        let mut before = first;
        for _ in 0..REPEATS {
            let result = call(old, request).await;
            let result = result.map_err(|error| failed(self.live, "", error))?;
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
        )
        .into())
    }
}

fn failed(address: &str, position: &str, error: ClientError) -> String {
    format!("{address}{position}: {}", error.with_advice())
}

/// Returns the remaining hits of the first limit in a response.
fn remaining(result: &CallResult) -> Option<u32> {
    let statuses = &result.as_ref().ok()?.statuses;
    let first = statuses.iter().find(|status| status.current_limit.is_some());
    first.map(|status| status.limit_remaining)
}

/// Parses a request, alone or as `request` of a line of a trace.
fn read(line: &[u8], calls: ComparedCalls) -> Result<RateLimitRequest, JsonError> {
    let mut line: Value = serde_json::from_slice(line)?;
    let request = line.get_mut("request").map(Value::take).unwrap_or(line);
    let mut request = json::request_message(request)?;
    if calls == ComparedCalls::Peeks {
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
) -> Result<CallResult, ClientError> {
    match client.should_rate_limit(request.clone()).await {
        Err(error @ (ClientError::Connect { .. } | ClientError::NoAnswer(_))) => Err(error),
        result => Ok(result),
    }
}

/// Formats a descriptor as `user=ann`, in the form that `tollgate hit` accepts.
fn descriptor_text(descriptor: Option<&RateLimitDescriptor>) -> String {
    let entries = descriptor.map(|descriptor| descriptor.entries.as_slice()).unwrap_or_default();
    let entries = entries.iter().map(|entry| {
        let key = String::from_utf8_lossy(&entry.key);
        format!("{key}={}", String::from_utf8_lossy(&entry.value))
    });
    entries.collect::<Vec<_>>().join(",")
}
