//! Output to the terminal. A closed pipe is not an error and never panics, as it does with
//! `println!`; text from a client or a file cannot move the cursor or reorder the text beside it.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use jiff::SignedDuration;

use super::CommandError;
use crate::policy::ProblemReport;
use crate::printable::{escaped_json, escaped_lines};

/// Prints a text to standard output, with invisible characters escaped. Ignores a closed pipe.
pub(super) fn print(text: impl Display) {
    let _ = try_print(text);
}

/// Prints a text to standard output, for callers that stop when it is closed.
///
/// # Errors
/// Standard output is closed.
pub(super) fn try_print(text: impl Display) -> io::Result<()> {
    io::stdout().write_all(escaped_lines(&text.to_string()).as_bytes())
}

/// Prints JSON to standard output, with invisible characters escaped as in JSON.
pub(super) fn print_json(json: impl Display) {
    let _ = io::stdout().write_all(escaped_json(&json.to_string()).as_bytes());
}

/// Prints a line to standard error.
pub(super) fn print_stderr(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", escaped_lines(&text.to_string()));
}

/// Formats a number of seconds, such as `1h 45s`.
pub(super) fn seconds_text(seconds: i64) -> String {
    format!("{:#}", SignedDuration::from_secs(seconds))
}

/// Prints the error of a subcommand and returns exit code 2.
pub(super) fn report_error(error: &CommandError) -> ExitCode {
    // Each problem of a report has its severity.
    let severity = if error.is::<ProblemReport>() { "" } else { "error: " };
    print_stderr(format!("{severity}{error}").trim_end());
    ExitCode::from(2)
}
