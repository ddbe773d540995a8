//! Every command of the book and of the README prints the output that is shown.
//!
//! The commands of a page run in order, in a scratch folder with `config`, `deploy` and `docs` of
//! the repository, and with the programs that the README builds and installs there.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::terminal::Terminal;
use crate::support::fences::{self, Fence};
use crate::support::pages::{Page, pages, readme};
use crate::support::{TEST_TIMEOUT, envoy, root};

/// Declares a test for each page, so that a failure names the page.
macro_rules! pages {
    ($($test:ident: $page:literal,)+) => {
        const TESTED: &[&str] = &[$($page),+];

        $(#[test]
        fn $test() {
            prints_what_it_shows($page);
        })+
    };
}

pages! {
    commands_of_the_readme: "../README.md",
    commands_of_counters: "counters.md",
    commands_of_envoy: "envoy.md",
    commands_of_envoy_gateway: "envoy-gateway.md",
    commands_of_gateways: "gateways.md",
    commands_of_holds: "holds.md",
    commands_of_inside: "inside.md",
    commands_of_istio: "istio.md",
    commands_of_kubernetes: "kubernetes.md",
    commands_of_loans: "loans.md",
    commands_of_matching: "matching.md",
    commands_of_migrating: "migrating.md",
    commands_of_promise: "promise.md",
    commands_of_rlqs: "rlqs.md",
    commands_of_rollout: "rollout.md",
    commands_of_token_budgets: "token-budgets.md",
    commands_of_the_tutorial: "tutorial.md",
    commands_of_verify: "verify.md",
}

#[test]
fn every_page_with_commands_is_tested() {
    let with_commands: BTreeSet<String> = pages()
        .into_iter()
        .chain([readme()])
        .filter(|page| fences::of(page).iter().any(is_run))
        .map(|page| page.name)
        .collect();
    assert_eq!(with_commands, TESTED.iter().map(|name| (*name).to_owned()).collect());
}

/// Asserts that the commands of a page print its output.
#[track_caller]
fn prints_what_it_shows(name: &str) {
    let page = pages().into_iter().chain([readme()]).find(|page| page.name == name).unwrap();
    let begun = hour();
    let mut wrong = differences(&page);
    // Counters of windows start anew at the end of an hour.
    if hour() != begun {
        wrong = differences(&page);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600
}

fn is_run(fence: &Fence) -> bool {
    fence.language == "console" && !fence.is("elsewhere")
}

/// Returns the commands of a page whose output differs from the page.
fn differences(page: &Page) -> Vec<String> {
    let scratch = scratch();
    let mut terminal = Terminal::open(&scratch.path().join("work"), &scratch.path().join("bin"));
    let mut wrong = Vec::new();
    for fence in fences::of(page) {
        if let Some(name) = fence.value("file") {
            let place = scratch.path().join("work").join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, &fence.text).unwrap();
        }
        let commands = if is_run(&fence) { commands(&fence) } else { Vec::new() };
        for (command, shown) in commands {
            if fence.stays() {
                terminal.begin(&command, fence.value("stays"), |output| {
                    is_as_shown(output, &format!("{shown}…\n"))
                });
                continue;
            }
            let begun = Instant::now();
            let (mut status, mut output) = terminal.run(&command);
            while fence.is("soon")
                && !is_as_shown(&output, &shown)
                && begun.elapsed() < TEST_TIMEOUT
            {
                (status, output) = terminal.run(&command);
            }
            // A failing command must print an error.
            if !is_as_shown(&output, &shown) || (output.is_empty() && status != 0) {
                wrong.push(format!(
                    "{}: $ {command}\n{output}(exit status {status}), and shown is\n{shown}",
                    fence.at
                ));
            }
        }
    }
    wrong
}

/// Returns the commands of a block, each with its expected output. `> ` continues a command.
fn commands(fence: &Fence) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in fence.text.lines() {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), commands.last_mut()) {
            (Some(command), _, _) => commands.push((command.to_owned(), String::new())),
            (None, Some(more), Some((command, shown))) if shown.is_empty() => {
                command.push('\n');
                command.push_str(more);
            }
            (None, _, Some((_, shown))) => {
                shown.push_str(line);
                shown.push('\n');
            }
            (None, _, None) => panic!("{}: `console` begins with `$ `", fence.at),
        }
    }
    commands
}

