//! Where policies come from, and how they are read.

use std::path::{Path, PathBuf};

use super::{Problem, Problems};
use crate::algorithm::Charge;
use crate::descriptor::HashKey;
use crate::policy::source::files::{Places, Which};
use crate::policy::{Dialect, Options};

/// Served where no policy is given: the examples of this repository.
const EXAMPLES: &str = "config/policies";

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies")]
pub(super) struct Flags {
    /// A policy file, or a directory that is read recursively (*.yaml, *.yml; dot files are not). May be given again.
    /// Without any, config/policies is served where that exists.
    #[arg(long, env = "TOLLGATE_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Policies that are tried out beside those in force: judged and counted on live traffic, by counters of their own, without
    /// a part in the answer. A file or a directory; may be given again.
    #[arg(long, env = "TOLLGATE_CANDIDATE_POLICY", value_name = "PATH", value_delimiter = ',')]
    candidate_policy: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

/// How policies are read; the subcommands that read some share it.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies")]
pub struct Reading {
    /// Let several files speak of one domain: their rules are put together, in the order of the files' names.
    #[arg(long, env = "TOLLGATE_MERGE_DOMAINS")]
    merge_domains: bool,
    /// tollgate: what means nothing is an error. envoyproxy: it is passed over with a warning, a file is a policy whatever it
    /// is called, and a directory without any is none.
    #[arg(
        long,
        env = "TOLLGATE_POLICY_DIALECT",
        value_name = "DIALECT",
        default_value = "tollgate",
        value_parser = dialect
    )]
    policy_dialect: Dialect,
    /// Read dot files of directories too.
    #[arg(long, env = "TOLLGATE_POLICY_DOT_FILES")]
    policy_dot_files: bool,
    /// Read only files of a directory whose path below it, `.` written for `/`, begins so.
    #[arg(long, env = "TOLLGATE_POLICY_FILE_PREFIX", value_name = "TEXT", default_value = "")]
    policy_file_prefix: String,
    /// When the hits of fixed windows are written that do not say so: always, admitted, blamed.
    #[arg(
        long,
        env = "TOLLGATE_FIXED_WINDOW_CHARGE",
        value_name = "CHARGE",
        default_value = "always",
        value_parser = charge
    )]
    fixed_window_charge: Charge,
    /// A file of options for rules that somebody else writes, by patterns of domain, key, value and name. May be given again.
    #[arg(long, env = "TOLLGATE_OVERLAY", value_name = "FILE", value_delimiter = ',')]
    overlay: Vec<PathBuf>,
    /// Memory that policies may take while they are compiled; more are refused. A rule is reckoned as 2.9 kB besides its texts.
    #[arg(
        long,
        env = "TOLLGATE_POLICY_MEMORY_MAX",
        value_name = "SIZE",
        default_value = "256MiB",
        value_parser = super::parse::bytes
    )]
    policy_memory_max: usize,
    /// File that has the secret for limits with `hash_values`, the same for all replicas. Another one begins with empty
    /// counters. Or TOLLGATE_HASH_KEY.
    #[arg(long, env = "TOLLGATE_HASH_KEY_FILE", value_name = "FILE", value_parser = hash_key_file)]
    hash_key_file: Option<HashKey>,
    /// The secret. Not a flag to use: other users of the machine see command lines.
    #[arg(long, env = "TOLLGATE_HASH_KEY", hide = true, hide_env_values = true)]
    hash_key: Option<String>,
}

/// Where policies come from, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Files and directories; empty where none was given and the examples are not there.
    pub places: Places,
    /// How their content is read.
    pub options: Options,
    /// Whether the examples are served because nothing was given.
    pub are_examples: bool,
    /// Where those are that are tried out; empty: nowhere.
    pub candidates: Places,
}

impl Flags {
    /// `elsewhere`: policies come from a control plane.
    pub(super) fn resolve(self, elsewhere: bool, problems: &mut Problems) -> PolicySettings {
        if elsewhere && !self.policy.is_empty() {
            let what = "policies come from --xds or from --policy, not from both".to_owned();
            problems.0.push(Problem { flag: "--policy", what });
        }
        // Said here and not where flags are read, which would show what was found.
        if self.reading.hash_key.as_ref().is_some_and(|key| is_short(key.as_bytes())) {
            problems.0.push(Problem { flag: "TOLLGATE_HASH_KEY", what: too_short() });
        }
        let are_examples = !elsewhere && self.policy.is_empty() && Path::new(EXAMPLES).is_dir();
        let paths = if are_examples { vec![EXAMPLES.into()] } else { self.policy };
        let candidates = self.reading.places(&self.candidate_policy);
        let (places, options) = (self.reading.places(&paths), self.reading.options());
        PolicySettings { places, options, are_examples, candidates }
    }
}

impl Reading {
    /// What there is to be read at `paths`.
    pub fn places(&self, paths: &[PathBuf]) -> Places {
        let which = Which {
            by_content: self.policy_dialect == Dialect::Envoyproxy,
            dot_files: self.policy_dot_files,
            prefix: self.policy_file_prefix.clone(),
            tests: false,
        };
        Places { paths: paths.to_owned(), overlays: self.overlay.clone(), which }
    }

    /// How it is compiled.
    pub fn options(&self) -> Options {
        Options {
            merge_domains: self.merge_domains,
            dialect: self.policy_dialect,
            fixed_window_charge: Some(self.fixed_window_charge),
            hash_key: self.hash_key_file.or_else(|| self.hash_key.as_ref().map(|key| HashKey::of(key.as_bytes()))),
            are_candidates: false,
            memory_max: Some(self.policy_memory_max),
        }
    }
}

fn hash_key_file(path: &str) -> Result<HashKey, String> {
    let secret = std::fs::read(path).map_err(|error| error.to_string())?;
    if is_short(&secret) { Err(too_short()) } else { Ok(HashKey::of(&secret)) }
}

fn is_short(secret: &[u8]) -> bool {
    secret.trim_ascii().len() < HashKey::MIN_BYTES
}

fn too_short() -> String {
    format!("a key has at least {} bytes", HashKey::MIN_BYTES)
}

fn dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "tollgate" => Ok(Dialect::Tollgate),
        "envoyproxy" => Ok(Dialect::Envoyproxy),
        _ => Err("expected tollgate or envoyproxy".to_owned()),
    }
}

fn charge(text: &str) -> Result<Charge, String> {
    match text {
        "always" => Ok(Charge::Always),
        "admitted" => Ok(Charge::Admitted),
        "blamed" => Ok(Charge::Blamed),
        _ => Err("expected always, admitted or blamed".to_owned()),
    }
}
