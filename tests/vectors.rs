//! `tollgate replay` against recorded decisions by a model of the contract that shares no code with
//! this project.
//!
//! A folder has `policy.yaml`, `trace.jsonl` and `expected.jsonl`, which contains for each request
//! the overall code, and for each of its descriptors the code, the remaining hits, and the two
//! times in microseconds, or null. `TOLLGATE_VECTORS` may name an additional folder, or a folder of
//! such folders.
//!
//! The model keeps 32 levels of a bucket with holds, this project 128
//! (`crates/core/src/algorithm/marks.rs`, by whose laws it has a model of its own). So commits
//! with more than 32 open holds give back more here: see [`MORE_REMAINS`].

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::tollgate::output;

/// Maximum number of differences shown; the others are only counted.
const SHOWN: usize = 5;

/// The lines, counted from 1, at which more hits may remain than the model has, and the counter is
/// unused sooner. All else of them is compared.
const MORE_REMAINS: [(&str, &[RangeInclusive<usize>]); 2] =
    [("5", &[436..=449, 1154..=1164]), ("6", &[123..=135, 1288..=1295])];

#[test]
fn every_algorithm_agrees_with_the_first_vectors() {
    agrees(&ours("1"));
}

#[test]
fn every_algorithm_agrees_with_the_second_vectors() {
    agrees(&ours("2"));
}

#[test]
fn every_algorithm_agrees_with_the_third_vectors() {
    agrees(&ours("3"));
}

#[test]
fn holds_and_permits_agree_with_the_fourth_vectors() {
    agrees(&ours("4"));
}

#[test]
fn holds_and_permits_agree_with_the_fifth_vectors() {
    agrees(&ours("5"));
}

#[test]
fn holds_and_permits_agree_with_the_sixth_vectors() {
    agrees(&ours("6"));
}

#[test]
fn every_algorithm_agrees_with_vectors_from_the_environment() {
    let Some(named) = std::env::var_os("TOLLGATE_VECTORS").map(PathBuf::from) else { return };
    let folders = if named.join("policy.yaml").exists() { vec![named] } else { folders_in(&named) };
    assert!(!folders.is_empty(), "TOLLGATE_VECTORS names a folder without vectors");
    folders.iter().for_each(|folder| agrees(folder));
}

fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("policy.yaml").exists()).collect()
}

fn agrees(folder: &Path) {
    let file = |name: &str| folder.join(name).into_os_string();
    let replayed =
        output(["replay".into(), "--policy".into(), file("policy.yaml"), file("trace.jsonl")]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));

    let expected = lines(&std::fs::read(file("expected.jsonl")).unwrap());
    let found = lines(&replayed.stdout);
    assert!(!expected.is_empty());
    assert_eq!(found.len(), expected.len(), "a line out for each line in");
    let found: Vec<Value> = found.iter().map(as_expected).collect();
    let more_remains = |number: usize| {
        let lines = MORE_REMAINS.iter().find(|(name, _)| folder == ours(name));
        lines.is_some_and(|(_, lines)| lines.iter().any(|lines| lines.contains(&(number + 1))))
    };
    let differ = |number: &usize| {
        let found = &found[*number];
        let expected = &expected[*number];
        found != expected && !(more_remains(*number) && is_more(found, expected))
    };
    let wrong: Vec<usize> = (0..expected.len()).filter(differ).collect();
    let show = |number: &usize| {
        format!(
            "line {}:\n expected {}\n found    {}",
            number + 1,
            expected[*number],
            found[*number]
        )
    };
    let shown: Vec<String> = wrong.iter().take(SHOWN).map(show).collect();
    assert!(
        wrong.is_empty(),
        "{} lines of {} differ\n{}",
        wrong.len(),
        folder.display(),
        shown.join("\n")
    );
}

/// Returns `true` if lines differ only in hits that remain, and times until a counter is unused.
fn is_more(found: &Value, expected: &Value) -> bool {
    let numbers = |line: &Value, field: &str| -> Vec<Option<u64>> {
        line[field].as_array().unwrap().iter().map(Value::as_u64).collect()
    };
    let all = |field: &str, is_right: fn(u64, u64) -> bool| {
        let pairs = numbers(found, field).into_iter().zip(numbers(expected, field));
        numbers(found, field).len() == numbers(expected, field).len()
            && pairs.into_iter().all(|pair| match pair {
                (Some(found), Some(expected)) => is_right(found, expected),
                (found, expected) => found == expected,
            })
    };
    let without_numbers = |line: &Value| {
        let mut line = line.clone();
        line["remaining"].take();
        line["reset_after_us"].take();
        line
    };
    without_numbers(found) == without_numbers(expected)
        && all("remaining", |found, expected| found >= expected)
        && all("reset_after_us", |found, expected| found <= expected)
}

fn lines(text: &[u8]) -> Vec<Value> {
    std::str::from_utf8(text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Converts a line of `replay` to the format of `expected.jsonl`. Proto3 JSON omits zeros.
fn as_expected(line: &Value) -> Value {
    let no_statuses = vec![];
    let statuses = line["response"]["statuses"].as_array().unwrap_or(&no_statuses);
    let of_statuses = |field: &str, absent: Value| -> Vec<Value> {
        statuses.iter().map(|status| status.get(field).unwrap_or(&absent).clone()).collect()
    };
    let of_descriptors = |field: &str| -> Vec<Value> {
        line["descriptors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|descriptor| descriptor[field].clone())
            .collect()
    };
    json!({
        "overall": line["response"]["overallCode"],
        "codes": of_statuses("code", json!("UNKNOWN")),
        "remaining": of_statuses("limitRemaining", json!(0)),
        "retry_after_us": of_descriptors("retry_after_us"),
        "reset_after_us": of_descriptors("reset_after_us"),
    })
}
