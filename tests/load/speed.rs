//! Performance regressions: instructions per decision, which no other load changes.
//!
//! The example is built with `[profile.release]`, by `tests/run` beforehand.

use std::process::Command;

use crate::support::release::{artifact, release};

/// Maximum instructions per in-memory decision, by subject of `examples/instructions.rs`: about
/// 5 % above the current count, for Rust 1.95 on x86-64. Lower the bound when a decision becomes
/// cheaper. If it has to become more expensive, raise the bound in the same commit and explain why.
/// The test prints the counts: `cargo test --test load speed:: -- --nocapture`.
const MOST_INSTRUCTIONS: [(&str, u64, [u64; 2]); 6] = [
    ("one", 11_000, DECISIONS),
    ("three", 26_300, DECISIONS),
    ("sliding", 11_300, DECISIONS),
    ("gcra", 10_300, DECISIONS),
    // A value of 60 KB: half of the cost is the hash of the counter's key. Matching 1,000 patterns
    // one by one took 98 ms.
    ("patterns", 9_800_000, [1, 51]),
    // 960 counters and 64,000 entries: comparing all pairs took about 20 times as much.
    ("wide", 52_000_000, [1, 6]),
];
/// Decisions in the two runs whose difference is measured.
const DECISIONS: [u64; 2] = [1_000, 11_000];

#[test]
fn a_decision_takes_no_more_instructions_than_it_did() {
    release(&["build", "--example", "instructions"], &[]);
    let mut exceeded = Vec::new();
    for (subject, most, decisions) in MOST_INSTRUCTIONS {
        let [few, many] = decisions.map(|count| instructions(subject, count));
        let each = (many - few) / (decisions[1] - decisions[0]);
        println!("{subject}: {each} instructions, at most {most}");
        if each > most {
            exceeded.push(format!("{subject}: {each} instructions, at most {most}"));
        }
    }
    assert!(exceeded.is_empty(), "\n{}\n", exceeded.join("\n"));
}

/// Returns the instructions of a run with this subject, counted by valgrind.
fn instructions(subject: &str, count: u64) -> u64 {
    let program = artifact("examples/instructions");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&program)
        .args([subject, &count.to_string()]);
    let ended = valgrind.output().expect("tests/run installs valgrind");
    let text = String::from_utf8_lossy(&ended.stderr);
    let counted =
        text.lines().find_map(|line| line.rsplit_once("Collected : ")?.1.trim().parse().ok());
    counted.unwrap_or_else(|| panic!("{} {subject}: {}\n{text}", program.display(), ended.status))
}
