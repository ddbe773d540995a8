//! What is printed. Nobody left to tell is no reason to fail, and never to panic as `println!` would.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// To standard output, as it is.
pub(super) fn say(text: impl Display) {
    let _ = write!(io::stdout(), "{text}");
}

/// A line to standard error.
pub(super) fn remark(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Why nothing can be said; the exit code of that is 2.
pub(super) fn no_answer(error: impl Display) -> ExitCode {
    remark(format_args!("error: {error}"));
    ExitCode::from(2)
}
