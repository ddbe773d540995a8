//! The clients of `docs/holds.md`: they reserve an estimate, and commit or cancel.

use std::process::Command;
use std::time::Duration;

use super::results;
use crate::support::eventually;
use crate::support::policy::Policies;
use crate::support::process::Process;
use crate::support::root;
use crate::support::tollgate::Tollgate;

const POLICY: &str = "
domain: llm
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000, hold: { ttl: 10m } }
";
/// Timeout of a program on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// An estimate of each request and their costs; work without a cost fails.
const WORK: [&str; 6] = ["a", "600", "300", "fails", "400", "1"];

fn run(command: &mut Command, target: &str) -> Vec<String> {
    let mut client = Process::start("holds", command.arg(target).args(WORK));
    eventually("the client ends", LIMIT, || (!client.is_running()).then_some(()));
    results(&client.final_log())
}

#[test]
fn the_python_client_of_the_book_reserves_commits_and_cancels() {
    let service = Tollgate::serve(Policies::of(POLICY).path());
    let mut python = Command::new(root().join(".venv/bin/python"));
    let python = python.arg(root().join("tests/clients/python/holds.py"));
    assert_eq!(run(python, &service.grpc.to_string()), ["700", "failed", "300", "None"]);
}

#[test]
fn the_go_client_of_the_book_reserves_commits_and_cancels() {
    let service = Tollgate::serve(Policies::of(POLICY).path());
    let mut go = Command::new(root().join("target/go-tools/holds"));
    let found = run(&mut go, &format!("http://{}", service.http));
    assert_eq!(found, ["admitted", "failed", "admitted", "denied"]);
}
