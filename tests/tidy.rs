//! Enforced rules of the code base: dependencies between modules, maximum file length, a complete
//! module map.
//!
//! To give a module a new dependency, add it to its row in `ROWS`; consider first whether it
//! belongs there.

mod circles;
mod comments;
mod dependencies;
mod modules;
mod mutants;
mod names;
mod scan;
mod statements;
mod tiers;

use std::path::{Path, PathBuf};

use self::scan::{Scan, scan};
use self::statements::packed_lets;

/// Names without meaning, and two with another meaning in this project.
const NO_NAMES: [&str; 8] =
    ["utils", "common", "types", "helpers", "manager", "impl", "cache", "domain"];
/// Maximum lines per file.
const MAX_LINES: usize = 400;
/// Maximum number of tuple-packed `let`s in all files: those of true pairs.
const MAX_PACKED: usize = 10;
/// Folders with the Rust files of the project.
const ALL: [&str; 12] = [
    "src",
    "crates",
    "envoy/src",
    "tests",
    "benches",
    "examples",
    "fuzz/fuzz_targets",
    "fuzz/targets",
    "clients/rust/src",
    "clients/rust/tests",
    "clients/rust/benches",
    "clients/rust/examples",
];

/// A file of the project: its path relative to the root, and its text.
struct File {
    path: String,
    text: String,
}

#[test]
fn comments_begin_with_a_verb_or_noun_and_use_plain_words() {
    let files = files_in(&ALL);
    assert_none(
        &files.iter().flat_map(|file| comments::faults(&file.path, &file.text)).collect::<Vec<_>>(),
    );
    assert_none(&comments::frequent(files.iter().map(|file| file.text.as_str())));
    let others = files.iter().filter(|file| !file.path.starts_with("tests/tidy"));
    assert_none(
        &others.flat_map(|file| comments::banned(&file.path, &file.text)).collect::<Vec<_>>(),
    );
}

#[test]
fn a_comment_that_begins_badly_is_wide_or_repeats_rare_words_is_found() {
    let text = format!(
        "/// What it is.\nfn a() {{}}\n// {}\n/// Returns it.\n///\n/// Where it is.\n",
        "x".repeat(98)
    );
    let found = comments::faults("a.rs", &text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(
        comments::faults("a.rs", "/// Returns it.\n/// That is all.\n"),
        Vec::<String>::new()
    );
    assert_eq!(comments::frequent(["// It says where.", "// Fine."].into_iter()).len(), 2);
    let banned = comments::banned("a.rs", "fn told_all() {}\n// Nobody is bold\nlet folded = 1;\n");
    assert_eq!(banned.len(), 2, "{banned:?}");
}

#[test]
fn no_two_types_have_one_name() {
    let files = code();
    assert_none(&names::repeated(
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())),
    ));
}

#[test]
fn a_name_of_two_types_is_found() {
    let files = [
        ("a.rs", "pub(super) struct Peer<'a>(u8);\n    type Output = Self;\n"),
        ("b.rs", "  enum Peer {\nstruct Flags;\n"),
    ];
    let found = names::repeated(
        files.into_iter().chain([("c.rs", "pub struct Flags {\n    type Output = u8;\n")]),
    );
    assert_eq!(found, ["`Peer` is the name of several types: a.rs:1, b.rs:1"]);
}

#[test]
fn few_lets_pack_bindings_into_tuples() {
    let mut packed = Vec::new();
    for file in files_in(&ALL) {
        let lines = packed_lets(&file.path, &file.text).into_iter();
        packed.extend(lines.map(|line| format!("{}:{line}", file.path)));
    }
    assert!(
        packed.len() <= MAX_PACKED,
        "{} lets, at most {MAX_PACKED}:\n{}",
        packed.len(),
        packed.join("\n")
    );
}

#[test]
fn a_let_that_packs_bindings_is_found() {
    let text = [
        "fn a() {",
        "    let (a, mut b): (u8, _) = (1, 2);",
        "    let (Some(a), _) = (a, b) else { return };",
        "    while let (Some(a), true) = (",
        "        a(1),",
        "        b,",
        "    ) && a > 1 {}",
        // The right side returns a tuple, or is no tuple.
        "    let (a, b) = pair(1, 2);",
        "    let (a, b) = (1, 2).swap();",
        "    let (a, b) = (pair)(1);",
        "    let (a, b) = (pair(1, 2));",
        "}",
    ];
    assert_eq!(packed_lets("a.rs", &text.join("\n")), [2, 3, 4]);
}

