//! `tollgate migrate`: compares an envoyproxy/ratelimit deployment with Tollgate.

mod comparison;
mod live;
mod responses;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use super::CommandError;
use super::client_tls::ClientTlsFlags;
use super::output::try_print;
use super::settings::variables;
use crate::migrate::{DeploymentParts, MigrationError, MigrationTarget, PolicyFiles, report};
use crate::settings::{MessageFlag, policy_settings, service_flags};
use responses::ComparedCalls;

/// Compare an envoyproxy/ratelimit deployment with Tollgate, before or after the switch
#[derive(Debug, clap::Args)]
#[command(
    mut_args(with_live),
    after_help = "\
An env file has one NAME=VALUE per line. Comments, quotes and `export` are parsed as in a shell; `$` is literal.

A line of the trace is a RateLimitRequest in JSON, or an object with one as `request`, as for `tollgate replay`. \
Other lines are skipped and reported.

Exit codes:
  0  everything can stay as it is, or all responses are equal
  1  something must change, responses differ, or part of the manifest is `not read`
  2  a file or a line of the trace is invalid, or a service is unreachable

Examples:
  # Report what stays the same, what differs and what improves
  tollgate migrate --env-file ratelimit.env --policy runtime/config
  # Also write tollgate.env and policies/
  tollgate migrate --manifest ratelimit.yaml --output tollgate/
  # Report on the Deployment that runs now
  kubectl get deployment,configmap -o yaml | tollgate migrate --manifest - --container ratelimit
  # Send the same requests to both services and compare the responses
  tollgate migrate --live old:8081 --against new:8081 trace.jsonl
  # The same, without charging hits
  tollgate migrate --live old:8081 --against new:8081 --peek trace.jsonl"
)]
pub struct Migrate {
    #[command(flatten)]
    parts: DeploymentParts,
    /// gRPC address of the running envoyproxy/ratelimit, host:port
    #[arg(long, value_name = "ADDRESS", requires_all = ["against", "trace"])]
    live: Option<String>,
    /// gRPC address of the Tollgate to compare it with, host:port
    #[arg(long, value_name = "ADDRESS", requires = "live")]
    against: Option<String>,
    /// Send 0 hits, which charges nothing, and compare only the limits that apply. Requires an
    /// envoyproxy/ratelimit from the end of 2024 or later: older ones ignore it and charge a hit
    #[arg(long, requires = "live")]
    peek: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
    /// Requests to send to both services. `-` is standard input
    #[arg(value_name = "TRACE", requires = "live")]
    trace: Option<PathBuf>,
}

/// Makes `--tls` require `--live`. The other TLS flags require `--tls`.
fn with_live(argument: clap::Arg) -> clap::Arg {
    if argument.get_id() == "tls" { argument.requires("live") } else { argument }
}

impl Migrate {
    /// Prints the page, or the differences between the responses.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        if let Some(live) = &self.live
            && let Some(against) = &self.against
            && let Some(trace) = &self.trace
        {
            return live::run(&live::ServicePair {
                live,
                against,
                trace,
                tls: &self.tls,
                calls: if self.peek { ComparedCalls::Peeks } else { ComparedCalls::Charging },
            });
        }
        let report = match report(&self.parts, variables(), &target()) {
            Ok(report) => report,
            Err(MigrationError::Yaml(report)) => return Err(report.into()),
            Err(error) => return Err(error.into()),
        };
        match try_print(report.page) {
            // A reader such as `head` may close the pipe.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("standard output: {error}").into())
            }
            Ok(()) | Err(_) if report.is_whole => Ok(ExitCode::SUCCESS),
            Ok(()) | Err(_) => Ok(ExitCode::FAILURE),
        }
    }
}

/// Returns the flags and settings of `serve`.
fn target() -> MigrationTarget {
    MigrationTarget {
        flags: service_flags(),
        policy_files: |matches| {
            let policy = policy_settings(matches)?;
            Some(PolicyFiles { locations: policy.places, options: policy.options })
        },
        request_excess: |largest| MessageFlag::default().excess(largest),
    }
}

#[cfg(test)]
mod tests;
