//! Short runs of the targets in `fuzz/`, on deterministic inputs.
//!
//! Targets of module-private code run in unit tests: `crates/http2/src/fuzz`,
//! `crates/store/src/redis/fuzz`, `src/xds/fuzz.rs`.
//!
//! Case `n` is a seed with mutations derived from `n` alone. A failing case is saved for cargo-fuzz
//! to continue from, and so are the binary seeds of `request`:
//! `cargo +nightly fuzz run request fuzz/corpus/request target/tmp/seeds`.

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use tollgate::grpc::json;

use crate::support::TEST_TIMEOUT;
use crate::support::random::Random;
use crate::support::vectors::{NAMES, vectors};

/// Number of cases of a target, beyond its seeds.
const CASES: u64 = 2_000;
/// Number of a trace's requests in one seed.
const REQUESTS: usize = 10;

#[test]
fn no_text_makes_policies_panic() {
    let recorded = NAMES.map(vectors);
    let files = [
        files_in("config/policies"),
        recorded.iter().map(|folder| folder.path().join("policy.yaml")).collect(),
        vec![root().join("fuzz/targets/request.yaml")],
    ];
    let seeds: Vec<Vec<u8>> =
        files.concat().iter().map(|path| std::fs::read(path).unwrap()).collect();
    smoke("policy", &seeds, targets::policy::run);
}

#[test]
fn no_bytes_make_a_request_panic() {
    let seeds: Vec<Vec<u8>> = NAMES
        .map(vectors)
        .iter()
        .flat_map(|folder| requests(&folder.path().join("trace.jsonl")))
        .collect();
    let folder = scratch().join("seeds");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed).unwrap();
    }
    smoke("request", &seeds, targets::request::run);
}

#[test]
fn no_text_as_the_body_of_json_panics() {
    smoke("json", &seeds("json"), targets::json::run);
}

#[test]
fn every_parsed_key_name_is_written_back_unchanged() {
    smoke("key_text", &seeds("key_text"), targets::key_text::run);
}

#[test]
fn no_text_of_another_replica_makes_denials_panic() {
    smoke("shared_denials", &seeds("shared_denials"), targets::shared_denials::run);
}

/// Runs a target on all seeds, then on mutations of them.
fn smoke(target: &str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    for number in 0..seeds.len() as u64 + CASES {
        let bytes = case(number, seeds);
        let case_begun = Instant::now();
        let is_passed = catch_unwind(|| run(&bytes)).is_ok();
        if !is_passed || case_begun.elapsed() > TEST_TIMEOUT {
            let saved = scratch().join(format!("{target}-{number}"));
            std::fs::write(&saved, &bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let took = case_begun.elapsed();
            panic!(
                "case {number} of `{target}` failed after {took:?}, it is saved as {}:\n{text}",
                saved.display()
            );
        }
    }
}

/// Returns the seeds first, then a random seed with one to eight mutations.
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

/// Flips a bit, or removes, inserts or replaces a byte, a word or a line; inserted text is from
/// `other`, a seed.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const PARTS: [fn(u8) -> bool; 3] =
        [|_| false, |byte| byte.is_ascii_alphanumeric(), |byte| byte != b'\n'];
    let part = random.one_of(&PARTS);
    let here = span(random, bytes, part);
    let there = span(random, other, part);
    match random.below(4) {
        0 => drop(bytes.drain(here)),
        1 => drop(bytes.splice(here.start..here.start, other[there].to_vec())),
        2 => drop(bytes.splice(here, other[there].to_vec())),
        _ => bytes[here].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
    }
}

/// Returns the range of a random byte and its neighbors that satisfy `belongs`.
fn span(random: &mut Random, bytes: &[u8], belongs: &fn(u8) -> bool) -> Range<usize> {
    let at = random.below(bytes.len());
    let around = |byte: &&u8| belongs(**byte);
    let before = bytes[..at].iter().rev().take_while(around).count();
    let after = bytes[at..].iter().skip(1).take_while(around).count();
    at - before..(at + 1 + after).min(bytes.len())
}

/// Encodes the requests of a trace, [`REQUESTS`] per seed, in the format of
/// `fuzz/targets/request.rs`.
fn requests(trace: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<Value> =
        text.lines().take(REQUESTS * 10).map(|line| serde_json::from_str(line).unwrap()).collect();
    let encode = |line: &Value| {
        let message = json::request(line["request"].clone()).unwrap();
        let mut length = Vec::new();
        prost::encode_length_delimiter(message.len(), &mut length).unwrap();
        // Advances the clock by about half a second per request.
        [vec![19], length, message].concat()
    };
    lines.chunks(REQUESTS).map(|lines| lines.iter().flat_map(encode).collect()).collect()
}

/// Reads the seeds of a target from `fuzz/seeds`.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    files_in(&format!("fuzz/seeds/{target}"))
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn files_in(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns cargo's temporary folder for tests.
fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}
