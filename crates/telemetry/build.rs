//! Passes the compiler's version to `src/build_info.rs`.
//!
//! The revision comes from the variable `TOLLGATE_REVISION` and not from a repository: a build
//! depends on its sources and its environment only, so that two of them are equal.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TOLLGATE_REVISION");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // `rustc 1.95.0 (59807616e 2026-04-14)`
    let text = text.unwrap_or_default();
    let version = text.split_whitespace().nth(1).unwrap_or("unknown");
    println!("cargo:rustc-env=TOLLGATE_RUSTC={version}");
}
