//! cargo-fuzz entry point of `crates/store/src/redis/fuzz/resp.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate::store::redis::fuzz::resp::run(bytes));
