//! Export of a service in Tollgate's own format: `tollgate.env` and `policies/`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tollgate_core::printable::escaped;
use tollgate_envoyproxy::Translation;
use tollgate_envoyproxy::own_variables::OwnVariable;
use tollgate_envoyproxy::service_flags::ServiceFlags;
use tollgate_policy::{self as policy, CompileOptions, Loaded, PolicyDialect, Source};

use crate::deployment::Deployment;
use crate::effects::{own_names, own_variables};
use crate::failure::MigrationError;
use crate::policies::{MigratedPolicies, PolicyFiles};

/// Prefix of the variables of a control plane, which is not used if there are files.
const PLANE_PREFIX: &str = "TOLLGATE_XDS";
/// Variables that locate the files of envoyproxy/ratelimit. The exported files need none of them.
const FILE_VARIABLES: [&str; 4] = [
    "TOLLGATE_POLICY",
    "TOLLGATE_POLICY_DIALECT",
    "TOLLGATE_POLICY_DOT_FILES",
    "TOLLGATE_POLICY_FILE_PREFIX",
];

/// Variables whose absence would change decisions or disable checks of calls, with the format of
/// their values. They get a value that `serve` rejects until the operator replaces it.
const FILL_IN: [(&str, &str); 12] = [
    ("TOLLGATE_STORE", "redis://HOST:PORT, or rediss:// with TLS"),
    ("TOLLGATE_PER_SECOND_STORE", "redis://HOST:PORT, or rediss:// with TLS"),
    (PREFIX, "the prefix of all keys"),
    ("TOLLGATE_SHADOW_MODE", "true or false"),
    ("TOLLGATE_QUOTA_MODE", "true or false"),
    ("TOLLGATE_MERGE_DOMAINS", "true or false"),
    ("TOLLGATE_FIXED_WINDOW_CHARGE", "blamed if the original variable is true, else always"),
    ("TOLLGATE_XDS", "HOST:PORT"),
    ("TOLLGATE_GRPC_LISTEN", "ADDRESS:PORT, such as 0.0.0.0:8081"),
    ("TOLLGATE_GRPC_TLS_CERT", "the path of a PEM file"),
    ("TOLLGATE_GRPC_TLS_KEY", "the path of a PEM file"),
    ("TOLLGATE_GRPC_TLS_CLIENT_CA", "the path of a PEM file"),
];
/// The variable of the prefix of keys: every text without an open brace is a valid value.
const PREFIX: &str = "TOLLGATE_REDIS_PREFIX";

/// Paths of the files that were written.
pub(crate) struct ExportedFiles {
    /// Path of `tollgate.env`.
    pub(crate) variables: PathBuf,
    /// The folder of policies; `None` if they come from a control plane.
    pub(crate) policies: Option<PathBuf>,
    /// `true` if the policies mean the same in the dialect `tollgate`; otherwise the dialect
    /// `envoyproxy` is set.
    pub(crate) is_native: bool,
    /// Number of values that the operator has to fill in: secrets, and references of a manifest.
    pub(crate) open: usize,
}

/// Writes the variables and the policies into a directory. Never overwrites files.
///
/// # Errors
/// A file cannot be written, or exists already.
pub(crate) fn write(
    folder: &Path,
    deployment: &Deployment,
    translation: &Translation,
    files: Option<&PolicyFiles>,
    policies: &MigratedPolicies,
    service: &ServiceFlags,
) -> Result<ExportedFiles, MigrationError> {
    // The service may run in another directory.
    let folder = std::path::absolute(folder)
        .map_err(|error| MigrationError::file(folder.display(), error))?;
    let variables = folder.join("tollgate.env");
    let policy_folder = folder.join("policies");
    fs::create_dir_all(&policy_folder)
        .map_err(|error| MigrationError::file(policy_folder.display(), error))?;
    let is_empty = fs::read_dir(&policy_folder).is_ok_and(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(&variables).is_ok() || !is_empty {
        return Err(MigrationError::File(format!(
            "{} already exists, or `policies` beside it is not empty; choose another directory for --output",
            variables.display()
        )));
    }
    let mut exported = ExportedFiles { variables, policies: None, is_native: false, open: 0 };
    if let MigratedPolicies::Loaded { files: sources, loaded, .. } = policies
        && let Some(files) = files
    {
        copy(sources, &policy_folder)?;
        exported.policies = Some(policy_folder);
        exported.is_native = is_native(sources, loaded, files.options);
    }
    let text = EnvText::of(deployment, translation, &exported, service);
    exported.open = text.open;
    write_new(&exported.variables, &text.lines)?;
    Ok(exported)
}

/// Returns `true` if files mean the same in the dialect `tollgate`, in which unknown keys are
/// errors.
fn is_native(files: &[Source], loaded: &Loaded, options: CompileOptions) -> bool {
    let own = CompileOptions { dialect: PolicyDialect::Tollgate, ..options };
    policy::load(files, &own).is_ok_and(|own| own.policies.version() == loaded.policies.version())
}

/// Copies files unchanged, comments included, under names that Tollgate reads.
fn copy(files: &[Source], folder: &Path) -> Result<(), MigrationError> {
    let mut taken = BTreeSet::new();
    for file in files {
        let name = file.name.rsplit('/').next().unwrap_or("policy").trim_start_matches('.');
        let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
        let mut name = format!("{stem}.yaml");
        let mut number = 2_u64;
        while !taken.insert(name.clone()) {
            name = format!("{stem}-{number}.yaml");
            number += 1;
        }
        write_new(&folder.join(name), &file.text)?;
    }
    Ok(())
}

/// Creates a file. Fails if the path exists, even as a dangling link.
fn write_new(path: &Path, text: &str) -> Result<(), MigrationError> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| MigrationError::file(path.display(), error))
}

