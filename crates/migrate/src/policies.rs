//! The policies of a deployment, as the service would load them.

use std::path::PathBuf;

use tollgate_envoyproxy::Translation;
use tollgate_policy::source::files::{self, PolicyLocations};
use tollgate_policy::{self as policy, CompileOptions, Loaded, ProblemReport, Source};

use crate::deployment::Deployment;

/// Locations of policies, and the options for compiling them.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    /// Files and directories.
    pub locations: PolicyLocations,
    /// Options for compiling them.
    pub options: CompileOptions,
}

/// The policies that the service loads, or why there are none.
pub(crate) enum MigratedPolicies {
    Loaded {
        files: Vec<Source>,
        loaded: Loaded,
        from: String,
        /// Address of the control plane that the variables set, if the operator gave files.
        unused_plane: Option<String>,
    },
    ControlPlane(String),
    Missing(String),
    Invalid(ProblemReport),
}

impl MigratedPolicies {
    /// Loads the policies of a deployment, or those at `paths` if there are any.
    pub(crate) fn of(
        deployment: &Deployment,
        translation: &Translation,
        files: Option<&PolicyFiles>,
        paths: &[PathBuf],
    ) -> Self {
        let plane = translation.flag("--xds").and_then(|flag| flag.values.first());
        if let Some(plane) = plane
            && paths.is_empty()
        {
            let address = deployment.reference_of(plane).unwrap_or(plane);
            return Self::ControlPlane(address.to_owned());
        }
        let Some(PolicyFiles { locations, options }) = files else {
            return Self::Missing("not checked until the settings are valid".to_owned());
        };
        let mut locations = locations.clone();
        if !paths.is_empty() {
            locations.paths = paths.to_vec();
            locations.which.prefix.clear();
        }
        let names = locations.paths.iter().map(|path| path.display().to_string());
        let from = names.collect::<Vec<_>>().join(", ");
        let mounted = deployment.mounted(&locations);
        let sources = if paths.is_empty() && !mounted.is_empty() {
            Ok(mounted)
        } else if locations.paths.iter().any(|path| !path.exists()) {
            return Self::Missing(format!("{from} does not exist; add `--policy PATH`"));
        } else {
            files::read(&locations)
        };
        match sources.and_then(|files| Ok((policy::load(&files, options)?, files))) {
            Ok((loaded, files)) => {
                Self::Loaded { files, loaded, from, unused_plane: plane.cloned() }
            }
            Err(report) => Self::Invalid(report),
        }
    }

    /// Returns `true` if the service can serve with them.
    pub(crate) fn are_usable(&self) -> bool {
        match self {
            Self::Loaded { .. } | Self::ControlPlane(_) => true,
            Self::Missing(_) | Self::Invalid(_) => false,
        }
    }
}
