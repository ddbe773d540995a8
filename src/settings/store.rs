//! Where counters live, and how much room they have.

use super::{Problem, Problems, parse};
use crate::store::memory::Bounds;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Flags {
    /// Where counters live: `memory`, in this process.
    #[arg(long, env = "TOLLGATE_STORE", value_name = "URL", default_value = "memory")]
    store: String,
    /// Memory for counters. When it is full, a new counter is refused and its limit's on_store_error answers.
    #[arg(long, env = "TOLLGATE_MEMORY_MAX", value_name = "SIZE", default_value = "256MiB")]
    memory_max: String,
    /// The part of it that the counters of one domain may take.
    #[arg(long, env = "TOLLGATE_MEMORY_DOMAIN_SHARE", value_name = "SHARE", default_value = "0.5")]
    memory_domain_share: String,
}

/// Where counters live, and how much room they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Which store.
    pub url: StoreUrl,
    /// The room of the memory store.
    pub memory: Bounds,
}

/// Which store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreUrl {
    /// This process's memory.
    #[default]
    Memory,
}

impl Flags {
    pub(super) fn resolve(&self, problems: &mut Problems) -> StoreSettings {
        let max_bytes = problems.read("--memory-max", &self.memory_max, parse::bytes);
        let share = problems.read("--memory-domain-share", &self.memory_domain_share, parse::share);
        let url = problems.read("--store", &self.store, store_url);
        if (1..1 << 20).contains(&max_bytes) {
            let what = format!("counters need at least 1MiB, found `{}`", self.memory_max);
            problems.0.push(Problem { flag: "--memory-max", what });
        }
        StoreSettings { url, memory: Bounds { max_bytes, domain_max_bytes: share.of(max_bytes) } }
    }
}

/// Reads a store's URL.
///
/// # Errors
/// What was found and what is allowed.
pub fn store_url(text: &str) -> Result<StoreUrl, String> {
    match text.trim() {
        "memory" => Ok(StoreUrl::Memory),
        other => Err(format!("expected `memory`, found `{other}`")),
    }
}
