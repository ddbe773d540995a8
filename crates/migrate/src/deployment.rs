//! A deployment of envoyproxy/ratelimit, from an environment or an env file.

use std::path::{Path, PathBuf};

use tollgate_envoyproxy::service_flags::ServiceFlags;
use tollgate_envoyproxy::{Translation, VariableProblem, Variables, translate};
use tollgate_policy::Source;
use tollgate_policy::source::files::PolicyLocations;

use crate::env_file::{self, EnvFile};
use crate::failure::MigrationError;

/// The kind of source of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeploymentSource {
    /// An environment, which also has variables of other programs.
    Environment,
    EnvFile,
    #[default]
    Manifest,
}

/// A deployment of envoyproxy/ratelimit: its variables, its mounted files, and the parts that could
/// not be read.
#[derive(Debug, Default)]
pub(crate) struct Deployment {
    /// Source: the environment, a file, or a workload.
    pub(crate) from: String,
    pub(crate) variables: Variables,
    /// Variables set by reference, such as to a Secret, with the reference. Placeholders replace
    /// their values.
    pub(crate) references: Vec<(String, String)>,
    /// The kind of the source.
    pub(crate) source: DeploymentSource,
    /// Files that are mounted into the container, with their paths there.
    pub(crate) mounts: Vec<(PathBuf, Source)>,
    /// Sources of variables that are not in the manifest, each with the reason.
    pub(crate) unread_variables: Vec<String>,
    /// Other parts of the deployment that are not read, each with the reason.
    pub(crate) unread: Vec<String>,
    /// Parts of the deployment that are malformed.
    pub(crate) problems: Vec<String>,
    /// Notes for the page.
    pub(crate) notes: Vec<String>,
    /// Values that other variables contain by `$(NAME)`, and whose names are those of secrets.
    pub(crate) secrets: Vec<String>,
}

/// Parts of the names of variables whose values are secrets.
const SECRET_NAMES: [&str; 6] = ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "CREDENTIAL", "AUTH"];

impl Deployment {
    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.references.retain(|(other, _)| other != name);
        self.variables.insert(name.to_owned(), value);
    }

    /// Adds the variables of an env file, which take precedence.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub(crate) fn with_env_file(mut self, path: &Path) -> Result<Self, MigrationError> {
        let (name, file) = read_env_file(path)?;
        self.from = format!("{} and {name}", self.from);
        self.merge(file);
        Ok(self)
    }

    /// Sets the variables of an env file.
    fn merge(&mut self, file: EnvFile) {
        for name in &file.repeated {
            self.notes.push(format!("{name}: set on several lines; the last value applies"));
        }
        file.variables.into_iter().for_each(|(name, value)| self.set(&name, value));
    }

    /// Keeps the secrets that a value contains by `$(NAME)`, to mask them.
    pub(crate) fn keep_secrets_of(&mut self, value: &str) {
        for name in value.split("$(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            let upper = name.to_ascii_uppercase();
            let is_secret = SECRET_NAMES.iter().any(|part| upper.contains(part));
            let secret = self.variables.get(name).filter(|secret| is_secret && !secret.is_empty());
            self.secrets.extend(secret.cloned());
        }
    }

    /// Returns a text with secrets masked.
    pub(crate) fn masked(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// Returns `true` if the whole deployment is read.
    pub(crate) fn is_read(&self) -> bool {
        self.unread.is_empty() && self.unread_variables.is_empty()
    }

    /// Sets a variable by reference.
    pub(crate) fn refer(&mut self, name: &str, reference: String) {
        let port = if name.ends_with("_URL") { ":6379" } else { "" };
        self.set(name, format!("{}{port}", placeholder(&reference)));
        self.references.push((name.to_owned(), reference));
    }

    /// Translates the variables. A reference whose placeholder is not a valid value is treated as
    /// unset, and is not a problem.
    pub(crate) fn translate(&mut self, service: &ServiceFlags) -> Translation {
        let first = translate(&self.variables, service);
        let refused = self.references.iter().filter(|(name, _)| first.has_problem_of(name));
        refused.for_each(|(name, _)| _ = self.variables.remove(name));
        let mut translation = translate(&self.variables, service);
        translation.problems.retain(|problem| !self.is_of_reference(problem));
        // Before the page wraps its lines, which divides texts.
        let problems = translation.problems.iter_mut().map(|problem| &mut problem.what);
        for text in problems.chain(&mut translation.notes) {
            *text = self.masked(text);
        }
        translation
    }

    /// Returns `true` if a variable of a problem is set by reference.
    fn is_of_reference(&self, problem: &VariableProblem) -> bool {
        self.references.iter().any(|(name, _)| problem.is_about(name))
    }

    /// Returns the mounted files that the service would read at `locations`.
    pub(crate) fn mounted(&self, locations: &PolicyLocations) -> Vec<Source> {
        let mounted = self.mounts.iter().filter(|(path, source)| {
            let below = locations.paths.iter().find_map(|folder| path.strip_prefix(folder).ok());
            below.is_some_and(|below| locations.which.selects(below, &source.text))
        });
        mounted.map(|(_, source)| source.clone()).collect()
    }

    /// Returns the reference behind a text that contains a placeholder.
    pub(crate) fn reference_of(&self, text: &str) -> Option<&str> {
        let mut references = self.references.iter().map(|(_, reference)| reference.as_str());
        references.find(|reference| text.contains(&placeholder(reference)))
    }
}

/// Returns a placeholder for the value at a reference: a host name that never resolves.
fn placeholder(reference: &str) -> String {
    let words = reference.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    format!("{}.invalid", words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("."))
}

/// Returns the deployment of the variables of this process.
pub(crate) fn of_environment(variables: Variables) -> Deployment {
    Deployment {
        from: "this environment".to_owned(),
        variables,
        source: DeploymentSource::Environment,
        ..Deployment::default()
    }
}

/// Reads an env file.
///
/// # Errors
/// The file cannot be read, or a line is invalid.
pub(crate) fn of_env_file(path: &Path) -> Result<Deployment, MigrationError> {
    let (name, file) = read_env_file(path)?;
    let mut deployment =
        Deployment { from: name, source: DeploymentSource::EnvFile, ..Deployment::default() };
    deployment.merge(file);
    Ok(deployment)
}

fn read_env_file(path: &Path) -> Result<(String, EnvFile), MigrationError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| MigrationError::file(&name, error))?;
    match env_file::parse(&text) {
        Ok(file) => Ok((name, file)),
        Err(line) => Err(MigrationError::File(format!("{name}:{line}"))),
    }
}
