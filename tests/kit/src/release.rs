//! Cargo, and programs in the profile `release` for tests that measure.

use crate::{built, root};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns a command of cargo without the variables that cargo sets for this test. They are inputs
/// of build scripts: with them, ring and all that depends on it would be built again.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let is_set_by_cargo = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "OUT_DIR"]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    for (name, _) in std::env::vars().filter(|(name, _)| is_set_by_cargo(name)) {
        cargo.env_remove(name);
    }
    cargo
}

/// Runs a cargo command in this profile and returns its standard output. `tests/run` builds
/// beforehand the programs that the tests need, so this finds everything up to date.
pub fn release(command: &[&str], arguments: &[&str]) -> String {
    let mut cargo = cargo();
    cargo.current_dir(root()).args(&command[..1]).args(["--locked", "--profile", "release"]);
    let Output { status, stdout, stderr } =
        cargo.args(&command[1..]).args(arguments).output().unwrap();
    assert!(
        status.success(),
        "{command:?} {arguments:?}: {status}\n{}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap()
}

/// Returns the path of a program built in this profile.
pub fn artifact(name: &str) -> PathBuf {
    built().with_file_name("release").join(name)
}
