//! cargo-fuzz entry point of `crates/http2/src/fuzz/hpack.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::http2::fuzz::hpack::run(bytes));
