//! Dependencies between modules: those that the rows of [`ROWS`] permit, and no others.

use super::dependencies::{ROWS, Row};
use super::scan::Mention;
use super::{File, assert_none, code, place, project, scanned, source};

/// Language items with side effects or outside state: IO, other threads, the clock. All others may
/// be used freely.
pub(super) const OUTSIDE: [&str; 11] = [
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

#[test]
fn every_module_uses_only_what_its_row_permits() {
    assert_none(&forbidden(&code()));
}

#[test]
fn every_row_names_existing_paths_and_only_modules_of_rows_above() {
    let files = code();
    let uses = uses(&files);
    for (number, row) in ROWS.iter().enumerate() {
        assert!(
            files.iter().any(|file| is_within(&place(file), row.place)),
            "there is no module {}",
            row.place
        );
        for allowed in all([row.modules, row.crates]) {
            let is_it =
                |used: &&Use| is_within(&used.place, row.place) && covers(allowed, &used.path);
            assert!(
                uses.iter().any(|used| is_it(&used)),
                "{} may use {allowed}, and does not",
                row.place
            );
        }
        for module in all([row.modules]) {
            let is_above = ROWS[..number].iter().any(|above| above.place == first(module, "::"));
            assert!(is_above, "{} may use {module}, which has no row above", row.place);
        }
    }
}

#[test]
fn the_map_lists_every_module_in_the_order_of_the_rows() {
    let map = std::fs::read_to_string(project().join("src/lib.rs")).unwrap();
    let rows =
        ROWS.iter().filter(|row| !row.place.contains('/') && !["main", "lib"].contains(&row.place));
    let at = |row: &Row| {
        let line = |line: &str| {
            line.starts_with("//! | [") && line.contains(&format!("[`{}`]", row.place))
        };
        map.lines()
            .position(line)
            .unwrap_or_else(|| panic!("{} is not in the table of src/lib.rs", row.place))
    };
    assert!(
        rows.map(at).is_sorted(),
        "a module may use those above it: the rows and the map have the same order"
    );
}

#[test]
fn a_table_of_files_lists_every_file_of_its_folder_and_no_other() {
    let files = code();
    let mut found = Vec::new();
    let has_folder =
        |file: &&File| ["/mod.rs", "/lib.rs"].iter().any(|end| file.path.ends_with(end));
    for file in files.iter().filter(has_folder) {
        let listed = listed_files(&file.text);
        let folder = project().join(&file.path).with_file_name("");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let names = names.filter(|path| path.extension().is_none_or(|ending| ending == "rs"));
        let names = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
        let mut names: Vec<_> = names
            .filter(|name| !["mod", "lib", "tests", "laws", "lua"].contains(&&**name))
            .collect();
        names.sort_unstable();
        names.dedup();
        if !listed.is_empty() && listed != names {
            found.push(format!("{} lists {listed:?}, and its folder has {names:?}", file.path));
        }
    }
    assert_none(&found);
}

/// Returns the names in the first column of a table of files, sorted.
fn listed_files(text: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with("//! | file |")).skip(2);
    let cells = rows.map_while(|line| line.strip_prefix("//! | ")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut names: Vec<_> = names.map(|name| name.trim_end_matches(".rs").to_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_files_of_a_table_are_found() {
    let text = "//! A.\n//!\n//! | file | contents |\n//! |---|---|\n//! | [`b`], `a` | `c` |\n\nfn d() {}";
    assert_eq!(listed_files(text), ["a", "b"]);
    assert_eq!(listed_files("//! A.\n\nfn d() {}"), [""; 0]);
}

/// A use that a row has to allow.
struct Use {
    place: String,
    /// File and line.
    at: String,
    /// Path of the item, relative to the crate's root if it is in this crate.
    path: String,
    is_module: bool,
}

/// Returns the uses of other modules, crates and [`OUTSIDE`] in files, except in tests.
fn uses(files: &[File]) -> Vec<Use> {
    let crates = dependencies();
    let scans: Vec<_> = files.iter().map(|file| (file, place(file), scanned(file))).collect();
    let names = scans
        .iter()
        .flat_map(|(_, place, scan)| scan.test_modules.iter().map(move |name| (place, name)));
    let tests: Vec<String> = names.map(|(place, name)| format!("{place}/{name}")).collect();
    let mut uses = Vec::new();
    for (file, place, scan) in
        scans.iter().filter(|(_, place, _)| !tests.iter().any(|test| is_within(place, test)))
    {
        for Mention { line, path } in &scan.mentions {
            let inside = path.strip_prefix(&["crate".to_owned()]);
            let is_other = match inside {
                Some(path) => path.first().is_some_and(|module| module != first(place, "/")),
                None => crates.contains(&path[0]) || is_outside(&path.join("::")),
            };
            if is_other {
                let at = format!("{}:{line}", file.path);
                let path = inside.unwrap_or(path).join("::");
                uses.push(Use { place: place.clone(), at, path, is_module: inside.is_some() });
            }
        }
    }
    uses
}

/// Returns the uses that no row allows.
fn forbidden(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in
        files.iter().filter(|file| !ROWS.iter().any(|row| is_within(&place(file), row.place)))
    {
        found.push(format!(
            "{}: {} has no row in ROWS, tests/tidy/dependencies.rs",
            file.path,
            place(file)
        ));
    }
    for Use { place, at, path, is_module } in uses(files) {
        let rows = ROWS.iter().filter(|row| is_within(&place, row.place));
        let allowed = all(rows.map(|row| if is_module { row.modules } else { row.crates }));
        if !allowed.iter().any(|allowed| covers(allowed, &path)) {
            let kind = if is_module { "modules" } else { "crates and std" };
            let allowed = allowed.join(", ");
            found.push(format!("{at}: `{path}`, and of {kind} {place} may use: {allowed}"));
        }
    }
    found
}

#[test]
fn a_forbidden_dependency_is_reported_with_its_line_and_what_is_permitted() {
    let wrong = [
        ("algorithm/time", "use std::time::{Duration, SystemTime};", "std::time::SystemTime"),
        ("algorithm/judge", "use std::{fmt, time};", "std::time"),
        ("algorithm/judge", "pub async fn judge() {}", "async"),
        ("algorithm/judge", "#[derive(serde::Serialize)]\nstruct State;", "serde::Serialize"),
        (
            "algorithm/gcra",
            "fn now() -> u64 { jiff::Timestamp::now().into() }",
            "jiff::Timestamp::now",
        ),
        (
            "descriptor",
            "use crate::{\n    algorithm::time::Micros,\n    policy::{self, Rule},\n};",
            "policy",
        ),
        ("policy/mod", "use crate::telemetry::metrics::Metrics;", "telemetry::metrics::Metrics"),
        ("policy/matcher", "fn at(store: &impl super::super::store::Store) {}", "store::Store"),
        ("policy/compile/mod", "use granit_parser as yaml;", "granit_parser"),
        ("store/mod", "mod inner { use super::super::limiter::*; }", "limiter::*"),
        (
            "limiter/mod",
            "use crate::store::{Store, memory::MemoryStore};",
            "store::memory::MemoryStore",
        ),
        (
            "limiter/mod",
            "fn find() { assert!(crate::grpc::request::is_it()); }",
            "grpc::request::is_it",
        ),
        ("grpc/service", "fn read() { let home = ::std::env::var(\"HOME\"); }", "std::env::var"),
        ("admin/mod", "#[tonic::async_trait] impl Page {}", "tonic::async_trait"),
        ("telemetry/log", "#[arg(long, env = \"LOG\")] log: String", "std::env"),
        ("settings/mod", "use crate::app;", "app"),
        ("main", "use tollgate::grpc;", "grpc"),
    ];
    for (place, text, path) in wrong {
        let found = forbidden(&[source(place, text)]);
        assert!(found.len() == text.matches("Rule").count() + 1, "{place}: {text}\n{found:?}");
        assert!(found[0].contains(&format!("`{path}`, and ")), "{place}: {text}\n{found:?}");
    }
    let found = forbidden(&[source("policy/matcher", "\n\nuse crate::store::Store;")]);
    let expected = "src/policy/matcher.rs:3: `store::Store`, and of modules policy/matcher may use: algorithm, descriptor, printable, yaml";
    assert_eq!(found, [expected]);
    assert_eq!(
        forbidden(&[source("closet/mod", "")]),
        ["src/closet/mod.rs: closet has no row in ROWS, tests/tidy/dependencies.rs"]
    );
}

#[test]
fn permitted_dependencies_and_names_that_only_look_like_others_are_not_reported() {
    let right = [
        (
            "algorithm/mod",
            "//! As [`crate::store`].\n/* tokio::spawn */ const A: &str = \"crate::app::run\";",
        ),
        (
            "algorithm/calendar",
            "use jiff::tz::TimeZone; use smallvec::SmallVec; use super::time::Micros;",
        ),
        (
            "algorithm/mod",
            "#[cfg(test)]\nmod tests { use crate::store::Store; }\n#[cfg(test)] use tokio::spawn;",
        ),
        (
            "policy/source/files",
            "use std::{fs, io::{self, Read}}; use crate::policy::{Report, source};",
        ),
        ("admin/mod", "use axum::http; mod tonic; fn a() { http::get(); tonic::a() }"),
        (
            "limiter/mod",
            "use crate::store::{Check, Outcomes, Store, StoreError}; use std::time::Duration;",
        ),
        ("grpc/mod", "fn a() { let env = a(); if env == 1 {} }"),
    ];
    for (place, text) in right {
        assert_eq!(forbidden(&[source(place, text)]), [""; 0], "{place}: {text}");
    }
    let with_tests = [
        source("store/mod", "#[cfg(test)]\nmod laws;"),
        source("store/laws/deep", "use crate::app::run;"),
    ];
    assert_eq!(forbidden(&with_tests), [""; 0]);
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

/// Returns the dependencies that Cargo.toml declares for the workspace, as they are named in code.
fn dependencies() -> Vec<String> {
    let manifest = std::fs::read_to_string(project().join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_"))).collect()
}

fn first<'a>(path: &'a str, separator: &str) -> &'a str {
    path.split(separator).next().unwrap_or_default()
}
