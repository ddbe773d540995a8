//! `tollgate replay` on access logs, and with two policies.

use serde_json::Value;

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
        "4 requests from 2026-11-21 12:00:01 to 12:00:04 UTC, 1 over limit\n          \
         1 from 1 key, 12:00:03 to 12:00:03  test user\n              1  user=ann\n"
    );
    assert!(
        err.contains(&format!(
            "warning: 1 invalid line skipped; first error: {log}:6:24: not valid JSON: EOF"
        )),
        "{err}"
    );
    assert!(err.contains("note: 1 line skipped, the first "), "{err}");
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
    let out = out.replace(&new, "new.yaml").replace(&policy, "policy.yaml");
    insta::assert_snapshot!(out, @r##"
    4 requests from 2026-11-21 12:00:01 to 12:00:04 UTC: 1 over limit by policy.yaml, 3 by new.yaml
    2 would be denied only by new.yaml
              2 from 1 key, 12:00:01 to 12:00:02  test remote_address
                  2  remote_address=203.0.113.7
    0 would be denied only by policy.yaml
    "##);
}

#[test]
fn a_report_is_available_as_json() {
    let (_files, [policy, new, log, map]) = files();
    let inputs = ["--access-log", &log, "--map", &map, "--json"];
    let (code, out, err) = run(&[&["replay", "--policy", &policy][..], &inputs].concat());
    assert_eq!(code, 0, "{err}");
    let one: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&one["requests"], &one["policy"]["over_limit"]), (&4.into(), &1.into()), "{one}");
    assert_eq!(one["until"], "2026-11-21T12:00:04.123Z");
    assert_eq!(one["policy"]["denied"]["rules"][0]["keys"][0]["key"], "user=ann");
    let arguments = [&["replay", "--policy", &policy, "--against", &new][..], &inputs].concat();
    let two: Value = serde_json::from_str(&run(&arguments).1).unwrap();
    let denied = &two["against"]["denied"]["rules"][0];
    assert_eq!(
        (&denied["denied"], &denied["first"]),
        (&2.into(), &"2026-11-21T12:00:01.123Z".into())
    );
    assert_eq!(two["against"]["path"], new);
    let (code, _, err) = run(&["replay", "--policy", &policy, "--json", &log]);
    assert_eq!(code, 2, "a trace has JSON already: {err}");
}

#[test]
fn lines_that_are_earlier_than_others_are_counted() {
    let (files, [policy, ..]) = files();
    let line = |second: u64| {
        let request = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "users", "value": "ann"}]}]}"#;
        format!("{{\"at\": {}, \"request\": {request}}}\n", second * 1_000_000)
    };
    files.write("trace.jsonl", &[100, 160, 100, 159].map(line).concat());
    let trace = files.file("trace.jsonl");
    let trace = trace.to_str().unwrap();
    let note = "note: 1 line up to 1m earlier than a previous line; counters that it used decide at its time; sort the file by time";
    let (_, _, err) = run(&["replay", "--policy", &policy, trace]);
    assert!(err.starts_with(note), "{err}");
    let (_, out, err) = run(&["replay", "--policy", &policy, "--against", &policy, trace]);
    assert_eq!(err, format!("{note}\n"));
    assert!(out.contains(&format!("4 without a rule in {policy}\n")), "{out}");
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
        out.starts_with(&format!(
            "4 requests from 1970-01-01 00:00:00 to 00:00:00 UTC: 0 over limit by {new}, 2 by {policy}\n\
             2 would be denied only by {policy}\n"
        )),
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
        err.contains("no valid line; first error: ")
            && err.contains("access.jsonl:1:6: not valid JSON: "),
        "{err}"
    );
    assert!(err.contains("`escape=json`"), "{err}");
}

#[test]
fn a_log_without_the_fields_of_its_map_is_an_error() {
    let (files, [policy, _, log, map]) = files();
    files.write("access.jsonl", "{\"start_time\": \"2026-11-21T12:00:00Z\"}\n");
    let (code, out, err) =
        run(&["replay", "--policy", &policy, "--access-log", &log, "--map", &map]);
    assert_eq!((code, &*out), (2, ""), "{err}");
    assert!(
        err.contains("no line is a request: 1 line skipped, the first ")
            && err.contains("access.jsonl:1: the domain or a field of each descriptor is missing"),
        "{err}"
    );
}
