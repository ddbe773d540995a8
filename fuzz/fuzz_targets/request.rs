//! cargo-fuzz entry point of `targets/request.rs`.
#![no_main]

#[allow(dead_code, reason = "the other target's body")]
#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::request::run(bytes));
