//! `src/transport/fuzz/hpack.rs` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::transport::fuzz::hpack::run(bytes));
