//! Where policies come from.

use std::path::{Path, PathBuf};

use super::{Problem, Problems};

/// Served where no policy is given: the examples of this repository.
const EXAMPLES: &str = "config/policies";

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Flags {
    /// A policy file, or a directory that is read recursively (*.yaml, *.yml; dot files are not). May be given again.
    /// Without any, config/policies is served where that exists.
    #[arg(long, env = "TOLLGATE_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Let several files speak of one domain: their rules are put together, in the order of the files' names.
    #[arg(long, env = "TOLLGATE_MERGE_DOMAINS")]
    merge_domains: bool,
    /// A file of options for rules that somebody else writes, by patterns of domain, key, value and name. May be given again.
    #[arg(long, env = "TOLLGATE_OVERLAY", value_name = "FILE", value_delimiter = ',')]
    overlay: Vec<PathBuf>,
}

/// Where policies come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Files and directories; empty where none was given and the examples are not there, and with a control plane.
    pub paths: Vec<PathBuf>,
    /// Files of options for rules that stand elsewhere.
    pub overlays: Vec<PathBuf>,
    /// Whether several files may speak of one domain.
    pub merge_domains: bool,
    /// Whether the examples are served because nothing was given.
    pub are_examples: bool,
}

impl Flags {
    /// `elsewhere`: policies come from a control plane.
    pub(super) fn resolve(self, elsewhere: bool, problems: &mut Problems) -> PolicySettings {
        if elsewhere && !self.policy.is_empty() {
            let what = "policies come from --xds or from --policy, not from both".to_owned();
            problems.0.push(Problem { flag: "--policy", what });
        }
        let are_examples = !elsewhere && self.policy.is_empty() && Path::new(EXAMPLES).is_dir();
        let paths = if are_examples { vec![EXAMPLES.into()] } else { self.policy };
        PolicySettings { paths, overlays: self.overlay, merge_domains: self.merge_domains, are_examples }
    }
}
