//! The subcommands that query a running service.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::grpc::proto::RateLimitRequest;

use super::{READER, WRITER, guarded};
use crate::support::certificates::{Authority, files};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, command, output, stderr, stdout};

#[tokio::test]
async fn denials_and_top_list_denied_callers() {
    let service = Tollgate::serve(Policies::of(&daily("user", 1)).path());
    let client = Client::connect(service.grpc).await;
    for _ in 0..4 {
        client.hit("user", "ann\u{1b}[2J").await;
    }
    let admin = format!("http://{}", service.admin);
    let output = run(&["denials", "--admin", &admin, "--key", "user=ann", "--last", "10m"]);
    assert_eq!(output.status.code(), Some(0));
    let line = stdout(&output).lines().nth(1).unwrap().to_owned();
    let words: Vec<&str> = line.split_whitespace().skip(2).take(4).collect();
    assert_eq!(words, ["3", "test", "user", r"user=ann\u{1b}[2J"], "{line}");
    assert!(line.contains("retry at"), "{line}");
    let none = run(&["denials", "--admin", &admin, "--key", "user=bob"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        stdout(&none).starts_with(&format!("no denials found at {admin}; recorded since")),
        "{none:?}"
    );
    assert!(stdout(&none).contains(" UTC by this replica only"), "{none:?}");
    for (flags, reason) in [
        (["--domain", "shop"], "no policy for domain `shop` (domains: test)"),
        (["--rule", "plan"], "no rule `plan` (rules with a limit: user)"),
        (["--until", "2020-01-01T00:00:00Z"], "denials are kept for 15 minutes (now "),
        (["--since", "2100-01-01T00:00:00Z"], "is in the future (now "),
    ] {
        let refused = run(&[&["denials", "--admin", &admin], &flags[..]].concat());
        assert!(
            refused.status.code() == Some(2) && stderr(&refused).contains(reason),
            "{refused:?}"
        );
    }
    let json: Value =
        serde_json::from_str(&stdout(&run(&["denials", "--admin", &admin, "--json"]))).unwrap();
    assert_eq!(json["denials"][0]["count"], 3);
    let top = stdout(&run(&["top", "--once", "--admin", &admin, "--order", "policy"]));
    assert!(
        top.contains("ready") && top.contains("1 hit in 1d") && top.contains("user=ann"),
        "{top}"
    );
    let json: Value =
        serde_json::from_str(&stdout(&run(&["top", "--json", "--admin", &admin]))).unwrap();
    assert_eq!(
        (&json["top"]["denials"][0]["count"], &json["rules"]["total"]),
        (&3.into(), &1.into())
    );
}

#[test]
fn explain_asks_the_service_unless_files_are_given() {
    let service = Tollgate::serve(Policies::of(&daily("user", 7)).path());
    let admin = format!("http://{}", service.admin);
    let in_force = run(&["explain", "--admin", &admin, "test", "user=ann"]);
    assert_eq!(in_force.status.code(), Some(0), "{in_force:?}");
    for part in [&*format!("policies in force at {admin}, version "), "key only user: yes", "7 hit"]
    {
        assert!(stdout(&in_force).contains(part), "{part} is not in\n{}", stdout(&in_force));
    }
    let unmatched = run(&["explain", "--admin", &admin, "test", "plan=free"]);
    assert_eq!(unmatched.status.code(), Some(1), "{unmatched:?}");
    let files = Policies::of(&daily("user", 5));
    let path = files.path().to_str().unwrap();
    let by_files = run(&["explain", "--admin", &admin, "--policy", path, "test", "user=ann"]);
    assert!(stdout(&by_files).contains("5 hit"), "{by_files:?}");
    assert!(!stdout(&by_files).contains("in force"), "{by_files:?}");
    let down = run(&["explain", "--admin", "http://127.0.0.1:1", "test", "user=ann"]);
    assert_eq!(down.status.code(), Some(2));
    for part in ["--admin http://127.0.0.1:1: ", "to read policy files instead: --policy PATH"] {
        assert!(stderr(&down).contains(part), "{down:?}");
    }
}

#[tokio::test]
async fn invisible_characters_are_escaped_in_tables_and_in_json() {
    let policy = "domain: \"te\\u202est\"\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 0, unit: day, record: [path] }\n";
    let service = Tollgate::serve(Policies::of(policy).path());
    let descriptors = vec![
        descriptor(&[("user", "ann\u{202e}nimda")]),
        descriptor(&[("path", "/\u{2028}\u{9b}2J")]),
    ];
    let hidden = RateLimitRequest { domain: "te\u{202e}st".to_owned(), ..request(descriptors) };
    Client::connect(service.grpc).await.decide(hidden).await.unwrap();
    let admin = format!("http://{}", service.admin);
    let explained = run(&[
        "explain",
        "--policy",
        Policies::of(policy).path().to_str().unwrap(),
        "te\u{202e}st",
        "user=a",
    ]);
    let outputs = [
        run(&["denials", "--admin", &admin]),
        run(&["denials", "--admin", &admin, "--json"]),
        run(&["top", "--admin", &admin, "--once"]),
        run(&["top", "--admin", &admin, "--json"]),
        run(&["denials", "--admin", &admin, "--domain", "a\u{202e}b"]),
        explained,
    ];
    for output in &outputs {
        let all = stdout(output) + &stderr(output);
        let unseen = |letter: char| {
            letter != '\n' && (letter.is_control() || "\u{202e}\u{2028}".contains(letter))
        };
        assert!(!all.contains(unseen) && all.contains("202e"), "{all:?}");
    }
    assert!(
        stdout(&outputs[0]).contains(r"user=ann\u{202e}nimda")
            && stdout(&outputs[0]).contains(r"path=/\u{2028}\u{9b}2J")
    );
    let json: Value = serde_json::from_str(&stdout(&outputs[1])).unwrap();
    assert_eq!(json["denials"][0]["domain"], "te\u{202e}st", "JSON keeps its values");
}

#[tokio::test]
async fn a_token_file_readable_by_others_logs_a_warning() {
    let service = guarded(&Policies::of(&daily("user", 1)), &[]);
    let port = service.admin.port();
    let top_at = |host: &str| {
        let mut top = command(["top", "--once", "--admin", &format!("http://{host}:{port}")]);
        top.env("TOLLGATE_ADMIN_TOKEN", "reader-0123456789").output().unwrap()
    };
    // Connects to this machine, but is not a loopback address.
    let elsewhere = top_at("0.0.0.0");
    assert_eq!(elsewhere.status.code(), Some(0), "{elsewhere:?}");
    assert_eq!(stderr(&elsewhere).matches("warning: ").count(), 1, "once: {}", stderr(&elsewhere));
    assert!(
        stderr(&elsewhere).contains("over plain HTTP") && stderr(&elsewhere).contains("https://")
    );
    assert_eq!(stderr(&top_at("127.0.0.1")), "");
    let written = run(&[
        "top",
        "--once",
        "--admin",
        &format!("http://127.0.0.1:{port}"),
        "--token",
        "reader-0123456789",
    ]);
    assert!(
        stderr(&written).starts_with("warning: --token: a secret on the command line"),
        "{written:?}"
    );
    assert!(
        stderr(&written).contains("--token-file")
            && !stderr(&written).contains("reader-0123456789")
    );
}

#[tokio::test]
async fn a_token_is_read_from_a_file() {
    let folder = Policies::of(&daily("user", 1));
    let service = guarded(&folder, &[]);
    let admin = format!("http://{}", service.admin);
    let refused = run(&["denials", "--admin", &admin]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("401: token required"), "{refused:?}");
    folder.write("mine", "bob:another-0123456789");
    let mine = folder.file("mine");
    let refused = run(&["denials", "--admin", &admin, "--token-file", mine.to_str().unwrap()]);
    assert!(stderr(&refused).contains("401: unknown token"), "{refused:?}");
    folder.write("mine", READER);
    let mine = folder.file("mine");
    let mine = ["--admin", &admin, "--token-file", mine.to_str().unwrap()];
    assert_eq!(run(&[&["denials"], &mine[..]].concat()).status.code(), Some(1));
    let refused = run(&[&["reload"], &mine[..]].concat());
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("`bob` has read access only")
    );
    folder.write("mine", WRITER);
    let reloaded = run(&[&["reload"], &mine[..]].concat());
    let unchanged = format!("policies unchanged at {admin}: version ");
    assert!(stdout(&reloaded).starts_with(&unchanged), "{reloaded:?}");
}

