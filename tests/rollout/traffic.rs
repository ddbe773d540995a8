//! `tollgate replay` on access logs, and with two policies.

use super::run;
use crate::support::policy::{Policies, daily};

const MAP: &str = "time: { field: start_time }
domain: test
descriptors:
  - user: { field: request.user }
  - remote_address: { field: peer, without: port }
";

/// Returns a log as Envoy's `json_format` may write it: three requests of ann, one of bob, one
/// without a user, and a truncated line.
fn log() -> String {
    let line = |second: u8, user: &str, peer: &str| {
        format!(
            "{{\"start_time\": \"2026-11-21T12:00:0{second}.123Z\", \"request\": {{\"user\": {user}}}, \"peer\": {peer}}}\n"
        )
    };
    let ann = [1, 2, 3].map(|second| line(second, "\"ann\"", "\"203.0.113.7:4711\"")).concat();
    ann + &line(4, "\"bob\"", "null") + &line(5, "null", "\"-\"") + "{\"start_time\": \"2026-11-"
}

fn files() -> (Policies, [String; 4]) {
    let policies = Policies::of(&daily("user", 2));
    policies.write(
        "new.yaml",
        &format!(
            "{}  - key: remote_address\n    rate_limit: {{ requests_per_unit: 0, unit: day }}\n",
            daily("user", 9)
        ),
    );
    policies.write("access.jsonl", &log());
    policies.write("map.yaml", MAP);
    let names = ["policy.yaml", "new.yaml", "access.jsonl", "map.yaml"];
    let names = names.map(|name| policies.file(name).to_str().unwrap().to_owned());
    (policies, names)
}

#[test]
fn an_access_log_shows_who_would_be_denied_most() {
    let (_files, [policy, _, log, map]) = files();
    let (code, out, err) =
        run(&["replay", "--policy", &policy, "--access-log", &log, "--map", &map]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        out,
        "4 requests, 1 over limit\n          1 from 1 key  test user\n              1  user=ann\n"
    );
    assert!(
        err.contains(&format!("warning: 1 invalid line skipped; first error: {log}:6: EOF")),
        "{err}"
    );
    assert!(err.contains("note: 1 line skipped: "), "{err}");
}

#[test]
fn two_policies_on_the_same_traffic_show_whom_each_would_deny() {
    let (_files, [policy, new, log, map]) = files();
    let (code, out, err) = run(&[
        "replay",
        "--policy",
        &policy,
        "--against",
        &new,
        "--access-log",
        &log,
        "--map",
        &map,
    ]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(out, @r##"
    4 requests: 1 over limit by --policy, 3 by --against
    2 would be denied only by --against
              2 from 1 key  test remote_address
                  2  remote_address=203.0.113.7
    0 would be denied only by --policy
    "##);
}

#[test]
fn a_trace_is_compared_too() {
    let (files, [policy, new, ..]) = files();
    let line = |at: u64| {
        let request = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
        format!("{{\"at\": {at}, \"request\": {request}}}\n")
    };
    files.write("trace.jsonl", &[1, 2, 3, 4].map(line).concat());
    let trace = files.file("trace.jsonl");
    let (code, out, err) =
        run(&["replay", "--policy", &new, "--against", &policy, trace.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("4 requests: 0 over limit by --policy, 2 by --against\n2 would be denied only by --against\n"),
        "{out}"
    );
}

#[test]
fn an_invalid_map_is_reported_with_its_place() {
    let (files, [policy, _, log, map]) = files();
    files.write(
        "map.yaml",
        &MAP.replace("without: port", "without: ports")
            .replace("time: { field: start_time }", "time: {}"),
    );
    let (code, _, err) = run(&["replay", "--policy", &policy, "--access-log", &log, "--map", &map]);
    assert_eq!(code, 2);
    for part in
        ["map.yaml:1:7", "`field` is missing in `time`", "map.yaml:5:45", "did you mean `port`?"]
    {
        assert!(err.contains(part), "`{part}` is not in\n{err}");
    }
}

#[test]
fn a_log_without_a_readable_line_is_an_error() {
    let (files, [policy, _, log, map]) = files();
    files.write("access.jsonl", "[2026-11-21T12:00:00.123Z] \"GET / HTTP/1.1\" 200\n");
    let (code, _, err) = run(&["replay", "--policy", &policy, "--access-log", &log, "--map", &map]);
    assert_eq!(code, 2);
    assert!(
        err.contains("no valid line; first error: ") && err.contains("access.jsonl:1: "),
        "{err}"
    );
}
