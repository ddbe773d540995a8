//! A deployment of envoyproxy/ratelimit, from an environment or an env file.

use std::path::{Path, PathBuf};

use super::env_file::{self, EnvFile};
use crate::cli::settings::variables;
use crate::envoyproxy::{Translation, Variables, named, translate};
use crate::policy::Source;
use crate::policy::source::files::PolicyLocations;

/// The kind of source of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DeploymentSource {
    /// An environment, which also has variables of other programs.
    Environment,
    EnvFile,
    #[default]
    Manifest,
}

/// A deployment of envoyproxy/ratelimit: its variables, its mounted files, and the parts that could
/// not be read.
#[derive(Debug, Default)]
pub(super) struct Deployment {
    /// Source: the environment, a file, or a workload.
    pub(super) from: String,
    pub(super) variables: Variables,
    /// Variables set by reference, such as to a Secret, with the reference. Placeholders replace
    /// their values.
    pub(super) references: Vec<(String, String)>,
    /// The kind of the source.
    pub(super) source: DeploymentSource,
    /// Files that are mounted into the container, with their paths there.
    pub(super) mounts: Vec<(PathBuf, Source)>,
    /// Sources of variables that are not in the manifest, each with the reason.
    pub(super) unread_variables: Vec<String>,
    /// Other parts of the deployment that are not read, each with the reason.
    pub(super) unread: Vec<String>,
    /// Parts of the deployment that are malformed.
    pub(super) problems: Vec<String>,
    /// Notes for the page.
    pub(super) notes: Vec<String>,
    /// Values that other variables contain by `$(NAME)`, and whose names are those of secrets.
    pub(super) secrets: Vec<String>,
}

/// Parts of the names of variables whose values are secrets.
const SECRET_NAMES: [&str; 6] = ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "CREDENTIAL", "AUTH"];

impl Deployment {
    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.references.retain(|(other, _)| other != name);
        self.variables.insert(name.to_owned(), value);
    }

    /// Adds the variables of an env file, which take precedence.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub(super) fn with_env_file(mut self, path: &Path) -> Result<Self, String> {
        let (name, file) = read_env_file(path)?;
        self.from = format!("{} and {name}", self.from);
        self.merge(file);
        Ok(self)
    }

    /// Sets the variables of an env file.
    fn merge(&mut self, file: EnvFile) {
        let repeated = file.repeated.iter();
        self.notes.extend(
            repeated.map(|name| format!("{name}: set on several lines; the last value applies")),
        );
        file.variables.into_iter().for_each(|(name, value)| self.set(&name, value));
    }

    /// Keeps the secrets that a value contains by `$(NAME)`, to mask them.
    pub(super) fn keep_secrets_of(&mut self, value: &str) {
        for name in value.split("$(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            let is_secret =
                SECRET_NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
            let secret = self.variables.get(name).filter(|secret| is_secret && !secret.is_empty());
            self.secrets.extend(secret.cloned());
        }
    }

    /// Returns a text with secrets masked.
    pub(super) fn masked(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// Returns `true` if the whole deployment is read.
    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty() && self.unread_variables.is_empty()
    }

    /// Sets a variable by reference.
    pub(super) fn refer(&mut self, name: &str, reference: String) {
        let port = if name.ends_with("_URL") { ":6379" } else { "" };
        self.set(name, format!("{}{port}", placeholder(&reference)));
        self.references.push((name.to_owned(), reference));
    }

    /// Translates the variables. A reference whose placeholder is not a valid value is treated as
    /// unset, and is not a problem.
    pub(super) fn translate(&mut self) -> Translation {
        let first = translate(&self.variables);
        let is_refused =
            |name: &str| first.problems.iter().any(|problem| named(problem).any(|one| one == name));
        let refused = self.references.iter().filter(|(name, _)| is_refused(name));
        refused.for_each(|(name, _)| _ = self.variables.remove(name));
        let mut translation = translate(&self.variables);
        let is_known = |problem: &String| !named(problem).any(|name| self.is_reference(name));
        translation.problems.retain(is_known);
        // Before the page wraps its lines, which divides texts.
        for text in translation.problems.iter_mut().chain(&mut translation.notes) {
            *text = self.masked(text);
        }
        translation
    }

    /// Returns `true` if a variable is set by reference.
    pub(super) fn is_reference(&self, name: &str) -> bool {
        self.references.iter().any(|(other, _)| other == name)
    }

    /// Returns the mounted files that the service would read at `locations`.
    pub(super) fn mounted(&self, locations: &PolicyLocations) -> Vec<Source> {
        let is_read = |path: &Path, text: &str| {
            let below = locations.paths.iter().find_map(|folder| path.strip_prefix(folder).ok());
            below.is_some_and(|below| locations.which.selects(below, text))
        };
        self.mounts
            .iter()
            .filter(|(path, source)| is_read(path, &source.text))
            .map(|(_, source)| source.clone())
            .collect()
    }

    /// Returns the reference behind a text that contains a placeholder.
    pub(super) fn reference_of(&self, text: &str) -> Option<&str> {
        let is_of = |(_, reference): &&(String, String)| text.contains(&placeholder(reference));
        self.references.iter().find(is_of).map(|(_, reference)| reference.as_str())
    }
}

/// Returns a placeholder for the value at a reference: a host name that never resolves.
fn placeholder(reference: &str) -> String {
    let words = reference.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    format!("{}.invalid", words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("."))
}

/// Returns the variables of this process.
pub(super) fn of_environment() -> Deployment {
    Deployment {
        from: "this environment".to_owned(),
        variables: variables(),
        source: DeploymentSource::Environment,
        ..Deployment::default()
    }
}

/// Reads an env file.
///
/// # Errors
/// The file cannot be read, or a line is invalid.
pub(super) fn of_env_file(path: &Path) -> Result<Deployment, String> {
    let (name, file) = read_env_file(path)?;
    let mut deployment =
        Deployment { from: name, source: DeploymentSource::EnvFile, ..Deployment::default() };
    deployment.merge(file);
    Ok(deployment)
}

fn read_env_file(path: &Path) -> Result<(String, EnvFile), String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let file = env_file::parse(&text).map_err(|error| format!("{name}:{error}"))?;
    Ok((name, file))
}
