//! Enforced rules of the code base: dependencies between modules, maximum file length, a complete
//! module map.
//!
//! To give a module a new dependency, add it to its row in [`HOUSE`]; consider first whether it
//! belongs there.

mod comments;
mod house;
mod names;
mod scan;
mod statements;

use std::path::{Path, PathBuf};

use self::house::{HOUSE, Row};
use self::scan::{Mention, scan};
use self::statements::statements;

/// Language items with side effects or outside state: IO, other threads, the clock. All others may
/// be used freely.
const OUTSIDE: [&str; 11] = [
    "async",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];
/// Names without meaning, and two with another meaning in this project.
const NO_NAMES: [&str; 8] = ["utils", "common", "types", "helpers", "manager", "impl", "cache", "domain"];
/// Maximum lines per file.
const MAX_LINES: usize = 400;
/// Maximum number of tuple-packed `let`s in all files: those of true pairs.
const MAX_PACKED: usize = 10;
/// Folders with the Rust files of the project.
const ALL: [&str; 6] = ["src", "tests", "benches", "examples", "fuzz/fuzz_targets", "fuzz/targets"];

/// A file of the project: its path relative to the root, and its text.
struct File {
    path: String,
    text: String,
}

#[test]
fn every_room_uses_only_what_its_row_allows() {
    nothing(&strangers(&files_in(&["src"])));
}

#[test]
fn comments_begin_with_a_verb_or_noun_and_use_technical_terms() {
    let files = files_in(&["src", "tests", "benches", "examples"]);
    nothing(&files.iter().flat_map(|file| comments::faults(&file.path, &file.text)).collect::<Vec<_>>());
    nothing(&comments::frequent(files.iter().map(|file| file.text.as_str())));
}

