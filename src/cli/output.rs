//! Output to the terminal. A closed pipe is not an error and never panics, as it does with
//! `println!`; text from a client or a file cannot move the cursor or reorder the text beside it.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::printable::{escaped_json, escaped_lines};

/// Writes a text to standard output, with invisible characters escaped.
pub(super) fn say(text: impl Display) {
    let _ = try_say(text);
}

/// Writes a text to standard output, for callers that stop when it is closed.
///
/// # Errors
/// Standard output is closed.
pub(super) fn try_say(text: impl Display) -> io::Result<()> {
    io::stdout().write_all(escaped_lines(&text.to_string()).as_bytes())
}

/// Writes JSON to standard output, with invisible characters escaped as in JSON.
pub(super) fn say_json(json: impl Display) {
    let _ = io::stdout().write_all(escaped_json(&json.to_string()).as_bytes());
}

/// Writes a line to standard error.
pub(super) fn remark(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", escaped_lines(&text.to_string()));
}

/// Writes an error, and returns its exit code, 2.
pub(super) fn no_answer(error: impl Display) -> ExitCode {
    remark(format_args!("error: {error}"));
    ExitCode::from(2)
}
