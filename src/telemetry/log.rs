//! Structured logs on standard error; nothing per request above debug.

use std::fmt;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Begins to log. `level` is a level (`info`) or a filter (`tollgate=debug,h2=warn`).
///
/// # Errors
/// Where the filter cannot be read, or logging was begun already.
pub fn begin(level: &str, format: LogFormat) -> Result<(), LogError> {
    let mut filter = EnvFilter::try_new(level).map_err(|error| LogError(error.to_string()))?;
    // Writes of administration are told whatever else is, unless somebody speaks of them.
    if !level.contains("audit") {
        filter = filter.add_directive("audit=info".parse().map_err(|error: ParseError| LogError(error.to_string()))?);
    }
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match format {
        LogFormat::Text => logs.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    begun.map_err(|error| LogError(error.to_string()))
}

/// Logging could not begin.
#[derive(Debug)]
pub struct LogError(String);

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: --log: {}", self.0)
    }
}

impl std::error::Error for LogError {}
