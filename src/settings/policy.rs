//! Sources of policies, and how they are parsed.

use std::path::{Path, PathBuf};

use super::{FlagError, Problems};
use crate::algorithm::Charge;
use crate::descriptor::HashKey;
use crate::policy::source::files::{FileFilter, PolicyLocations};
use crate::policy::{CompileOptions, PolicyDialect};

/// Policies of this machine, served if none are given and the directory is not empty. It is empty
/// in the image, for a volume.
const INSTALLED: &str = "/etc/tollgate";
/// The examples of this repository, served if there are no others.
const EXAMPLES: &str = "config/policies";

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies")]
pub(super) struct Flags {
    /// A policy file, or a directory that is read recursively (*.yaml, *.yml; not dot files). May
    /// be repeated. Default: /etc/tollgate, or else config/policies, if it is not empty.
    #[arg(long, env = "TOLLGATE_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Candidate policies, evaluated and counted on live traffic beside those in force, with
    /// counters of their own, without effect on responses. A file or a directory; may be
    /// repeated.
    #[arg(long, env = "TOLLGATE_CANDIDATE_POLICY", value_name = "PATH", value_delimiter = ',')]
    candidate_policy: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
}

/// Options for reading policies, shared by all subcommands that read some.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies")]
pub struct ReadingFlags {
    /// Allow several files to define one domain: their rules are merged in the order of the file
    /// names.
    #[arg(long, env = "TOLLGATE_MERGE_DOMAINS")]
    merge_domains: bool,
    /// Treatment of unknown keys. tollgate: error. envoyproxy: ignored with a warning; files with
    /// any name are recognized as policies by their content, and a directory without policies is
    /// not an error.
    #[arg(
        long,
        env = "TOLLGATE_POLICY_DIALECT",
        value_name = "DIALECT",
        default_value = "tollgate",
        value_parser = dialect
    )]
    policy_dialect: PolicyDialect,
    /// Also read dot files of directories.
    #[arg(long, env = "TOLLGATE_POLICY_DOT_FILES")]
    policy_dot_files: bool,
    /// Read only those files of a directory whose path below it, with `.` in place of `/`, has this
    /// prefix.
    #[arg(long, env = "TOLLGATE_POLICY_FILE_PREFIX", value_name = "TEXT", default_value = "")]
    policy_file_prefix: String,
    /// Charge mode of fixed windows that do not set one: always, admitted, blamed.
    #[arg(
        long,
        env = "TOLLGATE_FIXED_WINDOW_CHARGE",
        value_name = "CHARGE",
        default_value = "always",
        value_parser = charge
    )]
    fixed_window_charge: Charge,
    /// File with options for rules that another team or controller maintains. It selects the rules
    /// by patterns of domain, key, value and name. May be repeated.
    #[arg(long, env = "TOLLGATE_OVERLAY", value_name = "FILE", value_delimiter = ',')]
    overlay: Vec<PathBuf>,
    /// Maximum memory for policies: those in force, candidates and those being compiled to replace
    /// them, together. Policies beyond it are refused. Each rule counts as 2.9 kB plus its text.
    /// Default: 1GiB; in `tollgate serve` at most a third of what the limit of the process's memory
    /// leaves, at least 16MiB.
    #[arg(
        long,
        env = "TOLLGATE_POLICY_MEMORY_MAX",
        value_name = "SIZE",
        value_parser = super::parse::bytes
    )]
    policy_memory_max: Option<usize>,
    /// File with the secret for limits with `hash_values`; must be the same for all replicas. If
    /// it changes, the counters of these limits start at zero. Or set TOLLGATE_HASH_KEY.
    #[arg(long, env = "TOLLGATE_HASH_KEY_FILE", value_name = "FILE", value_parser = hash_key_file)]
    hash_key_file: Option<(PathBuf, HashKey)>,
    /// Secret for limits with `hash_values`. Do not use it as a flag: other users of the machine
    /// can see command lines.
    #[arg(long, env = "TOLLGATE_HASH_KEY", hide = true, hide_env_values = true)]
    hash_key: Option<String>,
}

/// Sources of policies, and how they are parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Files and directories; empty if none was given and no default exists.
    pub places: PolicyLocations,
    /// Options for compiling them.
    pub options: CompileOptions,
    /// Set if the examples are served because no policy was given.
    pub are_examples: bool,
    /// Sources of candidate policies; empty if there are none.
    pub candidates: PolicyLocations,
    /// The file with the key of hashed values.
    pub hash_key_file: Option<PathBuf>,
}

/// Returns the name by which this program was called: a path if it is not on the PATH.
pub fn program_name() -> String {
    let name = std::env::args_os().next().map(|name| name.to_string_lossy().into_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned())
}

