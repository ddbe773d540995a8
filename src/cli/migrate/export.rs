//! Export of a service in Tollgate's own format: `tollgate.env` and `policies/`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::MigratedPolicies;
use super::deployment::Deployment;
use crate::envoyproxy::{OwnVariable, Translation, carried, is_carried, own_names, own_variables};
use crate::policy::{self, CompileOptions, Loaded, PolicyDialect, Source};
use crate::printable::escaped;
use crate::settings::PolicySettings;

/// Prefix of the variables of a control plane, which is not used if there are files.
const PLANE_PREFIX: &str = "TOLLGATE_XDS";
/// Variables that locate the files of envoyproxy/ratelimit. The exported files need none of them.
const FILE_VARIABLES: [&str; 4] = [
    "TOLLGATE_POLICY",
    "TOLLGATE_POLICY_DIALECT",
    "TOLLGATE_POLICY_DOT_FILES",
    "TOLLGATE_POLICY_FILE_PREFIX",
];

/// Variables whose absence would change decisions or disable checks of calls: each with a value
/// that `serve` rejects until the operator replaces it, and the format of the value.
const FILL_IN: [(&str, &str, &str); 12] = [
    ("TOLLGATE_STORE", "FILL-IN", "redis://HOST:PORT, or rediss:// with TLS"),
    ("TOLLGATE_PER_SECOND_STORE", "FILL-IN", "redis://HOST:PORT, or rediss:// with TLS"),
    // Every text without an open brace is a valid prefix.
    ("TOLLGATE_REDIS_PREFIX", "FILL-IN{", "the prefix of all keys"),
    ("TOLLGATE_SHADOW_MODE", "FILL-IN", "true or false"),
    ("TOLLGATE_QUOTA_MODE", "FILL-IN", "true or false"),
    ("TOLLGATE_MERGE_DOMAINS", "FILL-IN", "true or false"),
    (
        "TOLLGATE_FIXED_WINDOW_CHARGE",
        "FILL-IN",
        "blamed if the original variable is true, else always",
    ),
    ("TOLLGATE_XDS", "FILL-IN", "HOST:PORT"),
    ("TOLLGATE_GRPC_LISTEN", "FILL-IN", "ADDRESS:PORT, such as 0.0.0.0:8081"),
    ("TOLLGATE_GRPC_TLS_CERT", "FILL-IN", "the path of a PEM file"),
    ("TOLLGATE_GRPC_TLS_KEY", "FILL-IN", "the path of a PEM file"),
    ("TOLLGATE_GRPC_TLS_CLIENT_CA", "FILL-IN", "the path of a PEM file"),
];

/// Paths of the files that were written.
pub(super) struct ExportedFiles {
    /// Path of `tollgate.env`.
    pub(super) variables: PathBuf,
    /// The folder of policies; `None` if they come from a control plane.
    pub(super) policies: Option<PathBuf>,
    /// `true` if the policies mean the same in the dialect `tollgate`; otherwise the dialect
    /// `envoyproxy` is set.
    pub(super) is_native: bool,
    /// Number of values that the operator has to fill in: secrets, and references of a manifest.
    pub(super) open: usize,
}

