//! cargo-fuzz entry point of `targets/policy.rs`.
#![no_main]

#[allow(dead_code, reason = "the other target's body")]
#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::policy::run(bytes));
