//! `tollgate hit`: ask a running service, as a client.

use std::path::PathBuf;
use std::process::ExitCode;

use super::block_on;
use crate::descriptor::{self, entries};
use crate::grpc::client::{Client, ClientError, ClientTls};
use crate::grpc::json::{self, JsonError};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::rate_limit::Unit;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

/// Ask a running service.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 OK, 1 over limit, 2 no answer.

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
    /// Descriptors, each `key=value,key=value`.
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
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
}

impl Hit {
    /// Asks, and prints each answer.
    pub fn run(self) -> ExitCode {
        match block_on(self.ask()) {
            Ok(Ok(false)) => ExitCode::SUCCESS,
            Ok(Ok(true)) => ExitCode::from(1),
            Ok(Err(error)) => fail(&error),
            Err(error) => fail(&error),
        }
    }

    /// Says whether any answer was over limit.
    async fn ask(&self) -> Result<bool, HitError> {
        let tls = self.tls.then(|| self.client_tls()).transpose()?;
        let mut client = Client::connect(&self.address, tls.as_ref()).await?;
        let mut over = false;
        for _ in 0..self.count {
            let answer = client.should_rate_limit(self.request()).await?;
            over |= answer.overall_code == i32::from(Code::OverLimit);
            if self.json {
                println!("{}", json::response_of(&answer)?);
            } else {
                self.print(&answer);
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

    fn request(&self) -> RateLimitRequest {
        let entry =
            |entry: descriptor::Entry<'_>| Entry { key: entry.key.to_vec().into(), value: entry.value.to_vec().into() };
        let descriptors = self.descriptors.iter().map(|text| RateLimitDescriptor {
            entries: entries(text).into_iter().map(entry).collect(),
            hits_addend: self.hits,
            ..Default::default()
        });
        RateLimitRequest { domain: self.domain.clone(), descriptors: descriptors.collect(), hits_addend: 0 }
    }

    fn print(&self, answer: &RateLimitResponse) {
        println!("{}", word(answer.overall_code));
        for (descriptor, status) in self.descriptors.iter().zip(&answer.statuses) {
            println!("  {descriptor}: {}", in_words(status));
        }
    }
}

fn word(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    }
}

/// `OK, 99 of 100 per minute left, as new in 42 s`.
fn in_words(status: &DescriptorStatus) -> String {
    let Some(limit) = &status.current_limit else {
        let unlimited = status.limit_remaining == u32::MAX;
        return format!("{}, {}", word(status.code), if unlimited { "unlimited by rule" } else { "no limit applies" });
    };
    let wait = status.duration_until_reset.as_ref().map(|wait| wait.seconds);
    let is_over = status.code == i32::from(Code::OverLimit);
    let then = match (is_over, wait) {
        (true, Some(seconds)) => format!(", try again in {seconds} s"),
        (true, None) => ", never".to_owned(),
        (false, Some(seconds)) => format!(", as new in {seconds} s"),
        (false, None) => String::new(),
    };
    format!("{}, {} of {} left{then}", word(status.code), status.limit_remaining, limit_in_words(limit))
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

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}
