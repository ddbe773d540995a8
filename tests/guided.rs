//! Guided adding: a new algorithm is a compile error at every place that has to know it.
//!
//! Adds variants to the enums in a copy of the crate, checks it, and compares the files with errors
//! with those that CONTRIBUTING.md lists. The check takes half a minute, since it shares the
//! dependencies that clippy has checked before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::release;

/// Files with code for each algorithm, in the order of CONTRIBUTING.md.
const FILES: [&str; 21] = [
    "src/algorithm/mod.rs",
    "src/algorithm/state.rs",
    "src/algorithm/amend.rs",
    "src/algorithm/lease.rs",
    "src/algorithm/hold/mod.rs",
    "src/algorithm/write.rs",
    "src/policy/document/written.rs",
    "src/policy/compile/options.rs",
    "src/policy/compile/limit.rs",
    "src/policy/compile/limit/extras.rs",
    "src/policy/compile/advice.rs",
    "src/policy/listing.rs",
    "src/policy/explain.rs",
    "src/limiter/recording.rs",
    "src/store/layer/deny_cache/limits.rs",
    "src/store/redis/script/mod.rs",
    "src/store/redis/script/encode.rs",
    "src/store/redis/script/encode/cost.rs",
    "src/store/redis/decide/fast_path.rs",
    "src/cli/migrate/page.rs",
    "src/verify/bound.rs",
];
/// Enums that get a variant: file, first line, and the variant.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("src/algorithm/mod.rs", "pub enum Algorithm {", "Toy(FixedWindow),"),
    ("src/algorithm/mod.rs", "enum AlgorithmState {", "Toy(fixed_window::State),"),
    (
        "src/policy/document/written.rs",
        "pub(in crate::policy) enum AlgorithmWord {",
        "/// A toy.\nToy,",
    ),
];

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
    let errors = check(&copy);
    let found: BTreeSet<&str> = errors
        .lines()
        .filter(|line| line.contains("error[E0004]"))
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(found, BTreeSet::from(FILES), "{errors}");
    let other = errors.lines().find(|line| line.contains("error[") && !line.contains("[E0004]"));
    assert_eq!(other, None, "only missing arms: {errors}");
}

#[test]
fn contributing_lists_the_files_of_an_algorithm() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    for file in FILES {
        assert!(text.contains(&format!("`{}`", file.trim_start_matches("src/"))), "{file}");
    }
}

/// Returns a folder with a copy of `src`, and links to everything else.
fn copied() -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guided");
    let _ = std::fs::remove_dir_all(&copy);
    copy_folder(&root().join("src"), &copy.join("src"));
    for entry in std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name();
        if !["src", "target"].iter().any(|own| name == *own) {
            std::os::unix::fs::symlink(entry.path(), copy.join(name)).unwrap();
        }
    }
    copy
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

/// Checks the crate in a folder, which does not compile, and returns the errors.
fn check(folder: &Path) -> String {
    let mut cargo = release::cargo();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    cargo.args(["check", "--locked", "--lib", "--message-format=short"]);
    let checked = cargo.env("CARGO_TARGET_DIR", target).current_dir(folder).output().unwrap();
    assert!(!checked.status.success(), "a variant without its arms compiles");
    String::from_utf8(checked.stderr).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
