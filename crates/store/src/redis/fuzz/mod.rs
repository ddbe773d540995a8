//! Fuzz targets for Redis's replies: run by cargo-fuzz, and for a few seconds by the tests below.
//!
//! They are part of the crate, for tests and fuzzing only, because the parsers of replies are
//! private.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a target that panics has found something"
)]

pub mod reply;
pub mod resp;
#[cfg(test)]
mod tests;