impl Flags {
    /// Returns the value of `--policy-memory-max`, if it is set.
    pub(super) fn memory_max(&self) -> Option<usize> {
        self.reading.policy_memory_max
    }

    /// Resolves the flags. `elsewhere` is set if policies come from a control plane; `memory` is
    /// the memory for policies, in bytes.
    pub(super) fn resolve(
        self,
        elsewhere: bool,
        memory: usize,
        problems: &mut Problems,
    ) -> PolicySettings {
        if elsewhere && !self.policy.is_empty() {
            problems.add("--policy", "cannot be used with --xds");
        }
        // Checked here and not while clap parses: its error would show the value.
        let key = self.reading.hash_key.as_deref().map_or(Ok(()), |key| check_key(key.as_bytes()));
        if let Err(what) = key {
            problems.add("TOLLGATE_HASH_KEY", what);
        }
        let has_default = !elsewhere && self.policy.is_empty();
        let default = if has_default { first_filled(&[INSTALLED, EXAMPLES]) } else { None };
        let are_examples = default == Some(EXAMPLES);
        let paths = default.map_or(self.policy, |place| vec![place.into()]);
        let candidates = self.reading.places(&self.candidate_policy);
        let places = self.reading.places(&paths);
        let options = CompileOptions { memory_max: Some(memory), ..self.reading.options() };
        let hash_key_file = self.reading.hash_key_file.map(|(path, _)| path);
        PolicySettings { places, options, are_examples, candidates, hash_key_file }
    }
}

impl ReadingFlags {
    /// Returns the sources to read at `paths`.
    pub fn places(&self, paths: &[PathBuf]) -> PolicyLocations {
        let which = FileFilter {
            by_content: self.policy_dialect == PolicyDialect::Envoyproxy,
            dot_files: self.policy_dot_files,
            prefix: self.policy_file_prefix.clone(),
            tests: false,
        };
        PolicyLocations { paths: paths.to_owned(), overlays: self.overlay.clone(), which }
    }

    /// Returns the options for compiling policies.
    pub fn options(&self) -> CompileOptions {
        CompileOptions {
            merge_domains: self.merge_domains,
            dialect: self.policy_dialect,
            fixed_window_charge: Some(self.fixed_window_charge),
            hash_key: self
                .hash_key_file
                .as_ref()
                .map(|(_, key)| *key)
                .or_else(|| self.hash_key.as_ref().map(|key| HashKey::of(key.as_bytes()))),
            are_candidates: false,
            memory_max: self.policy_memory_max,
            memory_held: 0,
        }
    }
}

/// Returns the first directory that is not empty.
fn first_filled<'p>(places: &[&'p str]) -> Option<&'p str> {
    let is_filled = |place: &&str| {
        Path::new(place).read_dir().is_ok_and(|mut entries| entries.next().is_some())
    };
    places.iter().copied().find(is_filled)
}

fn hash_key_file(path: &str) -> Result<(PathBuf, HashKey), FlagError> {
    let secret = crate::bounded_file::read(path.as_ref()).map_err(FlagError::refused)?;
    check_key(&secret)?;
    Ok((path.into(), HashKey::of(&secret)))
}

fn check_key(secret: &[u8]) -> Result<(), FlagError> {
    if secret.trim_ascii().len() >= HashKey::MIN_BYTES {
        return Ok(());
    }
    let least = HashKey::MIN_BYTES;
    Err(FlagError::refused(format_args!("a key must have at least {least} bytes")))
}

fn dialect(text: &str) -> Result<PolicyDialect, FlagError> {
    match text {
        "tollgate" => Ok(PolicyDialect::Tollgate),
        "envoyproxy" => Ok(PolicyDialect::Envoyproxy),
        _ => Err(FlagError::UnexpectedHidden { allowed: "tollgate or envoyproxy" }),
    }
}

fn charge(text: &str) -> Result<Charge, FlagError> {
    match text {
        "always" => Ok(Charge::Always),
        "admitted" => Ok(Charge::Admitted),
        "blamed" => Ok(Charge::Blamed),
        _ => Err(FlagError::UnexpectedHidden { allowed: "always, admitted or blamed" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directory_that_is_not_empty_is_served() {
        let folder = tempfile::TempDir::new().unwrap();
        let places = ["installed", "examples"].map(|name| folder.path().join(name));
        let [installed, examples] = places.each_ref().map(|place| place.to_str().unwrap());
        let found = || first_filled(&[installed, examples]);
        assert_eq!(found(), None);
        for place in &places {
            std::fs::create_dir(place).unwrap();
        }
        assert_eq!(found(), None, "both are empty");
        std::fs::write(places[1].join("a.yaml"), "").unwrap();
        assert_eq!(found(), Some(examples));
        std::fs::write(places[0].join("a.yaml"), "").unwrap();
        assert_eq!(found(), Some(installed));
    }
}
