//! cargo-fuzz entry point of `src/transport/fuzz/hpack.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::transport::fuzz::hpack::run(bytes));
