//! Settings of the log.

use super::{FlagError, FlagValue, Problems, deferred};
use crate::telemetry::log::LogFormat;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Log")]
pub(super) struct Flags {
    /// Log level: error, warn, info, debug, or a filter such as tollgate=debug,rustls=warn.
    /// Libraries log only if the filter names them. debug also logs requests: each descriptor with
    /// its rule and decision, for up to 100 requests per second.
    #[arg(long, env = "TOLLGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
    /// Log format: text, json, or logrus (json with @timestamp, @message and lower-case level, as
    /// envoyproxy/ratelimit writes it).
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", value_name = "FORMAT", default_value = "text", value_parser = deferred(format))]
    log_format: FlagValue<LogFormat>,
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level or a filter.
    pub filter: String,
    /// Format of a line.
    pub format: LogFormat,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> LogSettings {
        LogSettings { format: problems.take(self.log_format), filter: self.log }
    }
}

fn format(text: &str) -> Result<LogFormat, FlagError> {
    match text.trim() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "logrus" => Ok(LogFormat::Logrus),
        other => Err(FlagError::unexpected("text, json or logrus", other)),
    }
}
