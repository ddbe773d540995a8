//! `tollgate hit`: sends requests to a running service, as a client.

use std::fmt;
use std::process::ExitCode;

use super::api::is_loopback;
use super::client_tls::ClientTlsFlags;
use super::output::{print_stderr, seconds_text, try_print};
use super::{CommandError, try_block_on};
use crate::algorithm::hold::MAX_ID;
use crate::descriptor::{self, hold};
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::json;
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::rate_limit::Unit;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::printable::{counted, escaped_json, shell_quoted};
use crate::telemetry::journal::key::read_text;

/// Default of the admin port.
const ADMIN_PORT: u16 = 6070;

/// Send rate limit requests to a running service.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  all requests are admitted
  1  a request is over limit; with --hits 0, also if no hits remain
  2  a request failed

Examples:
  # Charge one hit
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7
  # Check a limit without charging it
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7 --hits 0
  # Send two descriptors, three times
  tollgate hit 127.0.0.1:8081 tiers plan=free,user=ann plan=premium,user=ann --count 3
  # Reserve 500 tokens under an ID, then replace them with the actual cost
  tollgate hit 127.0.0.1:8081 llm tenant=a --reserve r1 --hits 500
  tollgate hit 127.0.0.1:8081 llm tenant=a --commit r1 --hits 320
  # Connect with TLS and a private CA
  tollgate hit ratelimit.svc:8081 tiers plan=free,user=ann --tls --ca ca.crt")]
pub struct Hit {
    /// gRPC address of the service, host:port. Default port: 8081.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Domain of the descriptors.
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// Descriptors, each `key=value,key=value`, as in the output of `tollgate denials`. A comma in
    /// a value is written as `\,`.
    #[arg(value_name = "DESCRIPTOR", required = true)]
    descriptors: Vec<String>,
    /// Number of hits to charge per descriptor. 0 checks the limit without charging it.
    #[arg(long, value_name = "N")]
    hits: Option<u64>,
    /// Reserve the hits under this ID, for a limit with `hold`. Appends the entry tollgate.reserve
    /// to each descriptor.
    #[arg(long, value_name = "ID", value_parser = hold_id, group = "hold")]
    reserve: Option<String>,
    /// End the oldest hold of this ID, and replace its estimate with the cost, --hits. Appends the
    /// entry tollgate.commit.
    #[arg(long, value_name = "ID", value_parser = hold_id, group = "hold", requires = "hits")]
    commit: Option<String>,
    /// End the oldest hold of this ID without a cost. Appends the entry tollgate.settle.
    #[arg(long, value_name = "ID", value_parser = hold_id, group = "hold", conflicts_with = "hits")]
    settle: Option<String>,
    /// Number of requests to send. With several, their number by code goes to standard error.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    /// Print each response as proto3 JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
}

/// The number of responses by code.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseCounts {
    ok: u64,
    denied: u64,
}

impl fmt::Display for ResponseCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, denied } = self;
        write!(f, "{}: {ok} OK, {denied} OVER_LIMIT", counted(ok + denied, "request"))
    }
}

