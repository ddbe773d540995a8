//! Startup of the process.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, command, output, quiet, stderr};

#[tokio::test]
async fn files_and_directories_are_served_together() {
    let policies = Policies::of(&daily("user", 5));
    policies.write("more/deep/other.yml", "domain: other\ndescriptors: []\n");
    policies.write("more/.hidden/broken.yaml", "domain: [");
    policies.write("more/notes.txt", "no policy");
    let file = policies.file("policy.yaml");
    let directory = policies.file("more");
    let service = Tollgate::serve_with(&file, &["--policy", directory.to_str().unwrap()]);
    let facts = crate::support::web::Web::new(service.admin).get("/policies").await.body;
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["domains"], serde_json::json!(["other", "test"]));
}

#[tokio::test]
async fn without_a_subcommand_it_serves() {
    let policies = Policies::of(&daily("user", 5));
    let mut plain = command(quiet(&[]));
    let mut process = crate::support::process::Process::start(
        "tollgate",
        plain.arg("--policy").arg(policies.path()),
    );
    process.wait_for_line("its address", |line| line.contains("listening").then_some(()));
}

#[test]
fn without_a_policy_it_serves_the_examples_if_they_exist() {
    let folder = Policies::none();
    folder.write("config/policies/limits.yaml", &daily("user", 5));
    let mut plain = command(quiet(&[]));
    let mut process =
        crate::support::process::Process::start("tollgate", plain.current_dir(folder.path()));
    // The path by which it was called: it may not be on the PATH.
    let hint = format!("try: {} hit 127.0.0.1:", env!("CARGO_BIN_EXE_tollgate"));
    process.wait_for_line("a command to try", |line| line.contains(&hint).then_some(()));
}

#[test]
fn a_mistyped_variable_is_logged() {
    let policies = Policies::of(&daily("user", 5));
    let mut plain = command(quiet(&["serve"]));
    plain.env("TOLLGATE_STORE_TIMEOUTT", "5s").env("TOLLGATE_SERVICE_HOST", "10.0.0.1");
    let mut process = crate::support::process::Process::start(
        "tollgate",
        plain.arg("--policy").arg(policies.path()),
    );
    process.wait_for_line("its address", |line| line.contains("listening").then_some(()));
    let log = process.log().join("\n");
    assert!(log.contains("did you mean `TOLLGATE_STORE_TIMEOUT`?"), "{log}");
    assert!(!log.contains("TOLLGATE_SERVICE_HOST"), "{log}");
}

#[test]
fn without_a_policy_or_examples_it_shows_how_to_set_one() {
    let folder = Policies::none();
    let ended = command(quiet(&[])).current_dir(folder.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("--policy"), "{}", stderr(&ended));
}

#[test]
fn an_invalid_value_of_a_variable_is_reported_with_its_name() {
    for (flag, variable, name) in [
        (None, "5", "--store-timeout (TOLLGATE_STORE_TIMEOUT)"),
        (Some("--store-timeout=5"), "5s", "--store-timeout"),
    ] {
        let mut serve = command(quiet(&["serve"]));
        let ended = serve.args(flag).env("TOLLGATE_STORE_TIMEOUT", variable).output().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        let found = stderr(&ended);
        assert!(found.contains(&format!("{name}: expected ")), "{found}");
    }
}

#[test]
fn all_invalid_flags_are_reported_together() {
    let ended = output([
        "serve",
        "--grpc-listen",
        "here",
        "--store",
        "ftp://x",
        "--drain-delay",
        "soon",
        "--memory-max",
        "lots",
    ]);
    assert_eq!(ended.status.code(), Some(1));
    for flag in ["--grpc-listen", "--store", "--drain-delay", "--memory-max"] {
        assert!(stderr(&ended).contains(flag), "{flag} is not in\n{}", stderr(&ended));
    }
}

#[test]
fn a_port_in_use_and_an_invalid_policy_are_reported_together() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let policies = Policies::of("domain: test\ndescriptors:\n  - kee: user\n");
    let flags = ["--grpc-listen", &address, "--http-listen", &address];
    let mut serve = command(["serve"]);
    let serve = serve.args(quiet(&flags)).args(flags).arg("--policy").arg(policies.path());
    let ended = serve.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    for part in ["--grpc-listen", "--http-listen", "policy.yaml", "kee"] {
        assert!(stderr(&ended).contains(part), "{part} is not in\n{}", stderr(&ended));
    }
}

#[test]
fn every_termination_signal_ends_the_process_with_exit_code_0() {
    let policies = Policies::of(&daily("user", 5));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut service = Tollgate::serve(policies.path());
        service.process.signal(signal);
        assert_eq!(service.process.wait_for_end().code(), Some(0), "{signal:?}");
    }
}
