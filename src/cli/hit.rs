//! `tollgate hit`: sends requests to a running service, as a client.

use std::process::ExitCode;

use super::block_on;
use super::client_tls::{ClientTlsFlags, UnreadableFile};
use super::said::{no_answer, try_say};
use crate::descriptor;
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::json::{self, JsonError};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::rate_limit::Unit;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::journal::key::{NoEntries, read_text};
use crate::printable::escaped_json;

/// Send requests to a running service.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 OK, 1 over limit, 2 no answer. With --hits 0 also 1 where nothing is left: the next hit is denied.

Take one hit; look and take none; two descriptors, three times:
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7 --hits 0
  tollgate hit 127.0.0.1:8081 tiers plan=free,user=ann plan=premium,user=ann --count 3
  tollgate hit ratelimit.svc:8081 tiers plan=free,user=ann --tls --ca ca.crt")]
pub struct Hit {
    /// gRPC address of the service, host:port.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Domain of the descriptors.
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// Descriptors, each `key=value,key=value`, as `tollgate denials` shows them: `\\,` is a comma
    /// in a value.
    #[arg(value_name = "DESCRIPTOR", required = true)]
    descriptors: Vec<String>,
    /// Number of hits that each descriptor charges; 0 only peeks.
    #[arg(long, value_name = "N")]
    hits: Option<u64>,
    /// Number of requests to send.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    /// Print each response as proto3 JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
}

/// The error of a request.
#[derive(Debug, thiserror::Error)]
enum HitError {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{0}")]
    Json(#[from] JsonError),
    #[error("descriptor `{text}`: {wrong}")]
    Descriptor { text: String, wrong: NoEntries },
    #[error("{0}")]
    File(#[from] UnreadableFile),
}

impl Hit {
    /// Sends the requests and prints each response.
    pub fn run(self) -> ExitCode {
        match block_on(self.ask()) {
            Ok(Ok(false)) => ExitCode::SUCCESS,
            Ok(Ok(true)) => ExitCode::from(1),
            Ok(Err(error)) => no_answer(error),
            Err(error) => no_answer(error),
        }
    }

    /// Returns `true` if any response was over limit.
    async fn ask(&self) -> Result<bool, HitError> {
        let request = self.request()?;
        let tls = self.tls.read()?;
        let mut client = RateLimitClient::connect(&self.address, tls.as_ref()).await?;
        let mut over = false;
        for _ in 0..self.count {
            let answer = client.should_rate_limit(request.clone()).await?;
            over |= answer.overall_code == i32::from(Code::OverLimit);
            over |= answer.statuses.iter().any(|status| self.is_used_up(status));
            let text = if self.json {
                format!("{}\n", escaped_json(&json::response_of(&answer)?.to_string()))
            } else {
                self.text(&answer)
            };
            // Standard output is closed: no further requests are needed.
            if try_say(text).is_err() {
                break;
            }
        }
        Ok(over)
    }

    fn request(&self) -> Result<RateLimitRequest, HitError> {
        let entry =
            |entry: descriptor::Entry<'_>| Entry { key: entry.key.to_vec().into(), value: entry.value.to_vec().into() };
        let descriptor = |text: &String| {
            let owned = read_text(text).map_err(|wrong| HitError::Descriptor { text: text.clone(), wrong })?;
            let entries = owned.entries().into_iter().map(entry).collect();
            Ok::<_, HitError>(RateLimitDescriptor { entries, hits_addend: self.hits, ..Default::default() })
        };
        let descriptors = self.descriptors.iter().map(descriptor).collect::<Result<_, _>>()?;
        Ok(RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 })
    }

    fn text(&self, answer: &RateLimitResponse) -> String {
        let lines = self.descriptors.iter().zip(&answer.statuses);
        let lines = lines.map(|(descriptor, status)| format!("  {descriptor}: {}\n", self.in_words(status)));
        std::iter::once(format!("{}\n", word(answer.overall_code))).chain(lines).collect()
    }

    /// Returns `true` if a peek finds nothing left. The status itself is OK, as it is judged as 0
    /// hits.
    fn is_used_up(&self, status: &DescriptorStatus) -> bool {
        self.hits == Some(0) && status.current_limit.is_some() && status.limit_remaining == 0
    }

    /// Formats a status, such as `OK, 99 of 100 per minute left, as new in 42 s`.
    fn in_words(&self, status: &DescriptorStatus) -> String {
        let code = word(status.code);
        let Some(limit) = &status.current_limit else {
            let domain = &self.domain;
            let none = format!(
                "no limit applies: the domain `{domain}` has no policy, or no rule for this; see `tollgate explain`"
            );
            return format!("{code}, {}", if status.limit_remaining == u32::MAX { "unlimited by rule" } else { &none });
        };
        let hits = self.hits.unwrap_or(1);
        let wait = status.duration_until_reset.as_ref().map(|wait| wait.seconds);
        let is_over = status.code == i32::from(Code::OverLimit);
        let then = match (is_over, wait) {
            (_, _) if limit.requests_per_unit == 0 => ": it is a ban".to_owned(),
            // Only hits that can never fit have no time to wait for.
            (true, Some(0)) => format!(": {hits} at once never fit"),
            (true, Some(_)) if hits > u64::from(limit.requests_per_unit) => {
                format!(": {hits} at once are more than the limit")
            }
            (true, Some(seconds)) => format!(", try again in {seconds} s"),
            (true, None) => ", never".to_owned(),
            (false, Some(seconds)) if self.is_used_up(status) => {
                format!(": the next hit is denied; as new in {seconds} s")
            }
            (false, Some(seconds)) => format!(", as new in {seconds} s"),
            (false, None) => String::new(),
        };
        format!("{code}, {} of {} left{then}", status.limit_remaining, limit_in_words(limit))
    }
}

fn word(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    }
}

fn limit_in_words(limit: &RateLimit) -> String {
    let unit = match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) | Err(_) => return named(limit, format!("{}", limit.requests_per_unit)),
        Ok(unit) => unit.as_str_name().to_lowercase(),
    };
    let per = match limit.unit_multiplier {
        Some(multiplier) => format!("{multiplier} {unit}s"),
        None => unit,
    };
    named(limit, format!("{} per {per}", limit.requests_per_unit))
}

fn named(limit: &RateLimit, text: String) -> String {
    if limit.name.is_empty() { text } else { format!("{text} ({})", limit.name) }
}
