//! Policy changes before they are in force: their tests, their differences, and their effect on
//! recorded traffic.

mod candidates;
mod differences;
mod tests_of_policies;
mod traffic;

use std::path::Path;
use std::process::Output;

use crate::support::tollgate::output;

/// Runs the binary. Returns its exit code, and its output on both streams.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
