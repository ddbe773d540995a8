//! Arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use tollgate::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
