//! The variables of a service, from an environment or an env file.

use std::path::{Path, PathBuf};

use crate::cli::settings::variables;
use crate::policy::Source;
use crate::policy::source::files::Places;
use crate::settings::envoyproxy::{Variables, is_known};

/// The variables of a service, and what else its deployment contains.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Source: the environment, a file, or a workload.
    pub(super) from: String,
    pub(super) variables: Variables,
    /// Variables set by reference, such as to a Secret, with the reference. Placeholders replace
    /// their values.
    pub(super) elsewhere: Vec<(String, String)>,
    /// Variables that neither service reads.
    pub(super) unknown: Vec<String>,
    /// Files that are mounted into the container, with their paths there.
    pub(super) mounts: Vec<(PathBuf, Source)>,
    /// ConfigMaps that are mounted but missing in the manifest.
    pub(super) missing: Vec<String>,
}

impl Given {
    /// Returns the mounted files that are at `places`.
    pub(super) fn mounted(&self, places: &Places) -> Vec<Source> {
        let is_there = |path: &Path| {
            let below = places.paths.iter().find_map(|place| path.strip_prefix(place).ok());
            below.is_some_and(|below| below.to_string_lossy().replace('/', ".").starts_with(&places.which.prefix))
        };
        self.mounts.iter().filter(|(path, _)| is_there(path)).map(|(_, source)| source.clone()).collect()
    }

    /// Returns a suffix for the message that there are no policies.
    pub(super) fn missing_maps(&self) -> String {
        match self.missing.as_slice() {
            [] => String::new(),
            names => format!(", and the manifest does not hold ConfigMap {}", names.join(", ")),
        }
    }

    /// Returns a placeholder for a value that is set by reference.
    pub(super) fn placeholder(variable: &str, place: &str) -> String {
        let port = if variable.ends_with("_URL") { ":6379" } else { "" };
        format!("{}{PLACEHOLDER}{port}", place.replace([' ', '/', ','], "."))
    }

    /// Returns the reference behind a text that contains a placeholder.
    pub(super) fn place_of(&self, text: &str) -> Option<&str> {
        let is_of = |(name, place): &&(String, String)| text.contains(&Self::placeholder(name, place));
        self.elsewhere.iter().find(is_of).map(|(_, place)| place.as_str())
    }
}

const PLACEHOLDER: &str = ".elsewhere";

/// Returns the variables of this process.
pub(super) fn of_environment() -> Given {
    Given { from: "this environment".to_owned(), variables: variables(), ..Given::default() }
}

/// Parses `NAME=VALUE` lines as Compose does: `#` begins a comment; `export` and quotes around a
/// value are dropped.
pub(super) fn of_env_file(path: &Path) -> Result<Given, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let mut variables = Variables::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        // The line is not shown, as it may contain a secret.
        let (variable, value) = line
            .split_once('=')
            .ok_or_else(|| format!("{name}:{}: expected NAME=VALUE, found no `=`", number.saturating_add(1)))?;
        variables.insert(variable.trim().to_owned(), unquoted(value.trim()).to_owned());
    }
    let unknown = variables.keys().filter(|name| !is_known(name)).cloned().collect();
    Ok(Given { from: name, variables, unknown, ..Given::default() })
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}