/// Returns `true` if shells, Compose and Kubernetes read a value unchanged.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:,@%+=[]?".contains(&byte))
}

/// The text of `tollgate.env`.
struct EnvText<'s> {
    service: &'s ServiceFlags,
    lines: String,
    /// Number of values that the operator has to fill in.
    open: usize,
    /// Set if the policies are in files that were written.
    has_files: bool,
}

impl<'s> EnvText<'s> {
    fn of(
        deployment: &Deployment,
        translation: &Translation,
        exported: &ExportedFiles,
        service: &'s ServiceFlags,
    ) -> Self {
        let from = escaped(&deployment.from);
        let lines =
            format!("# Generated by `tollgate migrate` from {from}. Defaults are omitted.\n");
        let mut text = Self { service, lines, open: 0, has_files: exported.policies.is_some() };
        for unread in &deployment.unread_variables {
            text.open(&format!("not read: {unread}"));
        }
        if let Some(policies) = &exported.policies {
            text.set("TOLLGATE_POLICY", &policies.display().to_string());
            if !exported.is_native {
                text.set("TOLLGATE_POLICY_DIALECT", "envoyproxy");
            }
        }
        let references = deployment.references.iter();
        let mut references: Vec<_> = references
            .map(|(name, reference)| (own_names(name, service), name, reference))
            .collect();
        references.retain(|(names, _, _)| names.iter().any(|name| text.needs(name)));
        for own in own_variables(&deployment.variables, translation, service) {
            let is_reference = references.iter().any(|(names, _, _)| names.contains(&own.name));
            if text.needs(&own.name) && !is_reference {
                text.own(deployment, &own);
            }
        }
        for (names, name, reference) in references {
            let is_own = names.iter().any(|own| own == name);
            let original = if is_own { String::new() } else { format!("{name}: ") };
            let file = names.last().map(|name| text.by_file(name)).unwrap_or_default();
            text.open(&format!("{}= from {original}{reference}{file}", names.join(", ")));
            for name in names {
                if text.needs(&name) {
                    text.fill_in(&name);
                }
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
            (None, _) => {
                self.open(&format!("{name}= a secret, not exported{}", self.by_file(name)));
            }
            (Some(_), Some(reference)) => {
                self.open(&format!("{name}= from {reference}{}", self.by_file(name)));
            }
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
        self.open += 1;
        self.lines.push_str(&format!("# {}\n", escaped(text)));
    }

    /// Replaces a variable of [`FILL_IN`] with a value that is rejected. Without it, the service
    /// would start and decide differently, without an error.
    fn fill_in(&mut self, name: &str) {
        let Some((_, format)) = FILL_IN.iter().find(|(other, _)| *other == name) else { return };
        let value = if name == PREFIX { "FILL-IN{" } else { "FILL-IN" };
        if self.lines.contains(&format!("\n{name}={value}\n")) {
            return;
        }
        let prefix = format!("{name}=");
        let others = self.lines.lines().filter(|line| !line.starts_with(&prefix));
        self.lines = others.map(|line| format!("{line}\n")).collect();
        self.lines.push_str(&format!("# Replace the next value with {format}\n{name}={value}\n"));
    }

    /// Returns the alternative to a password in a variable, if there is one.
    fn by_file(&self, name: &str) -> String {
        let file = format!("{name}_FILE");
        if name.ends_with("_PASSWORD") && self.service.reads(&file) {
            format!("; or {file}=PATH")
        } else {
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn a_file_is_offered_for_passwords_that_can_be_in_one() {
        let file = Arg::new("file").long("file").env("TOLLGATE_REDIS_PASSWORD_FILE");
        let service = ServiceFlags::new(Command::new("tollgate").arg(file), |_| Ok(Vec::new()));
        let text = EnvText { service: &service, lines: String::new(), open: 0, has_files: false };
        let by_file = |name| text.by_file(name);
        assert_eq!(by_file("TOLLGATE_REDIS_PASSWORD"), "; or TOLLGATE_REDIS_PASSWORD_FILE=PATH");
        assert_eq!(by_file("TOLLGATE_PER_SECOND_SENTINEL_PASSWORD"), "");
        assert_eq!(by_file("TOLLGATE_STORE"), "");
    }
}