#[tokio::test]
async fn a_client_certificate_authenticates_and_its_name_is_logged() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    authority.sign("localhost").write(folder.path());
    std::fs::write(folder.path().join("ca.crt"), &authority.pem).unwrap();
    let client = TempDir::new().unwrap();
    let strange = TempDir::new().unwrap();
    authority.sign("ann.example").write(client.path());
    Authority::new().sign("eve.example").write(strange.path());
    let [certificate, key] = files(folder.path());
    let ca = folder.path().join("ca.crt");
    let [certificate, key, ca] = [&certificate, &key, &ca].map(|path| path.to_str().unwrap());
    let flags =
        ["--admin-tls-cert", certificate, "--admin-tls-key", key, "--admin-tls-client-ca", ca];
    let policies = Policies::of(&daily("user", 1));
    let mut service = Tollgate::serve_with(policies.path(), &flags);
    let admin = format!("https://localhost:{}", service.admin.port());
    let reload_as = |identity: Option<&TempDir>| {
        let identity = identity.map(|folder| files(folder.path()));
        let mut arguments = vec!["reload", "--admin", &admin, "--ca", ca];
        if let Some([certificate, key]) = &identity {
            arguments.extend([
                "--client-cert",
                certificate.to_str().unwrap(),
                "--client-key",
                key.to_str().unwrap(),
            ]);
        }
        run(&arguments)
    };
    let let_in = reload_as(Some(&client));
    assert_eq!(let_in.status.code(), Some(0), "{let_in:?}");
    assert_eq!(reload_as(None).status.code(), Some(2), "without a certificate");
    assert_eq!(reload_as(Some(&strange)).status.code(), Some(2), "another authority's");
    service.process.wait_for_line("the write by ann", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["target"] == "audit" && line["fields"]["who"] == "ann.example").then_some(())
    });
}

