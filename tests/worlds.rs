//! A thousand simulated worlds, in a release build, which is eight times as fast as one for tests.

use crate::support::release::{cargo, release};
use crate::support::world::{COMPARED, hash_lines};

/// Seeds that a release build runs, which is eight times as fast as this one.
const SEEDS: &str = "0..1000";
/// Seeds of retried reserves.
const RETRY_SEEDS: &str = "0..500";

/// Runs the example in a release build, and returns its output.
fn example(arguments: &[&str]) -> String {
    release(&["run", "--example", "world", "--"], arguments)
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

/// The optimizer changes no history, nor do threads.
#[test]
fn a_seed_is_the_same_history_in_any_build() {
    let seeds = format!("{}..{}", COMPARED.start, COMPARED.end);
    let hashes = ["--seeds", &seeds, "--hashes", "--threads"];
    let debug = cargo()
        .args(["run", "--locked", "--example", "world", "--"])
        .args(hashes)
        .arg("2")
        .output();
    let first = hash_lines(&String::from_utf8(debug.unwrap().stdout).unwrap());
    assert_eq!(first.len(), COMPARED.count());
    for threads in ["1", "3"] {
        assert_eq!(first, hash_lines(&example(&[&hashes[..], &[threads]].concat())));
    }
}
