//! The performance ceiling that tollgate is measured against: a server of the same protocol on the
//! same runtime, tonic over hyper, with a constant response and nothing else, not even pings.
//!
//! Run with `cargo run --release --example ceiling 127.0.0.1:9081`; `--bare` uses tonic's own loop,
//! `Server::serve_with_incoming`. `cargo bench --bench compare` runs it too.

use std::error::Error;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    tollgate_testkit::ceiling::run(std::env::args().skip(1))
}
