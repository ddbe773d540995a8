//! Structured logs on standard error. Nothing is logged per request above debug level.

mod logrus;

use std::fmt;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// One JSON object per line, with the field names that envoyproxy/ratelimit uses for time,
    /// level and message.
    Logrus,
}

/// Initializes logging. `level` is a level (`info`) or a filter (`tollgate=debug,rustls=warn`).
///
/// # Errors
/// If the filter cannot be parsed, or logging is already initialized.
pub fn begin(level: &str, format: LogFormat) -> Result<(), LogError> {
    if let Some(word) = unknown_level(level) {
        return Err(LogError(format!(
            "unknown level `{word}`: expected off, error, warn, info, debug or trace, or TARGET=LEVEL"
        )));
    }
    let mut filter =
        EnvFilter::try_new(own_levels(level)).map_err(|error| LogError(error.to_string()))?;
    // Audit entries are logged at any level, unless the filter mentions them.
    if !level.contains("audit") {
        filter = filter.add_directive(
            "audit=info".parse().map_err(|error: ParseError| LogError(error.to_string()))?,
        );
    }
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match format {
        LogFormat::Text => {
            logs.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init()
        }
        LogFormat::Json => logs.json().try_init(),
        LogFormat::Logrus => logs.event_format(logrus::Logrus).try_init(),
    };
    begun.map_err(|error| LogError(error.to_string()))
}

/// Restricts levels without a target to this service. Libraries log what strangers send, without a
/// bound: rustls warns of each invalid server name. They log if the filter names them.
///
/// `tollgate::store` may be a module of the service or its crate `tollgate_store`.
fn own_levels(filter: &str) -> String {
    filter.split(',').map(own_level).collect::<Vec<_>>().join(",")
}

fn own_level(directive: &str) -> String {
    let directive = directive.trim();
    if directive.parse::<LevelFilter>().is_ok() {
        return format!("tollgate={directive}");
    }
    match directive.strip_prefix("tollgate::") {
        Some(module) => format!("{directive},tollgate_{module}"),
        None => directive.to_owned(),
    }
}

/// Returns a word of a filter without a level for this service: as the target of a library, it
/// would turn off the logs of this service.
fn unknown_level(filter: &str) -> Option<&str> {
    let directives = || filter.split(',').map(str::trim);
    let is_level = |directive: &str| directive.parse::<LevelFilter>().is_ok();
    if directives().any(|one| is_level(one) || one.contains("tollgate") || one.contains("audit")) {
        return None;
    }
    directives().find(|directive| !directive.contains(['=', '[']))
}

/// The error returned when logging cannot be initialized.
#[derive(Debug)]
pub struct LogError(String);

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: --log: {}", self.0)
    }
}

impl std::error::Error for LogError {}

#[cfg(test)]
mod tests {
    use super::{own_levels, unknown_level};

    #[test]
    fn a_level_is_that_of_this_service_and_libraries_log_only_if_they_are_named() {
        for (filter, expected) in [
            ("info", "tollgate=info"),
            ("DEBUG, h2=warn", "tollgate=DEBUG,h2=warn"),
            ("off", "tollgate=off"),
            ("rustls=warn,tollgate=trace", "rustls=warn,tollgate=trace"),
            ("tollgate::store=trace", "tollgate::store=trace,tollgate_store=trace"),
        ] {
            assert_eq!(own_levels(filter), expected);
        }
    }

    #[test]
    fn a_word_that_would_turn_off_all_logs_is_refused() {
        for filter in ["info", "OFF", "3", "h2=warn", "tollgate", "audit", "info,rustls", "[span]"]
        {
            assert_eq!(unknown_level(filter), None);
        }
        for word in ["loud", "inof", "rustls", "h2::hpack"] {
            assert_eq!(unknown_level(word), Some(word));
        }
        assert_eq!(unknown_level("h2=warn, inof"), Some("inof"));
    }
}