#[test]
fn a_comment_that_begins_badly_is_wide_or_repeats_rare_words_is_found() {
    let text = format!("/// What it is.\nfn a() {{}}\n// {}\n/// Returns it.\n///\n/// Where it is.\n", "x".repeat(98));
    let found = comments::faults("a.rs", &text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(comments::faults("a.rs", "/// Returns it.\n/// That is all.\n"), Vec::<String>::new());
    assert_eq!(comments::frequent(["// Nobody said so.", "// Fine."].into_iter()).len(), 2);
}

#[test]
fn no_two_types_have_one_name() {
    let files = files_in(&["src"]);
    nothing(&names::repeated(files.iter().map(|file| (file.path.as_str(), file.text.as_str()))));
}

#[test]
fn a_name_of_two_types_is_found() {
    let files = [
        ("a.rs", "pub(super) struct Peer<'a>(u8);\n    type Output = Self;\n"),
        ("b.rs", "  enum Peer {\nstruct Flags;\n"),
    ];
    let found = names::repeated(files.into_iter().chain([("c.rs", "pub struct Flags {\n    type Output = u8;\n")]));
    assert_eq!(found, ["`Peer` is the name of several types: a.rs:1, b.rs:1"]);
}

#[test]
fn few_lets_pack_bindings_into_tuples_and_no_match_is_on_a_bool() {
    let mut packed = Vec::new();
    let mut bool_matches = Vec::new();
    for file in files_in(&ALL) {
        let found = statements(&file.path, &file.text);
        packed.extend(found.packed.iter().map(|line| format!("{}:{line}", file.path)));
        bool_matches.extend(found.bool_matches.iter().map(|line| format!("{}:{line}: a match on a bool", file.path)));
    }
    assert!(packed.len() <= MAX_PACKED, "{} lets, at most {MAX_PACKED}:\n{}", packed.len(), packed.join("\n"));
    nothing(&bool_matches);
}

#[test]
fn a_let_that_packs_bindings_and_a_match_on_a_bool_are_found() {
    let text = [
        "fn a() {",
        "    let (a, mut b): (u8, _) = (1, 2);",
        "    let (Some(a), _) = (a, b) else { return };",
        "    while let (Some(a), true) = (",
        "        a(1),",
        "        b,",
        "    ) && a > 1 {}",
        "    run(|| { match a { true => 1, false => 2 } });",
        "    match b { Some(_) if a => {} true if b => {} _ => {} }",
        // The right side returns a tuple, or is no tuple. The last `match` has no arm for a bool.
        "    let (a, b) = pair(1, 2);",
        "    let (a, b) = (1, 2).swap();",
        "    let (a, b) = (pair)(1);",
        "    let (a, b) = (pair(1, 2));",
        "    let a = match b { 1 => true, _ => false };",
        "}",
    ];
    let found = statements("a.rs", &text.join("\n"));
    assert_eq!(found.packed, [2, 3, 4]);
    assert_eq!(found.bool_matches, [8, 9]);
}

#[test]
fn every_row_is_of_a_place_and_allows_nothing_but_what_is_used_from_rooms_above() {
    let files = files_in(&["src"]);
    let uses = uses(&files);
    for (number, row) in HOUSE.iter().enumerate() {
        assert!(files.iter().any(|file| is_within(&place(file), row.place)), "there is no src/{}", row.place);
        for allowed in all([row.rooms, row.foreign]) {
            let is_it = |used: &&Use| is_within(&used.place, row.place) && covers(allowed, &used.path);
            assert!(uses.iter().any(|used| is_it(&used)), "{} may use {allowed}, and does not", row.place);
        }
        for room in all([row.rooms]) {
            let is_above = HOUSE[..number].iter().any(|above| above.place == first(room, "::"));
            assert!(is_above, "{} may use {room}, which has no row above", row.place);
        }
    }
}

#[test]
fn every_room_is_on_the_map_in_the_order_of_the_rows() {
    let map = std::fs::read_to_string(project().join("src/lib.rs")).unwrap();
    let rows = HOUSE.iter().filter(|row| !row.place.contains('/') && !["main", "lib"].contains(&row.place));
    let at = |row: &Row| {
        let line = |line: &str| line.starts_with("//! | [") && line.contains(&format!("[`{}`]", row.place));
        map.lines().position(line).unwrap_or_else(|| panic!("{} is not in the table of src/lib.rs", row.place))
    };
    assert!(rows.map(at).is_sorted(), "a room may use those above it: the rows and the map have the same order");
}

#[test]
fn every_file_is_short_and_has_a_header_and_a_meaningful_name() {
    nothing(&untidy(&files_in(&ALL)));
}

/// Code that depends on the algorithm is a `match` with an arm for each one, so that the compiler
/// finds all such code when an algorithm is added.
#[test]
fn no_code_checks_for_one_algorithm_without_naming_the_others() {
    let forms = ["let Algorithm::", "(), Algorithm::", ".algorithm, Algorithm::"];
    let is_test = |file: &File| ["tests", "laws"].iter().any(|part| place(file).contains(part));
    let mut found = Vec::new();
    for file in files_in(&["src"]).iter().filter(|file| !is_test(file)) {
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let asking = code.lines().enumerate().filter(|(_, line)| forms.iter().any(|form| line.contains(form)));
        found.extend(asking.map(|(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim())));
    }
    nothing(&found);
}

/// A use that a row has to allow.
struct Use {
    place: String,
    /// File and line.
    at: String,
    /// Path of the item, relative to the crate's root if it is in this crate.
    path: String,
    is_room: bool,
}

/// Returns the uses of other modules, crates and [`OUTSIDE`] in files, except in tests.
fn uses(files: &[File]) -> Vec<Use> {
    let crates = dependencies();
    let scans: Vec<_> = files.iter().map(|file| (file, place(file), scan(&file.text, &place(file)))).collect();
    let names = scans.iter().flat_map(|(_, place, scan)| scan.test_modules.iter().map(move |name| (place, name)));
    let tests: Vec<String> = names.map(|(place, name)| format!("{place}/{name}")).collect();
    let mut uses = Vec::new();
    for (file, place, scan) in scans.iter().filter(|(_, place, _)| !tests.iter().any(|test| is_within(place, test))) {
        for Mention { line, path } in &scan.mentions {
            let inside = path.strip_prefix(&["crate".to_owned()]);
            let is_other = match inside {
                Some(path) => path.first().is_some_and(|room| room != first(place, "/")),
                None => crates.contains(&path[0]) || is_outside(&path.join("::")),
            };
            if is_other {
                let at = format!("{}:{line}", file.path);
                let path = inside.unwrap_or(path).join("::");
                uses.push(Use { place: place.clone(), at, path, is_room: inside.is_some() });
            }
        }
    }
    uses
}

/// Returns the uses that no row allows.
fn strangers(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !HOUSE.iter().any(|row| is_within(&place(file), row.place))) {
        found.push(format!("{}: {} has no row in HOUSE, tests/tidy/house.rs", file.path, place(file)));
    }
    for Use { place, at, path, is_room } in uses(files) {
        let rows = HOUSE.iter().filter(|row| is_within(&place, row.place));
        let allowed = all(rows.map(|row| if is_room { row.rooms } else { row.foreign }));
        if !allowed.iter().any(|allowed| covers(allowed, &path)) {
            let kind = if is_room { "rooms" } else { "crates and std" };
            let allowed = allowed.join(", ");
            found.push(format!("{at}: `{path}`, and of {kind} {place} may use: {allowed}"));
        }
    }
    found
}

