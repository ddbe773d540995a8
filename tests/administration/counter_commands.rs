//! The subcommands for a counter, in a shell, as each suggests the next.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{READER, WRITER, guarded};
use crate::support::policy::{Policies, yearly};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, output, stderr, stdout};

/// A value with characters that are special to shells, to the command line's grammar and to
/// terminals.
const ANN_ONEIL: &str = "ann o'neil, \\ \u{7}";

#[tokio::test]
async fn each_command_suggests_the_next_from_a_denial_to_a_grant() {
    let folder = Policies::of(&yearly("user", 1));
    let service = guarded(&folder, &[]);
    let client = Client::connect(service.grpc).await;
    folder.write("mine", WRITER);
    let admin = format!("http://{}", service.admin);
    let mine = folder.file("mine");
    let server = ["--admin", admin.as_str(), "--token-file", mine.to_str().unwrap()];
    for _ in 0..3 {
        client.hit("user", ANN_ONEIL).await;
    }
    let denials = stdout(&output([&["denials", "--key", "user=ann"], &server[..]].concat()));
    let next = commands(&denials);
    let [inspect] = next.as_slice() else { panic!("{denials}") };
    let inspected = by_shell(inspect);
    assert_eq!(inspected.status.code(), Some(1), "{inspected:?}");
    let report = stdout(&inspected);
    for part in [
        r"user=ann o'neil\, \\ \u{7} in test",
        "1 hit in 365d, fixed_window",
        "no hits remaining; retry at",
        "3 of 1 hit in 365d; 0 remaining",
        "2 times from",
        "used by   callers not recorded",
        "To admit the next hit:",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    let next = commands(&report);
    let [grant, reset] = next.as_slice() else { panic!("{report}") };
    let granted = by_shell(grant);
    // No more than the limit.
    assert!(granted.status.success() && stdout(&granted).contains("1 until"), "{granted:?}");
    assert!(
        stdout(&granted).contains("note: remaining is the maximum for one request"),
        "{granted:?}"
    );
    assert!(client.hit("user", ANN_ONEIL).await);
    let used_up = by_shell(inspect);
    assert!(
        used_up.status.code() == Some(1) && stdout(&used_up).contains("grant 1 --for 10m"),
        "{used_up:?}"
    );
    let done = by_shell(reset);
    assert!(done.status.success() && stdout(&done).contains("note: "), "{done:?}");
    let json = by_shell(&format!("{inspect} --json"));
    let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((&json["state"]["remaining"], &json["state"]["grant"]), (&json!(1), &Value::Null));
    assert!(client.hit("user", ANN_ONEIL).await);
    let refunded = by_shell(&reset.replace("reset", "refund 1"));
    assert!(refunded.status.success(), "{refunded:?}");
    assert!(client.hit("user", ANN_ONEIL).await);
    folder.write("mine", READER);
    let refused = by_shell(reset);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("has read access only"));
}

/// Extracts the `tollgate` command lines that a text suggests.
fn commands(text: &str) -> Vec<String> {
    let all = text
        .lines()
        .filter_map(|line| line.split_once("  tollgate ").map(|(_, words)| words.to_owned()));
    all.collect()
}

fn by_shell(words: &str) -> Output {
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_tollgate"));
    std::process::Command::new("sh").args(["-c", &line]).output().unwrap()
}

#[tokio::test]
async fn the_proposed_grant_suffices_and_a_mistaken_one_is_reported() {
    let policy = "domain: test\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 20, unit: hour, charge: admitted, record: [path] }\n  - key: banned\n    rate_limit: { requests_per_unit: 0, unit: day }\n";
    let service = Tollgate::serve(Policies::of(policy).path());
    let admin = format!("http://{}", service.admin);
    let grpc = service.grpc.to_string();
    let hit =
        |hits: &str| output(["hit", &grpc, "test", r"user=o\,neil", "path=/a", "--hits", hits]);
    assert!(stdout(&hit("25")).contains("a request of 25 hits exceeds the limit"));
    let run = |command: &str| by_shell(&format!("{command} --admin {admin} test 'user=o\\,neil'"));
    let report = stdout(&run("inspect"));
    assert!(
        report.contains("A request of 25 hits, like the last denied one, can never be admitted by the limit (20 hits in 1h)")
            && commands(&report).is_empty(),
        "{report}"
    );
    let granted = stdout(&run("grant 5 --for 10m"));
    assert!(granted.contains("note: the counter is unused, or has reset"), "{granted}");
    assert_eq!((hit("20").status.code(), hit("10").status.code()), (Some(0), Some(1)));
    let again = stdout(&run("inspect"));
    assert!(
        again.contains("  tollgate grant 15 --for 10m"),
        "a live grant is never lowered: {again}"
    );
    assert!(by_shell(&commands(&again)[0]).status.success());
    let exit_codes = ["10", "6", "5", "1"].map(|hits| hit(hits).status.code());
    assert_eq!(exit_codes, [Some(0), Some(1), Some(0), Some(1)]);
    let peek = hit("0");
    assert!(
        peek.status.code() == Some(1) && stdout(&peek).contains("the next hit is denied"),
        "{peek:?}"
    );
    assert!(stdout(&run("refund 100")).contains("note: only 20 hits were used"));
    let bare = stdout(&by_shell(&format!("reset --admin {admin} test user")));
    assert!(bare.contains("note: `user` has no value") && bare.contains("check the key"), "{bare}");
    for key in ["path=/a", "user=o,neil"] {
        let denials = stdout(&output(["denials", "--admin", &admin, "--key", key]));
        assert!(
            denials.contains("recent callers: path=/a") && denials.contains("20 in 1h"),
            "{denials}"
        );
    }
    assert_eq!(output(["hit", &grpc, "test", "banned=x"]).status.code(), Some(1));
    let ban = stdout(&output(["denials", "--admin", &admin, "--key", "banned"]));
    assert!(ban.contains("only a policy change") && commands(&ban).is_empty(), "{ban}");
}

#[test]
fn a_grant_that_proxies_do_not_get_is_reported() {
    let lent = "{ requests_per_unit: 9, unit: day, lease: { size: 5, ttl: 1s, rlqs: { ttl: 15s, size: 5 } } }";
    let policies = Policies::of(&format!(
        "domain: test\ndescriptors: [{{ key: user, rate_limit: {lent} }}]\n"
    ));
    let service = Tollgate::serve(policies.path());
    let admin = service.admin.to_string();
    for (hits, is_noted) in [("5", true), ("0", false)] {
        let arguments = ["grant", hits, "--for", "10m", "--admin", &admin, "test", "user=ann"];
        let granted = stdout(&output(arguments));
        assert_eq!(granted.contains("note: proxies that use RLQS"), is_noted, "{granted}");
    }
}

#[test]
fn a_closed_output_does_not_panic() {
    let service = Tollgate::serve(Policies::of(&yearly("user", 2)).path());
    let words = ["hit", &service.grpc.to_string(), "test", "user=ann", "--count", "3"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let mut hit =
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(hit.stdout.take());
    let ended = hit.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &*stderr(&ended)), (Some(0), ""));
}
