//! What the process remembers of what it decided, for those who ask why.

use super::{Problems, parse};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Observation")]
pub(super) struct Flags {
    /// Memory for who was denied in the last 15 minutes, for `tollgate denials` and `tollgate top`; or off. When it is full, the
    /// keys that are denied most often are kept.
    #[arg(long, env = "TOLLGATE_DENIAL_JOURNAL", value_name = "SIZE", default_value = "16MiB")]
    denial_journal: String,
    /// How many rules have metrics and rates of their own; what is more is counted as rule `other` of domain `other`.
    #[arg(long, env = "TOLLGATE_METRICS_MAX_RULES", value_name = "N", default_value = "10000")]
    metrics_max_rules: String,
}

/// What the process remembers of what it decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservationSettings {
    /// Bytes for the journal of denials; 0: there is none.
    pub journal_bytes: usize,
    /// Rules with series of their own.
    pub max_rules: usize,
}

impl Flags {
    pub(super) fn resolve(&self, problems: &mut Problems) -> ObservationSettings {
        ObservationSettings {
            journal_bytes: problems.read("--denial-journal", &self.denial_journal, journal),
            max_rules: problems.read("--metrics-max-rules", &self.metrics_max_rules, parse::count),
        }
    }
}

fn journal(text: &str) -> Result<usize, String> {
    if text.trim() == "off" {
        return Ok(0);
    }
    parse::bytes(text).map_err(|error| format!("{error}; or off"))
}
