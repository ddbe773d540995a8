//! cargo-fuzz entry point of `targets/shared_denials.rs`.
#![no_main]

#[allow(dead_code, reason = "the other targets' bodies")]
#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::shared_denials::run(bytes));
