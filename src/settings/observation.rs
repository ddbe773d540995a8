//! Recording of decisions for later inspection.

use super::{FlagError, FlagValue, Problems, deferred, parse};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Observability")]
pub(super) struct Flags {
    /// Memory for the denials of the last 15 minutes, used by `tollgate denials` and `tollgate
    /// top`; or off. When it is full, the keys that are denied most often are kept.
    #[arg(long, env = "TOLLGATE_DENIAL_JOURNAL", value_name = "SIZE", default_value = "16MiB", value_parser = deferred(journal))]
    denial_journal: FlagValue<usize>,
    /// Maximum number of rules with metrics and rates of their own; further rules are counted as
    /// rule `other` of domain `other`.
    #[arg(long, env = "TOLLGATE_METRICS_MAX_RULES", value_name = "N", default_value = "10000", value_parser = deferred(parse::count))]
    metrics_max_rules: FlagValue<usize>,
}

/// Settings of the recording of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservationSettings {
    /// Size of the journal of denials, in bytes; 0 disables it.
    pub journal_bytes: usize,
    /// Maximum number of rules with series of their own.
    pub max_rules: usize,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> ObservationSettings {
        ObservationSettings {
            journal_bytes: problems.take(self.denial_journal),
            max_rules: problems.take(self.metrics_max_rules),
        }
    }
}

fn journal(text: &str) -> Result<usize, FlagError> {
    if text.trim() == "off" {
        return Ok(0);
    }
    parse::bytes(text).map_err(|error| FlagError::refused(format_args!("{error}; or off")))
}
