//! `tests/MUTANTS.md` and the runner `tests/mutants`, held to the code: a survivor that is declared
//! equivalent is about a line that exists, and each area has files.
//!
//! No mutant is run here: a build of one crate beside the others costs a minute, and shows less.

use std::path::Path;

/// A row of the table of survivors.
struct Survivor<'a> {
    file: &'a str,
    line: &'a str,
}

/// Returns the survivors of the table: rows whose first cell is a file.
fn survivors(page: &str) -> Vec<Survivor<'_>> {
    let rows = page.lines().filter(|row| row.starts_with("| `"));
    let parsed = rows.filter_map(|row| {
        let mut codes = row.split('`').skip(1).step_by(2);
        Some(Survivor { file: codes.next()?, line: codes.next()? })
    });
    parsed.filter(|row| row.file.ends_with(".rs") || row.file.ends_with(".lua")).collect()
}

/// Returns the survivors whose line is in their file no more.
fn stale(page: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let rows = survivors(page).into_iter();
    let gone = rows.filter(|row| {
        let line = row.line.replace("\\|", "|");
        !read(row.file).lines().any(|found| found.trim() == line)
    });
    gone.map(|row| format!("{}: no line `{}`", row.file, row.line)).collect()
}

/// Returns the paths of areas in the runner that do not exist.
fn missing(runner: &str, root: &Path) -> Vec<String> {
    let paths = runner.split('"').filter(|text| {
        (text.starts_with("crates/") || text.starts_with("src/"))
            && !text.contains(char::is_whitespace)
    });
    let is_missing = |text: &&str| {
        let path = text.trim_end_matches("/**").trim_end_matches("/*.rs");
        !root.join(path).exists()
    };
    paths.filter(is_missing).map(str::to_owned).collect()
}

#[test]
fn recorded_survivors_and_areas_of_mutants_exist() {
    let root = super::project();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let page = read("tests/MUTANTS.md");
    assert!(!survivors(&page).is_empty());
    super::assert_none(&stale(&page, read));
    super::assert_none(&missing(&read("tests/mutants"), root));
}

#[test]
fn a_survivor_without_its_line_and_an_area_without_files_are_found() {
    let page = "| `a.rs` | `if x < 1 {` | `<` to `<=` | x is odd |\n| `a.rs` | `y` | `z` | no |\n";
    let read = |_: &str| "fn a() {\n    if x < 1 {\n".to_owned();
    assert_eq!(stale(page, read), ["a.rs: no line `y`"]);
    let runner = r#""core": (["crates/core/src/**", "crates/none/src/*.rs"], 1)"#;
    assert_eq!(missing(runner, super::project()), ["crates/none/src/*.rs"]);
}
