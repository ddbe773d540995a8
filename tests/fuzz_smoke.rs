//! The fuzz targets of `fuzz/` for a few seconds each, on inputs that are the same in every run.
//!
//! The targets of the transport, which are private to it, run in the unit tests of `src/transport/fuzz`.
//!
//! Case `n` is a seed with mutations that `n` alone decides. A case that fails is saved, and cargo-fuzz can go on from it; so
//! are the seeds of `request`, which are bytes: `cargo +nightly fuzz run request fuzz/corpus/request target/tmp/seeds`.

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::grpc::json;

use crate::support::random::Random;

/// As many cases as a quick machine has time for.
const CASES: u64 = 20_000;
/// Time for the cases of one target.
const TIME: Duration = Duration::from_secs(5);
/// Time that no input takes, however full the machine is.
const TOO_LONG: Duration = Duration::from_secs(20);
/// Requests of a trace that one seed has.
const REQUESTS: usize = 10;

#[test]
fn no_text_makes_policies_panic() {
    let files = [files_in("config/policies"), vectors("policy.yaml"), vec![root().join("fuzz/targets/request.yaml")]];
    let seeds: Vec<Vec<u8>> = files.concat().iter().map(|path| std::fs::read(path).unwrap()).collect();
    smoke("policy", &seeds, targets::policy::run);
}

#[test]
fn no_bytes_make_a_request_panic() {
    let seeds: Vec<Vec<u8>> = vectors("trace.jsonl").iter().flat_map(|path| requests(path)).collect();
    let folder = scratch().join("seeds");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed).unwrap();
    }
    smoke("request", &seeds, targets::request::run);
}

/// Runs a target on all seeds, then on mutations until the cases or the time are used up.
fn smoke(target: &str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    let begun = Instant::now();
    let mut number = 0;
    while number < seeds.len() as u64 || number < CASES && begun.elapsed() < TIME {
        let bytes = case(number, seeds);
        let case_begun = Instant::now();
        let is_passed = catch_unwind(|| run(&bytes)).is_ok();
        if !is_passed || case_begun.elapsed() > TOO_LONG {
            let saved = scratch().join(format!("{target}-{number}"));
            std::fs::write(&saved, &bytes).unwrap();
            let (text, took) = (String::from_utf8_lossy(&bytes), case_begun.elapsed());
            panic!("case {number} of `{target}` failed after {took:?}, it is saved as {}:\n{text}", saved.display());
        }
        number += 1;
    }
    println!("{number} cases in {:?}", begun.elapsed());
}

/// The seeds as they are, then one of them with up to eight mutations.
fn case(number: u64, seeds: &[Vec<u8>]) -> Vec<u8> {
    if let Some(seed) = usize::try_from(number).ok().and_then(|number| seeds.get(number)) {
        return seed.clone();
    }
    let mut random = Random(number);
    let mut bytes = random.one_of(seeds).clone();
    for _ in 0..=random.below(8) {
        let other = random.one_of(seeds);
        mutate(&mut bytes, other, &mut random);
    }
    bytes
}

/// Flips a bit, or removes, inserts or replaces a byte, a word or a line; what is put in is from `other`, a seed.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const PARTS: [fn(u8) -> bool; 3] = [|_| false, |byte| byte.is_ascii_alphanumeric(), |byte| byte != b'\n'];
    let part = random.one_of(&PARTS);
    let (here, there) = (span(random, bytes, part), span(random, other, part));
    match random.below(4) {
        0 => drop(bytes.drain(here)),
        1 => drop(bytes.splice(here.start..here.start, other[there].to_vec())),
        2 => drop(bytes.splice(here, other[there].to_vec())),
        _ => bytes[here].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
    }
}

/// A byte somewhere, and the bytes around it that belong to it.
fn span(random: &mut Random, bytes: &[u8], belongs: &fn(u8) -> bool) -> Range<usize> {
    let at = random.below(bytes.len());
    let around = |byte: &&u8| belongs(**byte);
    let before = bytes[..at].iter().rev().take_while(around).count();
    let after = bytes[at..].iter().skip(1).take_while(around).count();
    at - before..(at + 1 + after).min(bytes.len())
}

/// The requests of a trace, [`REQUESTS`] in each seed, as `fuzz/targets/request.rs` reads them.
fn requests(trace: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<Value> = text.lines().take(REQUESTS * 10).map(|line| serde_json::from_str(line).unwrap()).collect();
    let encode = |line: &Value| {
        let message = json::request(line["request"].clone()).unwrap();
        let mut length = Vec::new();
        prost::encode_length_delimiter(message.len(), &mut length).unwrap();
        // Half a second between two requests, more or less.
        [vec![19], length, message].concat()
    };
    lines.chunks(REQUESTS).map(|lines| lines.iter().flat_map(encode).collect()).collect()
}

fn vectors(file: &str) -> Vec<PathBuf> {
    files_in("tests/vectors").iter().map(|folder| folder.join(file)).collect()
}

fn files_in(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder that cargo makes for the tests.
fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}
