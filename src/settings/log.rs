//! What the process says meanwhile.

use super::Problems;
use crate::telemetry::log::LogFormat;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Log")]
pub(super) struct Flags {
    /// How much is logged: error, warn, info, debug, or a filter such as tollgate=debug,h2=warn.
    #[arg(long, env = "TOLLGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
    /// How log lines look: text, or json.
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: String,
}

/// What the process says meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level or a filter.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> LogSettings {
        LogSettings { format: problems.read("--log-format", &self.log_format, format), filter: self.log }
    }
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text.trim() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("expected text or json, found `{other}`")),
    }
}
