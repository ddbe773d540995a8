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
mod directed_proxies;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate_testkit::release::release;
use tollgate_testkit::traces::simulated::{broken_by, number_of_cases, run_seed};
use tollgate_testkit::world;

use world::checker::check;
use world::plan::Plan;
use world::run::run;

/// Seeds that a release build runs, which is eight times as fast as this one.
const SEEDS: &str = "0..1000";
/// Seeds of retried reserves.
const RETRY_SEEDS: &str = "0..500";
/// Number of seeds that run with checks of overflow and debug assertions.
const CHECKED: u64 = 60;
/// Seeds in which the checker found a break that was none. 9558: returns of proxies to a counter by
/// gcra, each without the hits that may have drained meanwhile.
const MISJUDGED: [u64; 1] = [9558];
/// Seeds whose histories are compared.
const COMPARED: std::ops::Range<u64> = 0..20;
/// Set in the other process.
const PRINTS_HASHES: &str = "TOLLGATE_WORLD_PRINTS_HASHES";

/// Runs the example in a release build, and returns its output.
fn example(arguments: &[&str]) -> String {
    release(&["run", "--example", "world", "--"], arguments)
}

/// Returns the hash of each compared seed.
fn hashes() -> Vec<String> {
    assert!(tollgate::descriptor::fix_hashes() || std::env::var(PRINTS_HASHES).is_err());
    let hash = |seed| format!("seed {seed}: hash {}", run(&Plan::of(seed)).chronicle.hash());
    COMPARED.map(hash).collect()
}

/// Returns the lines with hashes of an output, by seed.
fn hashes_in(output: &str) -> Vec<String> {
    let hashes = output.lines().filter_map(|line| Some(line[line.find("seed ")?..].to_owned()));
    let mut hashes: Vec<String> = hashes.filter(|line| line.contains(": hash ")).collect();
    let number = |line: &String| line[5..].split(':').next()?.parse::<u64>().ok();
    hashes.sort_by_key(number);
    hashes
}

/// Every event of `coverage` happens, too.
#[test]
fn no_seed_breaks_a_promise() {
    println!("{}", example(&["--seeds", SEEDS, "--complete"]));
}

/// Reserves of all ends happen, too.
#[test]
fn no_seed_of_retried_reserves_breaks_a_promise() {
    let output = example(&["--retries", "--seeds", RETRY_SEEDS]);
    println!("{output}");
    for end in ["admitted", "admitted by a retry", "denied", "denied by a retry"] {
        assert!(output.contains(&format!(" {end}\n")), "{end}: {output}");
    }
}

#[test]
fn no_seed_breaks_a_promise_in_a_debug_build() {
    let seeds: Vec<u64> = (0..CHECKED).chain(MISJUDGED).collect();
    let next = AtomicUsize::new(0);
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check(&run(&Plan::of(*seed)));
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

/// Replies and items are those that were recorded, too: a release runs next to the previous one.
/// With `TOLLGATE_GOLDEN=write` they are recorded instead; the next build of this test has them.
#[test]
fn memory_and_simulated_servers_decide_random_traces_alike() {
    tollgate::descriptor::fix_hashes();
    if std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
        let trails: String =
            (0..number_of_cases()).map(|seed| run_seed(seed).trail + "\n").collect();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kit/src/traces/trails.txt");
        std::fs::write(file, trails).unwrap();
        return;
    }
    let broken = (0..number_of_cases()).map(|seed| (seed, broken_by(seed)));
    let broken: Vec<_> = broken.filter(|(_, broken)| !broken.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_seed_is_the_same_history_in_any_process_time_zone_and_build() {
    if std::env::var(PRINTS_HASHES).is_ok() {
        println!("{}", hashes().join("\n"));
        return;
    }
    let other = |zone: &str| {
        let this = std::env::current_exe().unwrap();
        let name = "a_seed_is_the_same_history_in_any_process_time_zone_and_build";
        let output = std::process::Command::new(this)
            .args([name, "--exact", "--nocapture"])
            .env(PRINTS_HASHES, "1")
            .env("TZ", zone)
            .output()
            .unwrap();
        hashes_in(&String::from_utf8(output.stdout).unwrap())
    };
    let first = other("UTC");
    assert_eq!(first.len(), COMPARED.count());
    assert_eq!(first, other("Asia/Tokyo"));
    let seeds = format!("{}..{}", COMPARED.start, COMPARED.end);
    for threads in ["1", "3"] {
        let released = example(&["--seeds", &seeds, "--hashes", "--threads", threads]);
        assert_eq!(first, hashes_in(&released));
    }
}
