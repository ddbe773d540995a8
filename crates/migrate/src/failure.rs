//! The errors of a migration: a file that cannot be read, understood or written.

use std::io;

use tollgate_policy::ProblemReport;

use crate::env_file::InvalidEnvLine;

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A file cannot be read or written, or a folder cannot be created.
    #[error("{name}: {error}")]
    Io {
        /// Path of the file, or `standard input`.
        name: String,
        /// The error of the system.
        error: io::Error,
    },
    /// A line of an env file cannot be parsed.
    #[error("{name}:{line}")]
    EnvLine {
        /// Path of the file.
        name: String,
        /// Number of the line, and its mistake.
        line: InvalidEnvLine,
    },
    /// A manifest is no YAML.
    #[error("{0}")]
    Yaml(ProblemReport),
    /// A manifest has no containers.
    #[error("{name}: no container; expected a Deployment")]
    NoContainer {
        /// Path of the manifest.
        name: String,
    },
    /// Several containers of a manifest may be the service, or none has the wanted name.
    #[error(
        "{name}: cannot detect the container; add `--container NAME`, one of: {}",
        containers.join(", ")
    )]
    WhichContainer {
        /// Path of the manifest.
        name: String,
        /// Shortest names of the containers.
        containers: Vec<String>,
    },
    /// The folder for the export has files of an earlier one.
    #[error(
        "{path} already exists, or `policies` beside it is not empty; choose another directory for --output"
    )]
    Exists {
        /// Path of `tollgate.env`.
        path: String,
    },
}

impl MigrationError {
    pub(crate) fn io(name: impl ToString, error: io::Error) -> Self {
        Self::Io { name: name.to_string(), error }
    }
}
