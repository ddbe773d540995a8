//! Guided adding: a new algorithm is a compile error at every place that has to know it.
//!
//! Adds variants to the enums in a copy of the project, checks it, and compares the files with
//! errors with those that CONTRIBUTING.md lists. A crate is checked once the crates below it
//! compile, so the arms that are missing in one are added as the compiler suggests, with `todo!()`.
//! This takes half a minute, since it shares the dependencies that clippy has checked before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::release;

/// Files with code for each algorithm, in the order of CONTRIBUTING.md.
const FILES: [&str; 13] = [
    "crates/core/src/algorithm/mod.rs",
    "crates/core/src/algorithm/state.rs",
    "crates/core/src/algorithm/amend.rs",
    "crates/core/src/algorithm/properties.rs",
    "crates/core/src/algorithm/hold/mod.rs",
    "crates/core/src/algorithm/write.rs",
    "crates/policy/src/compile/algorithm.rs",
    "crates/policy/src/compile/limit.rs",
    "crates/policy/src/explain.rs",
    "crates/store/src/redis/script/mod.rs",
    "crates/store/src/redis/script/encode.rs",
    "crates/store/src/redis/script/encode/cost.rs",
    "crates/verify/src/bound.rs",
];
/// Enums that get a variant: file, first line, and the variant.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("crates/core/src/algorithm/mod.rs", "pub enum Algorithm {", "Toy(FixedWindow),"),
    ("crates/core/src/algorithm/mod.rs", "enum AlgorithmState {", "Toy(fixed_window::State),"),
    (
        "crates/policy/src/document/written.rs",
        "    pub(crate) enum AlgorithmWord {",
        "Toy = \"toy\",",
    ),
];
/// Maximum number of checks: one for each crate that knows the algorithms. Cargo may stop at the
/// first crate with errors, also where two do not depend on each other.
const MAX_CHECKS: usize = 6;

#[test]
fn a_new_algorithm_is_a_compile_error_in_every_file_that_knows_the_algorithms() {
    let copy = copied();
    for (file, line, variant) in VARIANTS {
        let path = copy.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("\n{line}\n")), "no `{line}` in {file}");
        let text = text.replacen(&format!("\n{line}\n"), &format!("\n{line}\n{variant}\n"), 1);
        std::fs::write(path, text).unwrap();
    }
    let mut found = BTreeSet::new();
    let mut errors = check(&copy);
    for _ in 0..MAX_CHECKS {
        if errors.is_empty() {
            break;
        }
        let other = errors.iter().find(|error| error["code"]["code"] != "E0004");
        assert_eq!(other, None, "only missing arms");
        let files = errors.iter().flat_map(places).map(|(file, _)| file);
        let files: BTreeSet<String> = files.collect();
        found.extend(files);
        add_arms(&copy, &errors);
        errors = check(&copy);
    }
    assert_eq!(errors, [Value::Null; 0], "all arms are there");
    assert_eq!(found, FILES.map(str::to_owned).into());
}

#[test]
fn contributing_lists_the_files_of_an_algorithm() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    for file in FILES {
        let (_, name) = file.split_once("src/").unwrap();
        let is_listed = [name, file].iter().any(|path| text.contains(&format!("`{path}`")));
        assert!(is_listed, "{file}");
    }
}

/// Returns a folder with a copy of the code, and links to everything else.
///
/// The copy has another version. Otherwise cargo, which identifies the crates of a workspace by
/// their relative paths, would use those of the copy for the project itself: they share a target.
fn copied() -> PathBuf {
    const CODE: [&str; 2] = ["src", "crates"];
    const VERSIONS: [&str; 2] = ["Cargo.toml", "Cargo.lock"];
    const BUILD: &str = "build.rs";
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guided");
    let _ = std::fs::remove_dir_all(&copy);
    for folder in CODE {
        copy_folder(&root().join(folder), &copy.join(folder));
    }
    // Copied, since cargo does not see that a link leads to a changed file.
    std::fs::copy(root().join(BUILD), copy.join(BUILD)).unwrap();
    for file in VERSIONS {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        std::fs::write(copy.join(file), with_other_version(&text)).unwrap();
    }
    for entry in std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name();
        if name != "target"
            && !CODE.iter().chain(&VERSIONS).chain([&BUILD]).any(|copied| name == *copied)
        {
            std::os::unix::fs::symlink(entry.path(), copy.join(name)).unwrap();
        }
    }
    copy
}

/// Returns the root manifest, or the lock file, with another version of the crates in this project.
fn with_other_version(text: &str) -> String {
    let own = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let mut is_own = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let is_version = is_own && line == own || line.contains("{ path = ");
        let other = line.replace(&own, "version = \"0.0.0\"");
        lines.push(if is_version { other } else { line.to_owned() });
        is_own = ["[workspace.package]", "name = \"untested\""].contains(&line)
            || line.starts_with("name = \"tollgate");
    }
    assert_ne!(lines.join("\n"), text.trim_end());
    lines.join("\n")
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Checks the libraries in a folder, and returns the errors; none if all compile.
fn check(folder: &Path) -> Vec<Value> {
    let mut cargo = release::cargo();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    cargo.args(["check", "--locked", "--lib", "--message-format=json"]);
    let checked = cargo.env("CARGO_TARGET_DIR", target).current_dir(folder).output().unwrap();
    if checked.status.success() {
        return Vec::new();
    }
    let lines = checked.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let mut errors: Vec<Value> = messages
        .filter(|message| message["message"]["level"] == "error")
        .map(|mut message| message["message"].take())
        .collect();
    // The last one of a crate is a summary: "aborting due to 3 previous errors".
    errors.retain(|error| error["spans"].as_array().is_some_and(|spans| !spans.is_empty()));
    assert_ne!(errors, [Value::Null; 0], "{}", String::from_utf8_lossy(&checked.stderr));
    errors
}

/// Returns the files and ranges of the code that an error or a suggestion is for.
fn places(message: &Value) -> Vec<(String, Range<usize>)> {
    let at = |span: &Value, name: &str| usize::try_from(span[name].as_u64().unwrap()).unwrap();
    let spans = message["spans"].as_array().unwrap().iter();
    spans
        .filter(|span| span["is_primary"] == true)
        .map(|span| {
            let file = span["file_name"].as_str().unwrap().to_owned();
            (file, at(span, "byte_start")..at(span, "byte_end"))
        })
        .collect()
}

/// Adds the arms that the compiler suggests.
fn add_arms(folder: &Path, errors: &[Value]) {
    // Several errors in a macro suggest one arm. Arms are added from the last to the first of a
    // file, so that the positions of the others stay valid.
    let mut arms = BTreeMap::new();
    for suggestion in errors.iter().flat_map(|error| error["children"].as_array().unwrap()) {
        for (place, span) in
            places(suggestion).into_iter().zip(suggestion["spans"].as_array().unwrap())
        {
            if let Some(arm) = span["suggested_replacement"].as_str() {
                let (file, range) = place;
                arms.insert((file, range.start, range.end), arm.to_owned());
            }
        }
    }
    for ((file, start, end), arm) in arms.into_iter().rev() {
        let path = folder.join(file);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.replace_range(start..end, &arm);
        std::fs::write(path, text).unwrap();
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
