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
mod features;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate_testkit::traces::simulated::{broken_by, number_of_cases, run_seed};
use tollgate_testkit::world;

use world::COMPARED;
use world::checker::check;
use world::plan::Plan;
use world::run::run;

/// Number of seeds that run with checks of overflow and debug assertions.
const CHECKED: u64 = 60;
/// Seeds in which the checker found a break that was none. 9558: returns of proxies to a counter by
/// gcra, each without the hits that may have drained meanwhile.
const MISJUDGED: [u64; 1] = [9558];
/// Set in the other process.
const PRINTS_HASHES: &str = "TOLLGATE_WORLD_PRINTS_HASHES";

/// Returns the hash of each compared seed.
fn hashes() -> Vec<String> {
    assert!(tollgate::descriptor::fix_hashes() || std::env::var(PRINTS_HASHES).is_err());
    let hash = |seed| format!("seed {seed}: hash {}", run(&Plan::of(seed)).chronicle.hash());
    COMPARED.map(hash).collect()
}

/// Runs `check` on every item, on two threads, and returns what it found.
fn found_in<T: Sync>(items: &[T], check: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                tollgate::descriptor::fix_hashes();
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let more = check(item);
                    found.lock().extend(more);
                }
            });
        }
    });
    found.into_inner()
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds: Vec<u64> = (0..CHECKED).chain(MISJUDGED).collect();
    let broken = found_in(&seeds, |seed| {
        let found = check(&run(&Plan::of(*seed)));
        found.into_iter().map(|text| format!("seed {seed}: {text}")).collect()
    });
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
    let cases: Vec<_> = (0..number_of_cases()).collect();
    let broken = found_in(&cases, |case| {
        broken_by(*case).into_iter().map(|text| format!("case {case}: {text}")).collect()
    });
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_seed_is_the_same_history_in_any_process_and_time_zone() {
    if std::env::var(PRINTS_HASHES).is_ok() {
        println!("{}", hashes().join("\n"));
        return;
    }
    let other = |zone: &str| {
        let this = std::env::current_exe().unwrap();
        let name = "a_seed_is_the_same_history_in_any_process_and_time_zone";
        let output = std::process::Command::new(this)
            .args([name, "--exact", "--nocapture"])
            .env(PRINTS_HASHES, "1")
            .env("TZ", zone)
            .output()
            .unwrap();
        world::hash_lines(&String::from_utf8(output.stdout).unwrap())
    };
    let first = other("UTC");
    assert_eq!(first.len(), COMPARED.count());
    assert_eq!(first, other("Asia/Tokyo"));
}
