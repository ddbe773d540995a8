//! The tiers of tests: each file belongs to a target, each module has the row with its tools, CI
//! runs what the README prints, and no example of a documentation comment is left out.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, assert_none, files_in, project};

/// Targets beyond `cargo test`, and their roots.
const TARGETS: [(&str, &str); 3] =
    [("parts", "tests/parts.rs"), ("long", "tests/long.rs"), ("load", "tests/load/main.rs")];

fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap()
}

/// Returns the modules of a target: in its root, and as the rows of `tests/needs` name them.
fn modules(root: &str) -> BTreeSet<&str> {
    root.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect()
}

fn modules_with_rows<'a>(rows: &'a str, target: &str) -> BTreeSet<&'a str> {
    let names = rows.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(target)).then(|| words.next())?
    });
    names.filter_map(|name| name.split("::").next()).collect()
}

#[test]
fn every_module_with_real_parts_has_a_row_with_its_tools() {
    let rows = read("tests/needs");
    for (target, root) in TARGETS {
        assert_eq!(modules(&read(root)), modules_with_rows(&rows, target), "{target}");
    }
}

/// Returns the files that no other names as a module, and that are no root of a target.
fn orphans<'a>(files: &'a [File], roots: &[&str]) -> Vec<&'a str> {
    let is_named = |path: &str| {
        let path = Path::new(path);
        let is_folder = path.file_name().is_some_and(|name| name == "mod.rs");
        let module = if is_folder { path.parent().unwrap() } else { &path.with_extension("") };
        let name = module.file_stem().unwrap().to_str().unwrap();
        let folder = module.parent().unwrap();
        let declaration = format!("mod {name};");
        files
            .iter()
            .filter(|file| {
                let parent = Path::new(&file.path);
                let is_root = roots.contains(&&*file.path) && parent.parent() == Some(folder);
                is_root
                    || *parent == folder.join("mod.rs")
                    || *parent == folder.with_extension("rs")
            })
            .any(|file| file.text.lines().any(|line| line.ends_with(&declaration)))
    };
    let paths = files.iter().map(|file| &*file.path);
    paths.filter(|path| !roots.contains(path) && !is_named(path)).collect()
}

#[test]
fn every_file_belongs_to_a_target() {
    let files = files_in(&["src", "crates", "envoy/src", "tests"]);
    let is_root = |path: &&str| {
        let name = path.rsplit('/').next().unwrap();
        ["main.rs", "lib.rs", "build.rs"].contains(&name)
            || path.contains("/examples/")
            || ["tests/parts.rs", "tests/long.rs"].contains(path)
    };
    let roots: Vec<&str> = files.iter().map(|file| &*file.path).filter(is_root).collect();
    let orphans = orphans(&files, &roots);
    assert!(orphans.is_empty(), "compiled nowhere: {orphans:#?}");
}

#[test]
fn a_file_that_no_module_names_is_found() {
    let files = [
        ("tests/main.rs", "mod a;\npub mod b;\n"),
        ("tests/a/mod.rs", "mod c;\n"),
        ("tests/a/c.rs", ""),
        ("tests/a/d.rs", ""),
        ("tests/b.rs", "mod e {\n}\n"),
        ("tests/b/e.rs", ""),
        ("tests/c.rs", ""),
    ]
    .map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
    assert_eq!(orphans(&files, &["tests/main.rs"]), ["tests/a/d.rs", "tests/b/e.rs", "tests/c.rs"]);
}

#[test]
fn ci_runs_the_command_of_the_readme_and_then_the_rest() {
    let readme = read("README.md");
    let command = readme.lines().find_map(|line| line.strip_prefix("$ tests/")).unwrap();
    let ci = read(".ci/run");
    for step in [format!("step tests tests/{command}\n"), "step rest tests/run --rest\n".into()] {
        assert!(ci.contains(&step), "{step}");
    }
}

/// Returns the examples that rustdoc would run, of crates that have `doctest = false`.
fn examples<'a>(files: &'a [File], without_tests: &'a BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| without_tests.contains(crate_of(file))) {
        let mut is_open = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            let line = line.trim_start();
            let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
            let Some(info) = comment.and_then(|text| text.trim_start().strip_prefix("```")) else {
                continue;
            };
            is_open = !is_open;
            if is_open && ["", "rust", "no_run", "should_panic"].contains(&info.trim()) {
                found.push(format!(
                    "{}:{number}: an example that does not run: remove `doctest = false` from {}",
                    file.path,
                    crate_of(file)
                ));
            }
        }
    }
    found
}

fn crate_of(file: &File) -> &str {
    file.path.split("src/").next().unwrap_or_default()
}

#[test]
fn no_example_is_in_a_crate_whose_examples_are_not_run() {
    let files: Vec<File> = files_in(&["src", "crates"])
        .into_iter()
        .filter(|file| file.path.contains("src/"))
        .collect();
    let crates: BTreeSet<&str> = files.iter().map(crate_of).collect();
    let without_tests = crates.into_iter().filter(|path| {
        read(&format!("{path}Cargo.toml")).lines().any(|line| line.starts_with("doctest = false"))
    });
    let without_tests: BTreeSet<String> = without_tests.map(str::to_owned).collect();
    assert_none(&examples(&files, &without_tests));
}

#[test]
fn an_example_that_does_not_run_is_found() {
    let text = "/// A.\n///\n/// ```\n/// assert!(true);\n/// ```\n/// ```text\n/// a\n/// ```\n";
    let file = File { path: "crates/a/src/lib.rs".to_owned(), text: text.to_owned() };
    let found = examples(&[file], &BTreeSet::from(["crates/a/".to_owned()]));
    assert_eq!(
        found,
        [
            "crates/a/src/lib.rs:3: an example that does not run: remove `doctest = false` from crates/a/"
        ]
    );
}
