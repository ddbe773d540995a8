//! `tollgate hit`: ask a running service, as a client.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::block_on;
use super::said::no_answer;
use crate::descriptor;
use crate::grpc::client::{Client, ClientError, ClientTls};
use crate::grpc::json::{self, JsonError};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::rate_limit::Unit;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::journal::key::{NoEntries, read_text};

/// Ask a running service.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 OK, 1 over limit, 2 no answer. With --hits 0 also 1 where nothing is left: the next hit is denied.

Take one hit; look and take none; two descriptors, three times:
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7 --hits 0
  tollgate hit 127.0.0.1:8081 tiers plan=free,user=ann plan=premium,user=ann --count 3
  tollgate hit ratelimit.svc:8081 tiers plan=free,user=ann --tls --ca ca.crt")]
pub struct Hit {
    /// Where the service listens for gRPC, host:port.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The domain.
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// Descriptors, each `key=value,key=value`, as `tollgate denials` shows them: `\\,` is a comma of a value.
    #[arg(value_name = "DESCRIPTOR", required = true)]
    descriptors: Vec<String>,
    /// Hits that each descriptor takes; 0 only looks.
    #[arg(long, value_name = "N")]
    hits: Option<u64>,
    /// How often to ask.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    /// Print the answer as proto3 JSON.
    #[arg(long)]
    json: bool,
    /// Speak TLS; the system's authorities are trusted.
    #[arg(long)]
    tls: bool,
    /// PEM file of an authority to trust as well.
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// PEM file of the certificate to show.
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The name that the server's certificate has to be for, where it is not the host.
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,
}

/// Why there is no answer to print.
#[derive(Debug, thiserror::Error)]
enum HitError {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{0}")]
    Json(#[from] JsonError),
    #[error("descriptor `{text}`: {wrong}")]
    Descriptor { text: String, wrong: NoEntries },
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
}

impl Hit {
    /// Asks, and prints each answer.
    pub fn run(self) -> ExitCode {
        match block_on(self.ask()) {
            Ok(Ok(false)) => ExitCode::SUCCESS,
            Ok(Ok(true)) => ExitCode::from(1),
            Ok(Err(error)) => no_answer(error),
            Err(error) => no_answer(error),
        }
    }

    /// Says whether any answer was over limit.
    async fn ask(&self) -> Result<bool, HitError> {
        let request = self.request()?;
        let tls = self.tls.then(|| self.client_tls()).transpose()?;
        let mut client = Client::connect(&self.address, tls.as_ref()).await?;
        let mut over = false;
        for _ in 0..self.count {
            let answer = client.should_rate_limit(request.clone()).await?;
            over |= answer.overall_code == i32::from(Code::OverLimit);
            over |= answer.statuses.iter().any(|status| self.is_used_up(status));
            let text = if self.json { format!("{}\n", json::response_of(&answer)?) } else { self.text(&answer) };
            // Nobody is left to tell: then nothing more is asked.
            if io::stdout().write_all(text.as_bytes()).is_err() {
                break;
            }
        }
        Ok(over)
    }

    fn client_tls(&self) -> Result<ClientTls, HitError> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| HitError::File { path: path.clone(), error });
        let identity = self.cert.as_ref().zip(self.key.as_ref());
        Ok(ClientTls {
            authorities: self.ca.as_ref().map(read).transpose()?,
            identity: identity.map(|(chain, key)| Ok::<_, HitError>((read(chain)?, read(key)?))).transpose()?,
            name: self.server_name.clone(),
        })
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

    /// Whether a look has found nothing left. Of itself it would be OK: it is judged as no hits.
    fn is_used_up(&self, status: &DescriptorStatus) -> bool {
        self.hits == Some(0) && status.current_limit.is_some() && status.limit_remaining == 0
    }

    /// `OK, 99 of 100 per minute left, as new in 42 s`.
    fn in_words(&self, status: &DescriptorStatus) -> String {
        let code = word(status.code);
        let Some(limit) = &status.current_limit else {
            let domain = &self.domain;
            let none = format!(
                "no limit applies: the domain `{domain}` has no policy, or no rule for this; see `tollgate explain`"
            );
            return format!("{code}, {}", if status.limit_remaining == u32::MAX { "unlimited by rule" } else { &none });
        };
        let (hits, wait) = (self.hits.unwrap_or(1), status.duration_until_reset.as_ref().map(|wait| wait.seconds));
        let is_over = status.code == i32::from(Code::OverLimit);
        let then = match (is_over, wait) {
            (true, _) if limit.requests_per_unit == 0 => ": it is a ban".to_owned(),
            // Only what never fits has to wait for nothing.
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