#[test]
fn an_unreachable_service_is_reported() {
    let of_a_counter = [
        "inspect test user=ann",
        "reset test user=ann",
        "refund 1 test user=ann",
        "grant 1 --for 1m test user=ann",
    ];
    for command in ["top", "denials", "reload"].into_iter().chain(of_a_counter) {
        let words: Vec<&str> = command.split(' ').collect();
        let output = run(&[words.as_slice(), &["--admin", "http://127.0.0.1:1"]].concat());
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("http://127.0.0.1:1: "),
            "{output:?}"
        );
        assert!(
            stderr(&output).contains("set the address with --admin URL or TOLLGATE_ADMIN"),
            "{output:?}"
        );
        let output = run(&[words.as_slice(), &["--admin", "127.0.0.1:6070"]].concat());
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("127.0.0.1:6070: "),
            "{output:?}"
        );
    }
}

#[test]
fn another_port_of_the_service_is_reported_as_one() {
    let service = Tollgate::serve(Policies::of(&daily("user", 1)).path());
    for port in [service.http, service.grpc] {
        let output = run(&["top", "--admin", &port.to_string()]);
        assert_eq!(output.status.code(), Some(2));
        let advice = "; is this the admin port (6070 by default)?";
        assert!(stderr(&output).contains(advice), "{output:?}");
    }
}

fn run(arguments: &[&str]) -> Output {
    output(arguments)
}

#[tokio::test]
async fn a_limit_that_has_changed_since_a_denial_is_shown_as_that_of_now() {
    let policies = Policies::of(&daily("user", 1));
    let service = Tollgate::serve(policies.path());
    let client = Client::connect(service.grpc).await;
    client.hit("user", "ann").await;
    client.hit("user", "ann").await;
    let admin = format!("http://{}", service.admin);
    let denials = || stdout(&run(&["denials", "--admin", &admin]));
    assert!(denials().contains("  1 in 1d  "), "{}", denials());
    policies.write("policy.yaml", &daily("user", 5));
    assert!(run(&["reload", "--admin", &admin]).status.success());
    assert!(denials().contains("  5 in 1d (now)  "), "{}", denials());
    let without_end = run(&["grant", "3", "--admin", &admin, "test", "user=ann"]);
    assert!(stderr(&without_end).contains("--for DURATION"), "{without_end:?}");
    let ended = run(&["grant", "0", "--admin", &admin, "test", "user=ann"]);
    assert!(ended.status.success(), "{ended:?}");
}