/// Returns violations of the rules for file length, header and name.
fn untidy(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for File { path, text } in files {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            found.push(format!("{path}: {lines} lines, and a file has at most {MAX_LINES}: it wants to be two"));
        }
        // A file of unit tests belongs to the module next to it, and needs no header.
        let is_unit_tests = path.starts_with("src/") && path.ends_with("/tests.rs");
        if !is_unit_tests && !text.starts_with("//! ") {
            found.push(format!("{path}:1: a file begins with `//!` and what it is for"));
        }
        let names = path.trim_end_matches(".rs").split('/');
        found
            .extend(names.filter(|name| NO_NAMES.contains(name)).map(|name| format!("{path}: `{name}` tells nothing")));
    }
    found
}

#[test]
fn a_room_that_reaches_out_is_told_with_its_line_and_what_it_may_use() {
    let wrong = [
        ("algorithm/time", "use std::time::{Duration, SystemTime};", "std::time::SystemTime"),
        ("algorithm/judge", "use std::{fmt, time};", "std::time"),
        ("algorithm/judge", "pub async fn judge() {}", "async"),
        ("algorithm/judge", "#[derive(serde::Serialize)]\nstruct State;", "serde::Serialize"),
        ("algorithm/gcra", "fn now() -> u64 { jiff::Timestamp::now().into() }", "jiff::Timestamp::now"),
        ("descriptor", "use crate::{\n    algorithm::time::Micros,\n    policy::{self, Rule},\n};", "policy"),
        ("policy/mod", "use crate::telemetry::metrics::Metrics;", "telemetry::metrics::Metrics"),
        ("policy/matcher", "fn at(store: &impl super::super::store::Store) {}", "store::Store"),
        ("policy/compile/mod", "use granit_parser as yaml;", "granit_parser"),
        ("store/mod", "mod inner { use super::super::limiter::*; }", "limiter::*"),
        ("limiter/mod", "use crate::store::{Store, memory::MemoryStore};", "store::memory::MemoryStore"),
        ("limiter/mod", "fn find() { assert!(crate::grpc::request::is_it()); }", "grpc::request::is_it"),
        ("grpc/service", "fn read() { let home = ::std::env::var(\"HOME\"); }", "std::env::var"),
        ("admin/mod", "#[tonic::async_trait] impl Page {}", "tonic::async_trait"),
        ("telemetry/log", "#[arg(long, env = \"LOG\")] log: String", "std::env"),
        ("settings/mod", "use crate::app;", "app"),
        ("main", "use tollgate::grpc;", "grpc"),
    ];
    for (place, text, path) in wrong {
        let found = strangers(&[source(place, text)]);
        assert!(found.len() == text.matches("Rule").count() + 1, "{place}: {text}\n{found:?}");
        assert!(found[0].contains(&format!("`{path}`, and ")), "{place}: {text}\n{found:?}");
    }
    let found = strangers(&[source("policy/matcher", "\n\nuse crate::store::Store;")]);
    let told = "src/policy/matcher.rs:3: `store::Store`, and of rooms policy/matcher may use: algorithm, descriptor, printable";
    assert_eq!(found, [told]);
    assert_eq!(
        strangers(&[source("cupboard/mod", "")]),
        ["src/cupboard/mod.rs: cupboard has no row in HOUSE, tests/tidy/house.rs"]
    );
}

