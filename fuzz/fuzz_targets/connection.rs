//! `src/transport/fuzz/connection.rs` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::transport::fuzz::connection::run(bytes));
