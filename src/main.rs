//! Arguments in, exit code out.

use std::process::ExitCode;

use tollgate::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Cli::of_process().run()
}
