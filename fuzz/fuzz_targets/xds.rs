//! cargo-fuzz entry point of `src/xds/fuzz.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::xds::fuzz::run(bytes));
