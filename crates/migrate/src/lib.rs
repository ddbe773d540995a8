//! Comparison of a deployment of envoyproxy/ratelimit with Tollgate: its settings and policies.
//!
//! Reads an environment, an env file or a Kubernetes manifest with the policies that they name, and
//! returns a report; writes an export if it is asked to. The flags and settings of the service are
//! given to it, as [`MigrationTarget`]. May use `core`, `yaml`, `policy` and `envoyproxy`; no
//! stores, no protocols, no network, no runtime.
//!
//! | file | contents |
//! |---|---|
//! | `deployment` | the variables and files of a deployment, and what is not read |
//! | `env_file` | env files |
//! | `manifest`, `container`, `container_env`, `config_maps`, `commands` | Kubernetes manifests |
//! | [`effects`] | the effect of each variable |
//! | `policies`, `rejected` | its policies, and those that only Tollgate accepts |
//! | `paths` | files that are missing on this machine |
//! | `page`, `next_steps` | the report |
//! | `export` | settings and policies in Tollgate's own format |
//! | `failure` | errors |

mod commands;
mod config_maps;
mod container;
mod container_env;
mod deployment;
pub mod effects;
mod env_file;
mod export;
mod failure;
mod manifest;
mod next_steps;
mod page;
mod paths;
mod policies;
mod rejected;

use std::path::PathBuf;

use clap::ArgMatches;
use tollgate_envoyproxy::service_flags::ServiceFlags;
use tollgate_envoyproxy::{Translation, Variables};

use self::deployment::{Deployment, DeploymentSource};
pub use self::failure::MigrationError;
use self::page::Page;
use self::policies::MigratedPolicies;
pub use self::policies::PolicyFiles;

/// The service that a deployment is compared with.
#[derive(Debug)]
pub struct MigrationTarget {
    /// Its flags.
    pub flags: ServiceFlags,
    /// Returns the locations and options of policies that flags set.
    pub policy_files: fn(&ArgMatches) -> Option<PolicyFiles>,
    /// Describes a domain with a number of open limits, if these may require larger requests than
    /// it accepts by default.
    pub request_excess: fn((&str, usize)) -> Option<String>,
}

/// The parts of a deployment, as an operator gives them.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct DeploymentParts {
    /// Env file of envoyproxy/ratelimit, one NAME=VALUE per line, instead of this environment. With
    /// --manifest, its variables are added to those of the container and take precedence
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    pub env_file: Option<PathBuf>,
    /// Kubernetes manifest with its Deployment and ConfigMaps. `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    pub manifest: Option<PathBuf>,
    /// Container in the manifest, if it cannot be detected. `WORKLOAD/NAME` if the name is not
    /// unique
    #[arg(long, value_name = "NAME", requires = "manifest")]
    pub container: Option<String>,
    /// Configuration of envoyproxy/ratelimit, a file or a directory, instead of the path in the
    /// variables. May be repeated
    #[arg(long, value_name = "PATH", conflicts_with = "live")]
    pub policy: Vec<PathBuf>,
    /// Write the settings and policies in Tollgate's own format: DIR/tollgate.env and DIR/policies
    #[arg(long, value_name = "DIR", conflicts_with = "live")]
    pub output: Option<PathBuf>,
}

/// The report on a deployment.
#[derive(Clone, Debug)]
pub struct MigrationReport {
    /// The text, for people.
    pub page: String,
    /// Set if the deployment can stay as it is.
    pub is_whole: bool,
}

/// Reports on a deployment, and exports it if a directory is given and nothing must change. Without
/// a file, the deployment has the variables of `environment`.
///
/// # Errors
/// A file cannot be read or written, or a line of an env file is invalid.
pub fn report(
    parts: &DeploymentParts,
    environment: Variables,
    target: &MigrationTarget,
) -> Result<MigrationReport, MigrationError> {
    let mut deployment = parts.deployment(environment)?;
    let translation = deployment.translate(&target.flags);
    if deployment.source != DeploymentSource::Manifest {
        deployment.notes.extend(paths::missing(&deployment.variables, &translation));
    }
    let files = target.policy_files(&translation);
    let policies = MigratedPolicies::of(&deployment, &translation, files.as_ref(), &parts.policy);
    let is_whole =
        translation.problems.is_empty() && deployment.problems.is_empty() && policies.are_usable();
    let written = match &parts.output {
        Some(folder) if is_whole => {
            let files = files.as_ref();
            let flags = &target.flags;
            Some(export::write(folder, &deployment, &translation, files, &policies, flags)?)
        }
        Some(_) | None => None,
    };
    let page = Page {
        target,
        deployment: &deployment,
        translation: &translation,
        policies: &policies,
        given: &parts.policy,
        written: written.as_ref(),
    };
    Ok(MigrationReport {
        page: deployment.masked(&page.to_string()),
        is_whole: is_whole && deployment.is_read(),
    })
}

impl MigrationTarget {
    /// Returns the sources of policies that a translation sets; `None` if its flags cannot be
    /// parsed.
    fn policy_files(&self, translation: &Translation) -> Option<PolicyFiles> {
        let matches = self.flags.parse(translation.words()).ok()?;
        (self.policy_files)(&matches)
    }
}

impl DeploymentParts {
    fn deployment(&self, environment: Variables) -> Result<Deployment, MigrationError> {
        let container = self.container.as_deref();
        match (&self.env_file, &self.manifest) {
            (Some(path), None) => deployment::of_env_file(path),
            (Some(path), Some(manifest)) => {
                manifest::read(manifest, container)?.with_env_file(path)
            }
            (None, Some(path)) => manifest::read(path, container),
            (None, None) => Ok(deployment::of_environment(environment)),
        }
    }
}
