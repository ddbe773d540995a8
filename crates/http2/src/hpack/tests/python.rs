//! Differential tests against Python's package hpack, in both directions, through the script
//! `tests/hpack/blocks.py`, which needs what `tests/run --all` installs. The crate h2 is the client
//! in the tests of `io`.
//!
//! Both sides exchange lines: `connection` begins a connection, `table BYTES` changes the maximum
//! size of its table, `block HEX NAME=VALUE,NAME=VALUE…` is a header block and its fields, with
//! names and values in hexadecimal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::collection::vec;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use super::laws::{sizes, write, written};
use super::{Decoder, Encoder, OwnedField, decode, hex};

const CONNECTIONS: usize = 20;
const BLOCKS: usize = 20;

#[test]
fn blocks_of_python_are_read_as_they_were_written() {
    let lines = run(&["write", &CONNECTIONS.to_string(), &BLOCKS.to_string()], "");
    let mut decoder = Decoder::new(4096);
    let mut blocks = 0;
    for line in lines.lines() {
        match line.split_once(' ') {
            None => decoder = Decoder::new(4096),
            Some((_, step)) => {
                let (block, fields) = step.split_once(' ').unwrap();
                assert_eq!(decode(&mut decoder, &hex(block)).unwrap().0, parse(fields), "{line}");
                blocks += 1;
            }
        }
    }
    assert_eq!(blocks, CONNECTIONS * BLOCKS);
}

#[test]
fn python_reads_our_blocks_as_they_were_written() {
    let mut runner = TestRunner::deterministic();
    let blocks = vec((vec(sizes(), 0..3), vec(written(), 1..8)), BLOCKS);
    let mut lines = String::new();
    for _ in 0..CONNECTIONS {
        lines.push_str("connection\n");
        let mut encoder = Encoder::new();
        for (sizes, fields) in blocks.new_tree(&mut runner).unwrap().current() {
            for size in sizes {
                encoder.set_max_table(size);
                writeln!(lines, "table {size}").unwrap();
            }
            let (block, list) = write(&mut encoder, fields);
            let list =
                list.iter().map(|(name, value)| format!("{}={}", digits(name), digits(value)));
            writeln!(lines, "block {} {}", digits(&block), list.collect::<Vec<_>>().join(","))
                .unwrap();
        }
    }
    assert_eq!(run(&["read"], &lines), format!("{} blocks\n", CONNECTIONS * BLOCKS));
}

/// Runs the script with the text as its standard input. Returns its output.
fn run(arguments: &[&str], input: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let python = root.join(".venv/bin/python");
    assert!(
        python.exists(),
        "this needs packages of Python: run `tests/run` once, which installs them in .venv"
    );
    let mut command = Command::new(python);
    command.arg(root.join("tests/hpack/blocks.py")).args(arguments);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The script writes nothing before it has read everything.
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn parse(fields: &str) -> Vec<OwnedField> {
    let pair =
        |pair: &str| pair.split_once('=').map(|(name, value)| (hex(name), hex(value))).unwrap();
    fields.split_terminator(',').map(pair).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
