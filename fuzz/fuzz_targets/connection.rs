//! cargo-fuzz entry point of `crates/http2/src/fuzz/connection.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::http2::fuzz::connection::run(bytes));
