//! Circles of files: files of a module that use one another, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, assert_none, code, place, scanned, source};

/// Uses between files, by the module of each.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_files_use_each_other_in_a_circle() {
    assert_none(&circles(&code()));
}

#[test]
fn a_circle_of_files_is_found() {
    let files = [
        source("store/a", "use super::b::B; use super::Store;"),
        source("store/b", "use crate::store::c; use super::d::D;"),
        source("store/c", "fn a() -> super::a::A {}"),
        source("store/d", "#[cfg(test)]\nmod tests { use crate::store::a; }"),
        source("store/mod", "use self::a::A;"),
    ];
    assert_eq!(circles(&files), ["store/a, store/b, store/c"]);
}

/// Returns the largest groups of files in which each uses each other one, directly or not. A file
/// and the modules above it may use each other, and tests may use anything.
fn circles(files: &[File]) -> Vec<String> {
    let uses = uses(files);
    let reached: BTreeMap<_, _> =
        uses.keys().map(|place| (place, reached_from(place, &uses))).collect();
    let mut groups = BTreeSet::new();
    for (place, from) in &reached {
        let group: Vec<&str> = from
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*place)))
            .map(String::as_str)
            .collect();
        if group.len() > 1 {
            groups.insert(group.join(", "));
        }
    }
    groups.into_iter().collect()
}

fn uses(files: &[File]) -> Uses {
    let scans: Vec<_> = files.iter().map(|file| (place(file), scanned(file))).collect();
    let places: BTreeSet<&str> = scans.iter().map(|(place, _)| place.as_str()).collect();
    let tests: Vec<String> = scans
        .iter()
        .flat_map(|(place, scan)| {
            scan.test_modules.iter().map(move |name| format!("{place}/{name}"))
        })
        .collect();
    let is_test = |place: &str| tests.iter().any(|test| is_above(test, place));
    let mut uses = Uses::new();
    for (place, scan) in scans.iter().filter(|(place, _)| !is_test(place)) {
        let inside = scan.mentions.iter().filter(|mention| mention.path[0] == "crate");
        let used = inside.filter_map(|mention| {
            let names = &mention.path[1..];
            let paths = (1..=names.len()).rev().map(|length| names[..length].join("/"));
            paths.into_iter().find(|path| places.contains(path.as_str()))
        });
        let others = used.filter(|used| !is_above(used, place) && !is_above(place, used));
        uses.insert(place.clone(), others.collect());
    }
    uses
}

fn reached_from(place: &str, uses: &Uses) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![place];
    while let Some(place) = next.pop() {
        for used in uses.get(place).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used);
            }
        }
    }
    reached
}

/// Returns `true` if a module is another one or contains it.
fn is_above(module: &str, place: &str) -> bool {
    place.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
