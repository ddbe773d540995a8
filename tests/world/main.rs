//! Tests of simulated worlds. A binary of its own, since the hashes of keys are fixed in it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod directed;
mod directed_holds;
#[path = "mod.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use world::checker::check;
use world::plan::Plan;
use world::run::run;

/// Number of seeds: a debug build takes about eight times as long for each.
const SEEDS: u64 = if cfg!(debug_assertions) { 200 } else { 1_000 };
/// Seeds that are compared with those of another process.
const COMPARED: std::ops::Range<u64> = 0..20;
/// Set in the other process.
const PRINTS_HASHES: &str = "TOLLGATE_WORLD_PRINTS_HASHES";

/// Returns the hash of each compared seed.
fn hashes() -> String {
    assert!(tollgate::descriptor::fix_hashes() || std::env::var(PRINTS_HASHES).is_err());
    let hashes =
        COMPARED.map(|seed| format!("hash {seed} {}", run(&Plan::of(seed)).chronicle.hash()));
    hashes.collect::<Vec<_>>().join("\n")
}

#[test]
fn no_seed_breaks_a_promise() {
    let next = AtomicU64::new(0);
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let seed @ 0..SEEDS = next.fetch_add(1, Ordering::Relaxed) {
                    let found = check(&run(&Plan::of(seed)));
                    broken
                        .lock()
                        .extend(found.into_iter().map(|text| format!("seed {seed}: {text}")));
                }
            });
        }
    });
    let broken = broken.into_inner();
    assert!(broken.is_empty(), "replay with `cargo run --example world`:\n{}", broken.join("\n"));
}

#[test]
fn a_seed_is_the_same_history_in_another_process_and_time_zone() {
    if std::env::var(PRINTS_HASHES).is_ok() {
        println!("{}", hashes());
        return;
    }
    let other = |zone: &str| {
        let this = std::env::current_exe().unwrap();
        let name = "a_seed_is_the_same_history_in_another_process_and_time_zone";
        let output = std::process::Command::new(this)
            .args([name, "--exact", "--nocapture"])
            .env(PRINTS_HASHES, "1")
            .env("TZ", zone)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let hashes =
            text.lines().filter_map(|line| line.find("hash ").map(|at| line[at..].to_owned()));
        hashes.collect::<Vec<_>>()
    };
    let first = other("UTC");
    assert_eq!(first.len(), COMPARED.count());
    assert_eq!(first, other("Asia/Tokyo"));
}
