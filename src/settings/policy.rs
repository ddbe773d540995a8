//! Where policies come from.

use std::path::{Path, PathBuf};

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
}

/// Where policies come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Files and directories; empty where none was given and the examples are not there.
    pub paths: Vec<PathBuf>,
    /// Whether several files may speak of one domain.
    pub merge_domains: bool,
    /// Whether the examples are served because nothing was given.
    pub are_examples: bool,
}

impl Flags {
    pub(super) fn resolve(self) -> PolicySettings {
        let are_examples = self.policy.is_empty() && Path::new(EXAMPLES).is_dir();
        let paths = if are_examples { vec![EXAMPLES.into()] } else { self.policy };
        PolicySettings { paths, merge_domains: self.merge_domains, are_examples }
    }
}
