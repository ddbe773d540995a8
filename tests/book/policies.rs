//! Every YAML of the book: the product checks policies, other files must be excerpts of files that
//! another test covers.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::envoy::binary;
use crate::support::fences::{self, Fence, PROGRAMS};
use crate::support::pages::{pages, readme};
use crate::support::root;
use crate::support::tollgate::command;

#[test]
fn every_policy_of_the_book_and_of_the_readme_is_valid() {
    let fences = pages().into_iter().chain([readme()]).flat_map(|page| fences::of(&page));
    let all: Vec<Fence> =
        fences.filter(|fence| fence.language == "yaml" && !fence.is("broken")).collect();
    let wrong: Vec<String> = all.iter().filter_map(|fence| mistakes(fence).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let checked = all.iter().filter(|fence| fence.value("of").is_none()).count();
    assert!(checked > 10, "only {checked}");
}

#[test]
fn every_program_of_the_book_is_an_excerpt_of_one_that_runs() {
    let all: Vec<Fence> = pages().into_iter().flat_map(|page| fences::of(&page)).collect();
    let programs = all.iter().filter(|fence| PROGRAMS.contains(&fence.language.as_str()));
    let check = |fence: &Fence| is_part_of(fence, fence.value("of").expect("a file of tests"));
    let wrong: Vec<String> = programs.filter_map(|fence| check(fence).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Checks a block, and returns its errors.
fn mistakes(fence: &Fence) -> Result<(), String> {
    if let Some(path) = fence.value("of") {
        return is_part_of(fence, path);
    }
    let scratch = TempDir::new().unwrap();
    for file in std::fs::read_dir(root().join("config/policies")).unwrap().map(|file| file.unwrap())
    {
        std::fs::copy(file.path(), scratch.path().join(file.file_name())).unwrap();
    }
    let begins = |word: &str| fence.text.lines().any(|line| line.starts_with(&format!("{word}:")));
    let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).unwrap();
    let run = |arguments: &[&str]| command(arguments).current_dir(scratch.path()).output().unwrap();
    let ended = if begins("tests") {
        write("shown.test.yaml", &fence.text);
        run(&["test", "shown.test.yaml"])
    } else if begins("overlay") {
        write("shown.yaml", &fence.text);
        run(&["check", "api-gateway.yaml", "--overlay", "shown.yaml"])
    } else if begins("domain") && !begins("time") {
        write("shown.yaml", &fence.text);
        run(&["check", "shown.yaml"])
    } else if begins("descriptors") {
        write("shown.yaml", &format!("domain: shown\n{}", fence.text));
        run(&["check", "shown.yaml"])
    } else if begins("static_resources") {
        write("shown.yaml", &fence.text);
        envoy_validates(&scratch.path().join("shown.yaml"))
    } else if fence.value("file").is_some() {
        // The following commands report its errors.
        return Ok(());
    } else {
        return Err(format!(
            "{}: neither a policy, an overlay nor tests: add its path (`of=PATH`)",
            fence.at
        ));
    };
    let output = [ended.stdout, ended.stderr].concat();
    if ended.status.success() {
        Ok(())
    } else {
        Err(format!("{}:\n{}", fence.at, String::from_utf8_lossy(&output)))
    }
}

fn envoy_validates(file: &Path) -> Output {
    Command::new(binary()).args(["--mode", "validate", "-c"]).arg(file).output().unwrap()
}

/// Checks that the lines occur in the file consecutively, regardless of indentation.
fn is_part_of(fence: &Fence, path: &str) -> Result<(), String> {
    let file = std::fs::read_to_string(root().join(path))
        .map_err(|error| format!("{}: {path}: {error}", fence.at))?;
    let lines: Vec<&str> = file.lines().map(str::trim).collect();
    let shown: Vec<&str> = fence.text.lines().map(str::trim).collect();
    if lines.windows(shown.len()).any(|part| part == shown) {
        return Ok(());
    }
    Err(format!("{}: these lines do not stand in {path}", fence.at))
}
