//! `src/transport/fuzz/frames.rs` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::transport::fuzz::frames::run(bytes));