/// Writes the variables and the policies into a directory. Never overwrites files.
///
/// # Errors
/// A file cannot be written, or exists already.
pub(super) fn write(
    folder: &Path,
    deployment: &Deployment,
    translation: &Translation,
    settings: Option<&PolicySettings>,
    policies: &MigratedPolicies,
) -> Result<ExportedFiles, String> {
    // The service may run in another directory.
    let folder =
        std::path::absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let variables = folder.join("tollgate.env");
    let policy_folder = folder.join("policies");
    make_folder(&policy_folder)?;
    let is_empty = fs::read_dir(&policy_folder).is_ok_and(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(&variables).is_ok() || !is_empty {
        let text = "already exists, or `policies` beside it is not empty; choose another directory for --output";
        return Err(format!("{} {text}", variables.display()));
    }
    let (files, is_native) = match (policies, settings) {
        (MigratedPolicies::Loaded { files, loaded, .. }, Some(settings)) => {
            copy(files, &policy_folder)?;
            (Some(policy_folder), is_native(files, loaded, settings.options))
        }
        _ => (None, false),
    };
    let text = EnvText::of(deployment, translation, files.as_deref(), is_native);
    write_new(&variables, &text.lines)?;
    Ok(ExportedFiles { variables, policies: files, is_native, open: text.open })
}

/// Returns `true` if files mean the same in the dialect `tollgate`, in which unknown keys are
/// errors.
fn is_native(files: &[Source], loaded: &Loaded, options: CompileOptions) -> bool {
    let own = CompileOptions { dialect: PolicyDialect::Tollgate, ..options };
    policy::load(files, &own).is_ok_and(|own| own.policies.version() == loaded.policies.version())
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies files unchanged, comments included, under names that Tollgate reads.
fn copy(files: &[Source], folder: &Path) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    for file in files {
        let name = file.name.rsplit('/').next().unwrap_or("policy").trim_start_matches('.');
        let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
        let names = std::iter::once(format!("{stem}.yaml"))
            .chain((2..).map(|number| format!("{stem}-{number}.yaml")));
        let Some(name) = names.into_iter().find(|name| taken.insert(name.clone())) else {
            continue;
        };
        let path = folder.join(name);
        write_new(&path, &file.text)?;
    }
    Ok(())
}

/// Creates a file. Fails if the path exists, even as a dangling link.
fn write_new(path: &Path, text: &str) -> Result<(), String> {
    let write = || -> io::Result<()> { File::create_new(path)?.write_all(text.as_bytes()) };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns `true` if shells, Compose and Kubernetes read a value unchanged.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:,@%+=[]?".contains(&byte))
}

/// The text of `tollgate.env`.
struct EnvText {
    lines: String,
    /// Number of values that the operator has to fill in.
    open: usize,
    /// Set if the policies are in files that were written.
    has_files: bool,
}

impl EnvText {
    fn of(
        deployment: &Deployment,
        translation: &Translation,
        policies: Option<&Path>,
        is_native: bool,
    ) -> Self {
        let from = escaped(&deployment.from);
        let lines =
            format!("# Generated by `tollgate migrate` from {from}. Defaults are omitted.\n");
        let mut text = Self { lines, open: 0, has_files: policies.is_some() };
        for unread in &deployment.unread_variables {
            text.open(&format!("not read: {unread}"));
        }
        if let Some(policies) = policies {
            text.set("TOLLGATE_POLICY", &policies.display().to_string());
            if !is_native {
                text.set("TOLLGATE_POLICY_DIALECT", "envoyproxy");
            }
        }
        let references = deployment
            .references
            .iter()
            .map(|(name, reference)| (own_names(name), name, reference));
        let references: Vec<_> =
            references.filter(|(names, _, _)| names.iter().any(|name| text.needs(name))).collect();
        let is_reference =
            |name: &str| references.iter().any(|(names, _, _)| names.iter().any(|one| one == name));
        for own in
            own_variables(translation).iter().chain(&carried(&deployment.variables, translation))
        {
            if text.needs(&own.name) && !is_reference(&own.name) {
                text.own(deployment, own);
            }
        }
        for (names, name, reference) in &references {
            let original = if names.contains(name) { String::new() } else { format!("{name}: ") };
            let files = names.last().map(|name| by_file(name)).unwrap_or_default();
            text.open(&format!("{}= from {original}{reference}{files}", names.join(", ")));
            for name in names.iter().filter(|name| text.needs(name)).cloned().collect::<Vec<_>>() {
                text.fill_in(&name);
            }
        }
        text
    }

    /// Returns `true` if a variable has an effect in addition to the files that were written.
    fn needs(&self, name: &str) -> bool {
        !self.has_files || !FILE_VARIABLES.contains(&name) && !name.starts_with(PLANE_PREFIX)
    }

    /// Adds a variable, or a comment if its value cannot be written.
    fn own(&mut self, deployment: &Deployment, OwnVariable { name, flag, value }: &OwnVariable) {
        let value = value.as_ref().filter(|value| deployment.masked(value) == **value);
        let reference = value.and_then(|value| deployment.reference_of(value));
        match (value, reference) {
            (None, _) => self.open(&format!("{name}= a secret, not exported{}", by_file(name))),
            (Some(_), Some(reference)) => self.open(&format!("{name}= from {reference}{}", by_file(name))),
            (Some(value), None) if value.contains('\n') => self.open(&format!(
                "{flag}: set this as a flag; its variable has one value per line, which an env file cannot contain"
            )),
            (Some(value), None) => return self.set(name, value),
        }
        self.fill_in(name);
    }

    /// Adds a variable, or a comment if programs would read its value differently.
    fn set(&mut self, name: &str, value: &str) {
        if is_plain(value) {
            self.lines.push_str(&format!("{name}={value}\n"));
        } else {
            self.open(&format!(
                "{name}= quote this value for the program that reads the file: {value}"
            ));
            self.fill_in(name);
        }
    }

    /// Adds a comment on a value that the operator has to fill in.
    fn open(&mut self, text: &str) {
        self.open = self.open.saturating_add(1);
        self.lines.push_str(&format!("# {}\n", escaped(text)));
    }

    /// Replaces a variable of [`FILL_IN`] with a value that is rejected. Without it, the service
    /// would start and decide differently, without an error.
    fn fill_in(&mut self, name: &str) {
        let Some((_, value, format)) = FILL_IN.iter().find(|(other, _, _)| *other == name) else {
            return;
        };
        if self.lines.contains(&format!("\n{name}={value}\n")) {
            return;
        }
        let prefix = format!("{name}=");
        let others = self.lines.lines().filter(|line| !line.starts_with(&prefix));
        self.lines = others.map(|line| format!("{line}\n")).collect();
        self.lines.push_str(&format!("# Replace the next value with {format}\n{name}={value}\n"));
    }
}

/// Returns the alternative to a password in a variable, if there is one.
fn by_file(name: &str) -> String {
    let file = format!("{name}_FILE");
    if name.ends_with("_PASSWORD") && is_carried(&file) {
        format!("; or {file}=PATH")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_offered_for_passwords_that_can_be_in_one() {
        assert_eq!(by_file("TOLLGATE_REDIS_PASSWORD"), "; or TOLLGATE_REDIS_PASSWORD_FILE=PATH");
        assert_eq!(by_file("TOLLGATE_PER_SECOND_SENTINEL_PASSWORD"), "");
        assert_eq!(by_file("TOLLGATE_STORE"), "");
    }
}
