//! What the fuzz targets do with bytes: one file a target, run by cargo-fuzz and, for a bounded time, by
//! `tests/fuzz_smoke.rs`.
//!
//! A target must not panic, and asserts what holds of every input.

pub(crate) mod policy;
pub(crate) mod request;
mod service;
