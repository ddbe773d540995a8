//! Export of a service in Tollgate's own format: `tollgate.env` and `policies/`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Policies;
use super::given::Given;
use crate::policy::{self, Dialect, Loaded, Options, Source};
use crate::printable::escaped;
use crate::settings::PolicySettings;
use crate::settings::envoyproxy::{OwnVariable, Translation, own_variables};

/// Variables for how that service finds its files. The exported files need none of them.
const OF_FILES: [&str; 4] =
    ["TOLLGATE_POLICY", "TOLLGATE_POLICY_DIALECT", "TOLLGATE_POLICY_DOT_FILES", "TOLLGATE_POLICY_FILE_PREFIX"];

/// The variable of the store, and a value that `serve` refuses until the operator replaces it.
const STORE: &str = "TOLLGATE_STORE";
const FILL_IN: &str = "FILL-IN";

/// Paths of the files that were written.
pub(super) struct Written {
    /// Path of `tollgate.env`.
    pub(super) variables: PathBuf,
    /// The folder of policies; `None` if they come from a control plane.
    pub(super) policies: Option<PathBuf>,
    /// `true` if the policies mean the same in Tollgate's own dialect; otherwise that of envoyproxy
    /// is set.
    pub(super) is_native: bool,
    /// Number of values that the operator has to fill in: secrets, and references of a manifest.
    pub(super) open: usize,
}

/// Writes the variables and the policies into a directory that has neither. Overwrites nothing.
///
/// # Errors
/// A file cannot be written, or exists already.
pub(super) fn write(
    folder: &Path,
    given: &Given,
    translation: &Translation,
    settings: Option<&PolicySettings>,
    policies: &Policies,
) -> Result<Written, String> {
    let variables = folder.join("tollgate.env");
    let place = folder.join("policies");
    make_folder(&place)?;
    let is_empty = fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(&variables).is_ok() || !is_empty {
        let text = "is there already, or `policies` beside it has files; give another directory as --output";
        return Err(format!("{} {text}", variables.display()));
    }
    let (files, is_native) = match (policies, settings) {
        (Policies::Loaded { files, loaded, .. }, Some(settings)) => {
            copy(files, &place)?;
            (Some(place), is_native(files, loaded, settings.options))
        }
        _ => (None, false),
    };
    let (text, open) = text(given, &own_variables(translation), files.as_deref(), is_native);
    write_new(&variables, &text)?;
    Ok(Written { variables, policies: files, is_native, open })
}

/// Returns `true` if files mean the same in the dialect in which a word without a meaning is an
/// error.
fn is_native(files: &[Source], loaded: &Loaded, options: Options) -> bool {
    let own = Options { dialect: Dialect::Tollgate, ..options };
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
        let names = std::iter::once(format!("{stem}.yaml")).chain((2..).map(|number| format!("{stem}-{number}.yaml")));
        let Some(name) = names.into_iter().find(|name| taken.insert(name.clone())) else { continue };
        let path = folder.join(name);
        write_new(&path, &file.text)?;
    }
    Ok(())
}

/// Writes a file that does not exist, not even as a link.
fn write_new(path: &Path, text: &str) -> Result<(), String> {
    let write = || -> io::Result<()> { File::create_new(path)?.write_all(text.as_bytes()) };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns `true` if shells, Compose and Kubernetes read a value as it is written.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:,@%+=[]?".contains(&byte))
}

/// Returns the variables, one per line, and the number of those without a value.
fn text(given: &Given, own: &[OwnVariable], policies: Option<&Path>, is_native: bool) -> (String, usize) {
    let from = escaped(&given.from);
    let mut text = format!("# Made by `tollgate migrate` of {from}. Defaults are left out.\n");
    let mut open = 0_usize;
    if let Some(policies) = policies {
        text.push_str(&format!("TOLLGATE_POLICY={}\n", policies.display()));
        if !is_native {
            text.push_str("TOLLGATE_POLICY_DIALECT=envoyproxy\n");
        }
    }
    for OwnVariable { name, flag, value } in own {
        if policies.is_some() && OF_FILES.contains(&name.as_str()) {
            continue;
        }
        let line = match value {
            None => format!("# {name}= a secret, not written here{}", by_file(name)),
            Some(value) => match given.place_of(value) {
                Some(place) => format!("# {name}= from {}{}", escaped(place), by_file(name)),
                None if value.contains('\n') => {
                    format!(
                        "# {flag}: give this as a flag; its variable has a line for each value, and a file like this none"
                    )
                }
                None => {
                    if is_plain(value) {
                        text.push_str(&format!("{name}={value}\n"));
                        continue;
                    }
                    format!("# {name}= quote this for the program that reads the file: {}", escaped(value))
                }
            },
        };
        open = open.saturating_add(1);
        text.push_str(&line);
        text.push('\n');
        if name == STORE {
            // Without a store the service would count in memory, without a word.
            text.push_str(&format!("{STORE}={FILL_IN}\n"));
        }
    }
    (text, open)
}

fn by_file(name: &str) -> String {
    if name.ends_with("_PASSWORD") { format!("; or {name}_FILE=PATH") } else { String::new() }
}
