//! Bodies of the fuzz targets, one file per target, run by cargo-fuzz and, for a bounded time, by
//! `tests/fuzz_smoke.rs`.
//!
//! A target must not panic, and asserts the invariants of every input.

pub(crate) mod json;
pub(crate) mod key_text;
pub(crate) mod policy;
pub(crate) mod request;
mod service;
pub(crate) mod shared_denials;
