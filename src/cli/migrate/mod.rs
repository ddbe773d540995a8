//! `tollgate migrate`: compares an envoyproxy/ratelimit with Tollgate, on one page.

mod answers;
mod commands;
mod config_maps;
mod container_env;
mod env_file;
mod given;
mod live;
mod manifest;
mod own;
mod page;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use self::given::Given;
use self::page::Page;
use super::client_tls::ClientTlsFlags;
use super::said::{no_answer, try_say};
use crate::policy::source::files;
use crate::policy::{self, Loaded, PolicyReport};
use crate::settings::PolicySettings;
use crate::settings::envoyproxy::{self, Translation};

/// Compare an envoyproxy/ratelimit with the Tollgate that replaces it, before and after the switch
#[derive(Debug, clap::Args)]
#[command(
    mut_args(with_live),
    after_help = "\
Examples:
  tollgate migrate --env-file ratelimit.env --policy runtime/config    what stays, what differs, what is gained
  tollgate migrate --manifest ratelimit.yaml --output tollgate/        writes tollgate.env and policies/ as well
  tollgate migrate --live old:8081 --against new:8081 trace.jsonl      asks both and compares the answers
  tollgate migrate --live old:8081 --against new:8081 --peek trace.jsonl    the same, without taking hits

An env file has one NAME=VALUE per line. Comments, quotes and `export` are read as a shell does; `$` has no meaning.

A line of the trace is a RateLimitRequest in JSON, alone or as `request` of a line that `tollgate replay` reads.
Other lines are skipped and reported.

Exit status 0: all can stay as it is, or all answers are equal; 1: not all, or part of the manifest is `not read`;
2: a file, or a line of the trace, cannot be read, or a service cannot be reached."
)]
pub struct Migrate {
    /// Variables of that service, one NAME=VALUE per line; by default those of this environment
    #[arg(long, value_name = "FILE", conflicts_with_all = ["manifest", "live"])]
    env_file: Option<PathBuf>,
    /// Kubernetes manifest with its Deployment, and its ConfigMaps if it has any
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    manifest: Option<PathBuf>,
    /// Container of the manifest, if several could be that service; `WORKLOAD/NAME` if several have
    /// the name
    #[arg(long, value_name = "NAME", requires = "manifest")]
    container: Option<String>,
    /// Its configuration, a file or a directory, in place of the one that the variables set. May be
    /// repeated
    #[arg(long, value_name = "PATH", conflicts_with = "live")]
    policy: Vec<PathBuf>,
    /// Write the settings and policies in Tollgate's own format: DIR/tollgate.env and DIR/policies
    #[arg(long, value_name = "DIR", conflicts_with = "live")]
    output: Option<PathBuf>,
    /// Running envoyproxy/ratelimit to send requests to, host:port of its gRPC
    #[arg(long, value_name = "ADDRESS", requires_all = ["against", "trace"])]
    live: Option<String>,
    /// Tollgate to send the same requests to
    #[arg(long, value_name = "ADDRESS", requires = "live")]
    against: Option<String>,
    /// Send 0 hits, which charges nothing, and compare only the limits that apply. Needs an
    /// envoyproxy/ratelimit of the end of 2024 or later: older ones ignore it, and take a hit
    #[arg(long, requires = "live")]
    peek: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
    /// Requests to send to both; `-` is standard input
    #[arg(value_name = "TRACE", requires = "live")]
    trace: Option<PathBuf>,
}

/// Requires a comparison of services for TLS, on which the other flags of TLS depend.
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
    Refused(PolicyReport),
}

impl Migrate {
    /// Prints the page, or the differences between responses.
    pub fn run(self) -> ExitCode {
        if let Some(live) = &self.live
            && let Some(against) = &self.against
            && let Some(trace) = &self.trace
        {
            return live::run(&live::Both { live, against, trace, tls: &self.tls, peek: self.peek });
        }
        match self.page() {
            Ok((page, is_whole)) => match try_say(page) {
                // A reader such as `head` may close the pipe.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => no_answer(format!("standard output: {error}")),
                Ok(()) | Err(_) if is_whole => ExitCode::SUCCESS,
                Ok(()) | Err(_) => ExitCode::FAILURE,
            },
            // A report on a file begins with the severity.
            Err(error) => no_answer(error.trim_end().trim_start_matches("error: ")),
        }
    }

    /// Returns the page, and `true` if the deployment can stay as it is.
    fn page(&self) -> Result<(String, bool), String> {
        let mut given = self.given()?;
        let translation = given.translate();
        let settings = envoyproxy::policies(&translation);
        let policies = self.policies(&given, &translation, settings.as_ref())?;
        let is_whole = translation.problems.is_empty()
            && given.problems.is_empty()
            && matches!(policies, MigratedPolicies::Loaded { .. } | MigratedPolicies::ControlPlane(_));
        let written = match (&self.output, is_whole) {
            (Some(folder), true) => Some(own::write(folder, &given, &translation, settings.as_ref(), &policies)?),
            (Some(_), false) | (None, _) => None,
        };
        let page = Page { given: &given, translation: &translation, policies: &policies, written: written.as_ref() };
        Ok((given.masked(&page.to_string()), is_whole && given.is_read()))
    }

    fn given(&self) -> Result<Given, String> {
        match (&self.env_file, &self.manifest) {
            (Some(path), _) => given::of_env_file(path),
            (None, Some(path)) => manifest::read(path, self.container.as_deref()),
            (None, None) => Ok(given::of_environment()),
        }
    }

    fn policies(
        &self,
        given: &Given,
        translation: &Translation,
        settings: Option<&PolicySettings>,
    ) -> Result<MigratedPolicies, String> {
        let plane = translation.flags.iter().find(|flag| flag.name == "--xds").and_then(|flag| flag.values.first());
        if let Some(plane) = plane
            && self.policy.is_empty()
        {
            return Ok(MigratedPolicies::ControlPlane(given.place_of(plane).unwrap_or(plane).to_owned()));
        }
        let Some(settings) = settings else {
            return Ok(MigratedPolicies::Missing("not looked for, until the settings are right".to_owned()));
        };
        let mut places = settings.places.clone();
        if !self.policy.is_empty() {
            places.paths.clone_from(&self.policy);
            places.which.prefix.clear();
        }
        let from = places.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let mounted = given.mounted(&places);
        let files = match () {
            () if self.policy.is_empty() && !mounted.is_empty() => Ok(mounted),
            () if places.paths.iter().any(|path| !path.exists()) => {
                return Ok(MigratedPolicies::Missing(format!("nothing is at {from}; add `--policy PATH`")));
            }
            () => files::read(&places),
        };
        Ok(match files.and_then(|files| Ok((policy::load(&files, &settings.options)?, files))) {
            Ok((loaded, files)) => MigratedPolicies::Loaded { files, loaded, from, unused_plane: plane.cloned() },
            Err(report) => MigratedPolicies::Refused(report),
        })
    }
}
