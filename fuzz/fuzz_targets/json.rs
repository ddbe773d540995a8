//! cargo-fuzz entry point of `targets/json.rs`.
#![no_main]

#[allow(dead_code, reason = "the other targets' bodies")]
#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::json::run(bytes));
