//! Arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use tollgate::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Cli::parse().run()
}
