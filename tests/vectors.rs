//! `tollgate replay` against recorded decisions by a model of the contract that shares no code with
//! this project.
//!
//! `expected.jsonl` of a folder has for each request of `trace.jsonl` the overall code, and for
//! each of its descriptors the code, the remaining hits, and the two times in us, or null.
//! `TOLLGATE_VECTORS` may name another folder, or a folder of such folders.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::tollgate::output;
use crate::support::vectors::vectors;

/// Maximum number of differences shown; the others are only counted.
const SHOWN: usize = 5;

#[test]
fn every_algorithm_agrees_with_the_first_vectors() {
    agrees(vectors("1").path());
}

#[test]
fn every_algorithm_agrees_with_the_second_vectors() {
    agrees(vectors("2").path());
}

#[test]
fn every_algorithm_agrees_with_the_third_vectors() {
    agrees(vectors("3").path());
}

#[test]
fn holds_and_permits_agree_with_the_fourth_vectors() {
    agrees(vectors("4").path());
}

#[test]
fn holds_and_permits_agree_with_the_fifth_vectors() {
    agrees(vectors("5").path());
}

#[test]
fn holds_and_permits_agree_with_the_sixth_vectors() {
    agrees(vectors("6").path());
}

#[test]
fn every_algorithm_agrees_with_vectors_from_the_environment() {
    let first = vectors("1");
    let named = std::env::var_os("TOLLGATE_VECTORS");
    let named = named.map_or(first.path().to_owned(), PathBuf::from);
    let folders = if named.join("policy.yaml").exists() { vec![named] } else { folders_in(&named) };
    assert!(!folders.is_empty(), "TOLLGATE_VECTORS names a folder without vectors");
    folders.iter().for_each(|folder| agrees(folder));
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
    let differ = |number: &usize| found[*number] != expected[*number];
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