#[test]
fn what_a_room_may_use_and_what_only_looks_like_more_is_not_told() {
    let right = [
        ("algorithm/mod", "//! As [`crate::store`].\n/* tokio::spawn */ const A: &str = \"crate::app::run\";"),
        ("algorithm/calendar", "use jiff::tz::TimeZone; use smallvec::SmallVec; use super::time::Micros;"),
        ("algorithm/mod", "#[cfg(test)]\nmod tests { use crate::store::Store; }\n#[cfg(test)] use tokio::spawn;"),
        ("policy/source/files", "use std::{fs, io::{self, Read}}; use crate::policy::{Report, source};"),
        ("admin/mod", "use axum::http; mod tonic; fn a() { http::get(); tonic::a() }"),
        ("limiter/mod", "use crate::store::{Check, Outcomes, Store, StoreError}; use std::time::Duration;"),
        ("grpc/mod", "fn a() { let env = a(); if env == 1 {} }"),
    ];
    for (place, text) in right {
        assert_eq!(strangers(&[source(place, text)]), [""; 0], "{place}: {text}");
    }
    let with_tests =
        [source("store/mod", "#[cfg(test)]\nmod laws;"), source("store/laws/deep", "use crate::app::run;")];
    assert_eq!(strangers(&with_tests), [""; 0]);
}

#[test]
fn an_untidy_file_is_found() {
    let long = source("store/mod", &format!("//! Long.{}", "\n".repeat(MAX_LINES + 1)));
    assert!(untidy(&[long])[0].starts_with("src/store/mod.rs: 401 lines"));
    assert!(untidy(&[source("store/mod", "use std::fmt;")])[0].starts_with("src/store/mod.rs:1: a file begins"));
    assert_eq!(untidy(&[source("store/utils", "//! Anything.")]), ["src/store/utils.rs: `utils` tells nothing"]);
    assert_eq!(untidy(&[source("limiter/tests", "use std::fmt;")]), [""; 0]);
}

fn nothing(found: &[String]) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn source(place: &str, text: &str) -> File {
    File { path: format!("src/{place}.rs"), text: text.to_owned() }
}

/// Returns the module of a file: `policy/source` for `src/policy/source/mod.rs`,
/// `policy/source/files` for `src/policy/source/files.rs`.
fn place(file: &File) -> String {
    let place = file.path.trim_start_matches("src/").trim_end_matches(".rs");
    place.trim_end_matches("/mod").to_owned()
}

fn first<'a>(path: &'a str, separator: &str) -> &'a str {
    path.split(separator).next().unwrap_or_default()
}

fn is_within(place: &str, above: &str) -> bool {
    place.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if `allowed` is `path` or one of its parents.
fn covers(allowed: &str, path: &str) -> bool {
    path.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns `true` if a path is in [`OUTSIDE`], or is a glob import of a parent of such a path.
fn is_outside(path: &str) -> bool {
    OUTSIDE.iter().any(|part| covers(part, path) || covers(path.trim_end_matches("::*"), part))
}

/// Returns the words of several lists.
fn all<'a>(lists: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    lists.into_iter().flat_map(str::split_whitespace).collect()
}

/// Returns the dependencies that Cargo.toml declares for `src`, as they are named in code.
fn dependencies() -> Vec<String> {
    let manifest = std::fs::read_to_string(project().join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_"))).collect()
}

fn files_in(folders: &[&str]) -> Vec<File> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| project().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
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
