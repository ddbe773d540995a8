//! cargo-fuzz entry point of `crates/http2/src/fuzz/frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::http2::fuzz::frames::run(bytes));