impl Hit {
    /// Sends the requests and prints each response.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        Ok(ExitCode::from(u8::from(try_block_on(self.send())?)))
    }

    /// Returns `true` if any response was over limit.
    async fn send(&self) -> Result<bool, CommandError> {
        let request = self.request()?;
        let client = RateLimitClient::connect(&self.address, self.tls.options().as_ref()).await;
        let mut client = client.map_err(ClientError::with_advice)?;
        let mut counts = ResponseCounts::default();
        let sent = self.send_all(&request, &mut client, &mut counts).await;
        if counts.ok + counts.denied > 1 {
            print_stderr(counts);
        }
        sent
    }

    /// Sends the requests until one fails. Returns `true` if a response was over limit.
    async fn send_all(
        &self,
        request: &RateLimitRequest,
        client: &mut RateLimitClient,
        counts: &mut ResponseCounts,
    ) -> Result<bool, CommandError> {
        let mut over = false;
        for _ in 0..self.count {
            let response = client.ask(request.clone()).await;
            let response = response.map_err(ClientError::with_advice)?;
            let is_denied = response.overall_code == i32::from(Code::OverLimit);
            counts.denied += u64::from(is_denied);
            counts.ok += u64::from(!is_denied);
            over |= is_denied;
            over |= response.statuses.iter().any(|status| self.is_used_up(status));
            let text = if self.json {
                format!("{}\n", escaped_json(&json::response_of(&response)?.to_string()))
            } else {
                self.text(&response)
            };
            // Standard output is closed: no further requests are needed.
            if try_print(text).is_err() {
                break;
            }
        }
        Ok(over)
    }

    fn request(&self) -> Result<RateLimitRequest, CommandError> {
        let mut descriptors = Vec::new();
        for text in &self.descriptors {
            let owned = read_text(text).map_err(|error| format!("descriptor `{text}`: {error}"))?;
            let entries = owned.entries().into_iter().chain(self.operation());
            let entries = entries.map(|entry| Entry {
                key: entry.key.to_vec().into(),
                value: entry.value.to_vec().into(),
            });
            descriptors.push(RateLimitDescriptor {
                entries: entries.collect(),
                hits_addend: self.hits,
                ..Default::default()
            });
        }
        Ok(RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 })
    }

    /// Returns the entry of the operation on a hold, if there is one.
    fn operation(&self) -> Option<descriptor::Entry<'_>> {
        let operations = [
            (hold::RESERVE, &self.reserve),
            (hold::COMMIT, &self.commit),
            (hold::SETTLE, &self.settle),
        ];
        let (key, id) = operations.into_iter().find_map(|(key, id)| Some((key, id.as_ref()?)))?;
        Some(descriptor::Entry { key: key.as_bytes(), value: id.as_bytes() })
    }

    fn text(&self, response: &RateLimitResponse) -> String {
        let lines = self.descriptors.iter().zip(&response.statuses);
        let lines = lines.map(|(descriptor, status)| {
            let hint = misspelled(descriptor, status).unwrap_or_default();
            format!("  {descriptor}: {}{hint}\n", self.status_text(descriptor, status))
        });
        std::iter::once(format!("{}\n", code_name(response.overall_code))).chain(lines).collect()
    }

    /// Returns `true` if a peek finds no remaining hits. The status itself is OK, since 0 hits
    /// always fit.
    fn is_used_up(&self, status: &DescriptorStatus) -> bool {
        let is_peek = self.hits == Some(0) && self.commit.is_none();
        is_peek && status.current_limit.is_some() && status.limit_remaining == 0
    }

    /// Returns the flag for the admin port of the service, preceded by a space; empty if it is on
    /// this machine, as is the default.
    fn admin_flag(&self) -> String {
        let host = host_of(&self.address);
        if is_loopback(host.trim_matches(['[', ']'])) {
            return String::new();
        }
        format!(" --admin {}", shell_quoted(&format!("{host}:{ADMIN_PORT}")))
    }

    /// Formats a status, such as `OK, 99 of 100 per minute remaining, resets in 42s`.
    fn status_text(&self, descriptor: &str, status: &DescriptorStatus) -> String {
        let code = code_name(status.code);
        let Some(limit) = &status.current_limit else {
            if status.limit_remaining == u32::MAX {
                return format!("{code}, unlimited by rule");
            }
            let domain = shell_quoted(&self.domain);
            let descriptor = shell_quoted(descriptor);
            let admin = self.admin_flag();
            return format!(
                "{code}, no limit applied: no policy for the domain, no matching rule, or a store error with \
                 `on_store_error: allow`; see `tollgate explain {domain} {descriptor}{admin}`"
            );
        };
        let hits = self.hits.unwrap_or(1);
        let wait = status.duration_until_reset.as_ref().map(|wait| wait.seconds);
        let is_over = status.code == i32::from(Code::OverLimit);
        let details = match (is_over, wait) {
            (_, _) if limit.requests_per_unit == 0 => ": a limit of 0 denies every hit".to_owned(),
            (true, _) if hits > u64::from(limit.requests_per_unit) => {
                format!(": a request of {hits} hits exceeds the limit")
            }
            (true, Some(seconds)) => format!(", retry after {}", seconds_text(seconds)),
            (true, None) => {
                format!(
                    ": {hits} hits are never admitted, or the store failed (`on_store_error: deny`)"
                )
            }
            (false, Some(seconds)) if self.is_used_up(status) => {
                format!(": the next hit is denied; resets in {}", seconds_text(seconds))
            }
            (false, Some(seconds)) => format!(", resets in {}", seconds_text(seconds)),
            (false, None) => String::new(),
        };
        let has_burst = status.limit_remaining > limit.requests_per_unit;
        let limit = limit_text(limit);
        if is_over && hits > 1 {
            format!("{code}, too few of {limit} remaining for {hits} hits{details}")
        } else if has_burst {
            let remaining = status.limit_remaining;
            format!("{code}, {remaining} remaining of a burst, {limit}{details}")
        } else {
            format!("{code}, {} of {limit} remaining{details}", status.limit_remaining)
        }
    }
}

