//! Attacks, and instructions. A binary of its own: cargo runs one test binary after the other, so
//! no other test takes CPU time from these, which wait for each other. Times are compared with
//! those of a service that is not attacked, at the same time, so that they hold on a busy machine;
//! throughput and CPU time are measured by `cargo bench --bench compare`.
//!
//! | module | subject |
//! |---|---|
//! | `attacks` | attacks on the release binary, and how other clients are served meanwhile |
//! | `faults` | calls while the servers of the store die, hang, refuse or move |
//! | `probes` | attacks over HTTP, and how fast probes are answered meanwhile |
//! | `resets` | a flood of resets ends its connection |
//! | `speed` | no more instructions per decision than before |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod attacks;
mod faults;
mod probes;
mod resets;
mod speed;

use tollgate_testkit as support;

/// Raises this process's limit of open files to the maximum: attacks need thousands of connections.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
