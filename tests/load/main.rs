//! Tests that measure times. A binary of its own: cargo runs one test binary after the other, so no
//! other test takes CPU time from these, which wait for each other.
//!
//! | module | subject |
//! |---|---|
//! | `attacks` | attacks on the release binary, and how other clients are served meanwhile |
//! | `probes` | attacks over HTTP, and how fast probes are answered meanwhile |
//! | `speed` | CPU close to the ceiling, no more instructions than before, within wide margins |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod attacks;
mod probes;
mod speed;
#[allow(dead_code, unused_imports, reason = "the tests' servers, of which this needs some")]
#[path = "../support/mod.rs"]
mod support;