/// Returns the host of an address or a URL, with the brackets of IPv6.
fn host_of(address: &str) -> &str {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or(authority);
    match authority.rsplit_once(':') {
        // The colon is one of an address of IPv6 without a port.
        Some((_, port)) if port.contains(']') => authority,
        Some((host, _)) => host,
        None => authority,
    }
}

/// Returns a hint if a descriptor without a limit has a `:` where a `=` was probably meant.
fn misspelled(descriptor: &str, status: &DescriptorStatus) -> Option<String> {
    let (key, value) = descriptor.split_once(':')?;
    let is_alone = status.current_limit.is_none() && !descriptor.contains('=');
    is_alone.then(|| format!("; did you mean `{key}={value}`?"))
}

/// Parses the ID of a hold.
fn hold_id(text: &str) -> Result<String, HoldIdLength> {
    match text.len() {
        1..=MAX_ID => Ok(text.to_owned()),
        found => Err(HoldIdLength { found }),
    }
}

/// The error of an ID of a hold that is too long or empty.
#[derive(Debug, thiserror::Error)]
#[error("expected 1 to {MAX_ID} bytes, found {found}")]
struct HoldIdLength {
    found: usize,
}

fn code_name(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    }
}

fn limit_text(limit: &RateLimit) -> String {
    let unit = match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) | Err(_) => {
            return with_name(limit, format!("{}", limit.requests_per_unit));
        }
        Ok(unit) => unit.as_str_name().to_lowercase(),
    };
    let per = match limit.unit_multiplier {
        Some(multiplier) => format!("{multiplier} {unit}s"),
        None => unit,
    };
    with_name(limit, format!("{} per {per}", limit.requests_per_unit))
}

fn with_name(limit: &RateLimit, text: String) -> String {
    if limit.name.is_empty() { text } else { format!("{text} ({})", limit.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_has_no_scheme_port_or_path() {
        for (address, host) in [
            ("a", "a"),
            ("a:8081", "a"),
            ("[::1]", "[::1]"),
            ("[::1]:8081", "[::1]"),
            ("https://a.example", "a.example"),
            ("http://127.0.0.1:8081/", "127.0.0.1"),
        ] {
            assert_eq!(host_of(address), host);
        }
    }

    #[test]
    fn a_colon_in_place_of_an_equals_sign_is_named() {
        let free = DescriptorStatus::default();
        let hint = misspelled("remote_address:1.2.3.4", &free);
        assert_eq!(hint.as_deref(), Some("; did you mean `remote_address=1.2.3.4`?"));
        assert_eq!(misspelled("remote_address=::1", &free), None);
        let limited =
            DescriptorStatus { current_limit: Some(RateLimit::default()), ..Default::default() };
        assert_eq!(misspelled("a:b", &limited), None);
    }
}
