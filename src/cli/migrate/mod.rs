//! `tollgate migrate`: compares an envoyproxy/ratelimit deployment with Tollgate.

mod commands;
mod config_maps;
mod container;
mod container_env;
mod deployment;
mod env_file;
mod export;
mod live;
mod manifest;
mod next_steps;
mod page;
mod paths;
mod rejected;
mod responses;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use self::deployment::{Deployment, DeploymentSource};
use self::page::Page;
use super::client_tls::ClientTlsFlags;
use super::output::{report_error, try_print};
use crate::envoyproxy::{self, Translation};
use crate::policy::source::files;
use crate::policy::{self, Loaded, ProblemReport};
use crate::settings::PolicySettings;

/// Compare an envoyproxy/ratelimit deployment with Tollgate, before or after the switch
#[derive(Debug, clap::Args)]
#[command(
    mut_args(with_live),
    after_help = "\
An env file has one NAME=VALUE per line. Comments, quotes and `export` are parsed as in a shell; `$` is literal.

A line of the trace is a RateLimitRequest in JSON, or an object with one as `request`, as for `tollgate replay`.
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
    /// Env file of envoyproxy/ratelimit, one NAME=VALUE per line, instead of this environment. With
    /// --manifest, its variables are added to those of the container and take precedence
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    env_file: Option<PathBuf>,
    /// Kubernetes manifest with its Deployment and ConfigMaps. `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    manifest: Option<PathBuf>,
    /// Container in the manifest, if it cannot be detected. `WORKLOAD/NAME` if the name is not
    /// unique
    #[arg(long, value_name = "NAME", requires = "manifest")]
    container: Option<String>,
    /// Configuration of envoyproxy/ratelimit, a file or a directory, instead of the path in the
    /// variables. May be repeated
    #[arg(long, value_name = "PATH", conflicts_with = "live")]
    policy: Vec<PathBuf>,
    /// Write the settings and policies in Tollgate's own format: DIR/tollgate.env and DIR/policies
    #[arg(long, value_name = "DIR", conflicts_with = "live")]
    output: Option<PathBuf>,
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

/// The policies that the service loads, or why there are none.
enum MigratedPolicies {
    Loaded {
        files: Vec<policy::Source>,
        loaded: Loaded,
        from: String,
        /// Address of the control plane that the variables set, if the operator gave files.
        unused_plane: Option<String>,
    },
    ControlPlane(String),
    Missing(String),
    Invalid(ProblemReport),
}

impl Migrate {
    /// Prints the page, or the differences between the responses.
    pub fn run(self) -> ExitCode {
        if let Some(live) = &self.live
            && let Some(against) = &self.against
            && let Some(trace) = &self.trace
        {
            return live::run(&live::ServicePair {
                live,
                against,
                trace,
                tls: &self.tls,
                peek: self.peek,
            });
        }
        match self.page() {
            Ok((page, is_whole)) => match try_print(page) {
                // A reader such as `head` may close the pipe.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    report_error(format!("standard output: {error}"))
                }
                Ok(()) | Err(_) if is_whole => ExitCode::SUCCESS,
                Ok(()) | Err(_) => ExitCode::FAILURE,
            },
            // A report on a file begins with the severity.
            Err(error) => report_error(error.trim_end().trim_start_matches("error: ")),
        }
    }

    /// Returns the page, and `true` if the deployment can stay as it is.
    fn page(&self) -> Result<(String, bool), String> {
        let mut deployment = self.deployment()?;
        let translation = deployment.translate();
        if deployment.source != DeploymentSource::Manifest {
            deployment.notes.extend(paths::missing(&deployment.variables, &translation));
        }
        let settings = envoyproxy::policies(&translation);
        let policies = self.policies(&deployment, &translation, settings.as_ref())?;
        let is_whole = translation.problems.is_empty()
            && deployment.problems.is_empty()
            && matches!(
                policies,
                MigratedPolicies::Loaded { .. } | MigratedPolicies::ControlPlane(_)
            );
        let written = match (&self.output, is_whole) {
            (Some(folder), true) => Some(export::write(
                folder,
                &deployment,
                &translation,
                settings.as_ref(),
                &policies,
            )?),
            (Some(_), false) | (None, _) => None,
        };
        let page = Page {
            deployment: &deployment,
            translation: &translation,
            policies: &policies,
            written: written.as_ref(),
        };
        Ok((deployment.masked(&page.to_string()), is_whole && deployment.is_read()))
    }

    fn deployment(&self) -> Result<Deployment, String> {
        match (&self.env_file, &self.manifest) {
            (Some(path), None) => deployment::of_env_file(path),
            (Some(path), Some(manifest)) => {
                manifest::read(manifest, self.container.as_deref())?.with_env_file(path)
            }
            (None, Some(path)) => manifest::read(path, self.container.as_deref()),
            (None, None) => Ok(deployment::of_environment()),
        }
    }

    fn policies(
        &self,
        deployment: &Deployment,
        translation: &Translation,
        settings: Option<&PolicySettings>,
    ) -> Result<MigratedPolicies, String> {
        let plane = translation
            .flags
            .iter()
            .find(|flag| flag.name == "--xds")
            .and_then(|flag| flag.values.first());
        if let Some(plane) = plane
            && self.policy.is_empty()
        {
            return Ok(MigratedPolicies::ControlPlane(
                deployment.reference_of(plane).unwrap_or(plane).to_owned(),
            ));
        }
        let Some(settings) = settings else {
            return Ok(MigratedPolicies::Missing(
                "not checked until the settings are valid".to_owned(),
            ));
        };
        let mut locations = settings.places.clone();
        if !self.policy.is_empty() {
            locations.paths.clone_from(&self.policy);
            locations.which.prefix.clear();
        }
        let from = locations
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(", ");
        let mounted = deployment.mounted(&locations);
        let files = match () {
            () if self.policy.is_empty() && !mounted.is_empty() => Ok(mounted),
            () if locations.paths.iter().any(|path| !path.exists()) => {
                return Ok(MigratedPolicies::Missing(format!(
                    "{from} does not exist; add `--policy PATH`"
                )));
            }
            () => files::read(&locations),
        };
        Ok(match files.and_then(|files| Ok((policy::load(&files, &settings.options)?, files))) {
            Ok((loaded, files)) => {
                MigratedPolicies::Loaded { files, loaded, from, unused_plane: plane.cloned() }
            }
            Err(report) => MigratedPolicies::Invalid(report),
        })
    }
}
