//! cargo-fuzz entry point of `src/transport/fuzz/frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::transport::fuzz::frames::run(bytes));