#[test]
fn every_file_is_short_and_has_a_header_and_a_meaningful_name() {
    assert_none(&untidy(&files_in(&ALL)));
}

/// Code that depends on the algorithm is a `match` with an arm for each one, so that the compiler
/// finds all such code when an algorithm is added.
#[test]
fn no_code_checks_for_one_algorithm_without_naming_the_others() {
    let forms = ["let Algorithm::", "(), Algorithm::", "algorithm, Algorithm::"];
    let is_test = |file: &File| ["tests", "laws"].iter().any(|part| place(file).contains(part));
    let mut found = Vec::new();
    for file in code().iter().filter(|file| !is_test(file)) {
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let asking = code
            .lines()
            .enumerate()
            .filter(|(_, line)| forms.iter().any(|form| line.contains(form)));
        found.extend(
            asking.map(|(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim())),
        );
    }
    assert_none(&found);
}

/// Returns violations of the rules for file length, header and name.
fn untidy(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for File { path, text } in files {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            found.push(format!(
                "{path}: {lines} lines, and a file has at most {MAX_LINES}: split it"
            ));
        }
        // A file of unit tests belongs to the module next to it, and needs no header.
        let is_unit_tests = path.contains("src/") && path.ends_with("/tests.rs");
        if !is_unit_tests && !text.starts_with("//! ") {
            found.push(format!("{path}:1: a file begins with `//!` and what it is for"));
        }
        let names = path.trim_end_matches(".rs").split('/');
        found.extend(
            names
                .filter(|name| NO_NAMES.contains(name))
                .map(|name| format!("{path}: `{name}` has no meaning")),
        );
    }
    found
}

#[test]
fn an_untidy_file_is_found() {
    let long = source("store/mod", &format!("//! Long.{}", "\n".repeat(MAX_LINES + 1)));
    assert!(untidy(&[long])[0].starts_with("src/store/mod.rs: 401 lines"));
    assert!(
        untidy(&[source("store/mod", "use std::fmt;")])[0]
            .starts_with("src/store/mod.rs:1: a file begins")
    );
    assert_eq!(
        untidy(&[source("store/utils", "//! Anything.")]),
        ["src/store/utils.rs: `utils` has no meaning"]
    );
    assert_eq!(untidy(&[source("limiter/tests", "use std::fmt;")]), [""; 0]);
}

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn source(place: &str, text: &str) -> File {
    File { path: format!("src/{place}.rs"), text: text.to_owned() }
}

/// Returns the module of a file, as the root package names it: `grpc/call` for
/// `src/grpc/call/mod.rs`, `algorithm/time` for `crates/core/src/algorithm/time.rs`, and
/// `yaml/report` for `crates/yaml/src/report.rs`.
fn place(file: &File) -> String {
    let (_, path) = file.path.split_once("src/").unwrap_or_default();
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    match crate_module(file) {
        "" => path.to_owned(),
        module if path == "lib" => module.to_owned(),
        module => format!("{module}/{path}"),
    }
}

/// Returns the module of the root package that is the crate of a file; empty for the root package,
/// and for the crates of which it exports each module.
fn crate_module(file: &File) -> &str {
    let name = file.path.strip_prefix("crates/").and_then(|path| path.split('/').next());
    name.filter(|name| !["core", "files"].contains(name)).unwrap_or_default()
}

fn scanned(file: &File) -> Scan {
    scan(&file.text, &place(file), crate_module(file))
}

/// Returns the files with the code of the root package and of the crates, with their unit tests.
fn code() -> Vec<File> {
    let mut files = files_in(&["src", "crates"]);
    files.retain(|file| file.path.contains("src/"));
    files
}

fn files_in(folders: &[&str]) -> Vec<File> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| project().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                // A compiler has written what is in `generated`.
                folders.extend((!entry.ends_with("generated")).then_some(entry));
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let path = entry.strip_prefix(project()).unwrap().to_str().unwrap().to_owned();
                files.push(File { path, text: std::fs::read_to_string(entry).unwrap() });
            }
        }
    }
    files
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