/// Compares line by line; `…` matches any text, and on a line of its own any lines.
fn is_as_shown(output: &str, shown: &str) -> bool {
    fn are(output: &[&str], shown: &[&str]) -> bool {
        match (output, shown) {
            (output, ["…", rest @ ..]) => {
                (0..=output.len()).any(|passed| are(&output[passed..], rest))
            }
            ([], []) => true,
            ([line, output @ ..], [wanted, shown @ ..]) => {
                is_line(line, wanted) && are(output, shown)
            }
            _ => false,
        }
    }
    are(&output.lines().collect::<Vec<_>>(), &shown.lines().collect::<Vec<_>>())
}

fn is_line(line: &str, wanted: &str) -> bool {
    let Some((begin, rest)) = wanted.split_once('…') else { return line == wanted };
    let Some(line) = line.strip_prefix(begin) else { return false };
    line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| is_line(&line[at..], rest))
}

/// Runs the binary as `cargo run --release` does. Its clock is stopped 26 s before the end of a
/// minute, so that all waits are as shown.
const CARGO: &str = r#"#!/bin/sh
[ "$*" = 'run --release' ] || exit 101
export LD_PRELOAD='/usr/$LIB/faketime/libfaketime.so.1' FAKETIME='2026-01-01 12:00:34' FAKETIME_DONT_FAKE_MONOTONIC=1
exec target/release/tollgate
"#;

/// Creates `work`, the working directory of commands, and `bin`, with the programs that they call
/// by name.
fn scratch() -> TempDir {
    let scratch = TempDir::new().unwrap();
    let at = |name: &str| scratch.path().join(name);
    ["bin", "work/target/release", "work/.venv/bin"]
        .iter()
        .for_each(|name| std::fs::create_dir_all(at(name)).unwrap());
    ["bin/tollgate", "bin/ratelimit", "work/target/release/tollgate"]
        .iter()
        .for_each(|name| symlink(env!("CARGO_BIN_EXE_tollgate"), at(name)).unwrap());
    ["bin/envoy", "work/.venv/bin/envoy"]
        .iter()
        .for_each(|name| symlink(envoy::binary(), at(name)).unwrap());
    let kubectl = root().join(".venv/bin/kubectl");
    symlink(kubectl, at("bin/kubectl")).unwrap();
    std::fs::write(at("bin/cargo"), CARGO).unwrap();
    std::fs::set_permissions(at("bin/cargo"), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["config", "deploy", "docs"] {
        let copied =
            Command::new("cp").arg("-r").arg(root().join(name)).arg(at("work")).status().unwrap();
        assert!(copied.success());
    }
    for entry in std::fs::read_dir(at("work/deploy/envoy")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            patient(&file);
        }
    }
    scratch
}

/// Extends Envoy's timeouts for busy machines: after them it decides without a response.
fn patient(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let text = ["timeout: 0.02s", "timeout: 0.25s", "timeout: 1s"]
        .iter()
        .fold(text, |text, short| text.replace(short, "timeout: 10s"));
    let text = ["max_interval: 0.02s", "max_interval: 1s"]
        .iter()
        .fold(text, |text, short| text.replace(short, "max_interval: 10s"));
    std::fs::write(file, text).unwrap();
}

/// A wait of whole minutes, such as `48m`, has no seconds.
#[test]
fn waits_are_shown_without_their_unit() {
    for page in pages().into_iter().chain([readme()]) {
        for fence in fences::of(&page).iter().filter(|fence| is_run(fence)) {
            let with_unit =
                fence.text.lines().find(|line| line.contains("in …s") || line.contains("after …s"));
            assert_eq!(with_unit, None, "{}", fence.at);
        }
    }
}

#[test]
fn placeholders_match_anything_and_other_text_matches_itself() {
    for (output, shown) in [
        ("a\nb\n", "a\nb\n"),
        ("in 26 s\n", "in … s\n"),
        ("a\n1\n2\nb\n", "a\n…\nb\n"),
        ("a\n", "a\n…\n"),
        ("x=1 y=2", "x=… y=…"),
    ] {
        assert!(is_as_shown(output, shown), "{output} is {shown}");
    }
    for (output, shown) in [
        ("a\nb\n", "a\n"),
        ("a\n", "a\nb\n"),
        ("in 26 m\n", "in … s\n"),
        ("a\n1\nc\n", "a\n…\nb\n"),
        ("ab", "a"),
    ] {
        assert!(!is_as_shown(output, shown), "{output} is not {shown}");
    }
}
