//! The subcommands, by their exit codes and output.

use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;

use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, output, stderr, stdout};

#[test]
fn hit_charges_its_hits_and_exits_0_if_admitted_and_1_if_denied() {
    let service = serve(13);
    for (flags, code) in [
        (&["--hits", "0", "--count", "5"][..], 0),
        (&["--hits", "10"], 0),
        (&[], 0),
        (&[], 0),
        (&["--count", "2"], 1),
        (&[], 1),
        (&["--hits", "0"], 1),
    ] {
        assert_eq!(hit(&service, flags).status.code(), Some(code), "{flags:?}");
    }
}

#[test]
fn hit_exits_2_if_the_service_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ended = output(["hit", &closed, "test", "user=ann"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(stderr(&ended).contains(&closed), "{ended:?}");
}

#[test]
fn hit_exits_2_if_the_service_refuses_the_request() {
    let service = serve(1);
    assert_eq!(output(["hit", &service.grpc.to_string(), "", "user=ann"]).status.code(), Some(2));
}

#[test]
fn hit_prints_the_decision_as_json_or_text() {
    let service = serve(3);
    let answer: Value = serde_json::from_str(&stdout(&hit(&service, &["--json"]))).unwrap();
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["statuses"][0]["limitRemaining"], 2);
    assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], 3);
    let text = stdout(&hit(&service, &[]));
    assert!(text.contains("OK, 1 of 3 per day"), "{text}");
}

#[test]
fn hit_says_that_hits_beyond_the_rate_remain_of_a_burst() {
    let rule = "rate_limit: { algorithm: gcra, unit: day, requests_per_unit: 5, burst: 7 }";
    let policies =
        Policies::of(&format!("domain: test\ndescriptors:\n  - key: user\n    {rule}\n"));
    let service = Tollgate::serve(policies.path());
    let text = stdout(&hit(&service, &[]));
    assert!(text.contains("OK, 6 remaining of a burst, 5 per day ("), "{text}");
    let text = stdout(&hit(&service, &[]));
    assert!(text.contains("OK, 5 of 5 per day ("), "{text}");
}

#[test]
fn check_exits_0_for_policies_that_work() {
    let policies = Policies::of(&daily("user", 5));
    let ended = output(["check".as_ref(), policies.path().as_os_str()]);
    assert_eq!(ended.status.code(), Some(0), "{}{}", stdout(&ended), stderr(&ended));
    let ended = output(["check", policies.path().to_str().unwrap(), "--rlqs"]);
    assert_eq!(ended.status.code(), Some(1), "RLQS cannot enforce it: {}", stdout(&ended));
    let room = |max: &[&str]| {
        let ended = output([&["check", policies.path().to_str().unwrap()], max].concat());
        stdout(&ended).lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        room(&[]),
        "request size: --max-message 4MiB is enough for 68 header values of 60KiB, Envoy's maximum"
    );
    assert!(
        room(&["--max-message", "1MiB"]).contains("1MiB is enough for 17 header values"),
        "{}",
        room(&[])
    );
}

#[test]
fn check_names_a_domain_whose_limits_need_larger_requests() {
    let rule = |number: usize| {
        format!("  - {{ key: k{number}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n")
    };
    let rules: String = (0..18).map(rule).collect();
    let policies = Policies::of(&format!("domain: gateway\ndescriptors:\n{rules}"));
    let path = policies.path().to_str().unwrap();
    let check = |max: &str| stdout(&output(["check", path, "--max-message", max]));
    let text = check("1MiB");
    assert!(
        text.contains(
            "domain `gateway` has 18 limits on values that clients can choose: if one route has an action for each, \
             set --max-message 2MiB"
        ),
        "{text}"
    );
    assert!(!check("2MiB").contains("gateway"), "{}", check("2MiB"));
}

#[test]
fn three_mistakes_in_two_files_get_one_report_with_three_carets() {
    let policies = Policies::none();
    policies.write(
        "a.yaml",
        "domain: a\ndescriptors:\n  - key: user\n    rate_limt: { requests_per_unit: 5, unit: day }\n",
    );
    let two = "domain: b\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: many, unit: fortnight }\n";
    policies.write("b.yaml", two);
    let ended = output(["check".as_ref(), policies.path().as_os_str()]);
    assert_eq!(ended.status.code(), Some(1));
    let report = stdout(&ended) + &stderr(&ended);
    let carets =
        report.lines().filter(|line| line.trim_start_matches(['|', ' ']).starts_with('^')).count();
    assert_eq!(carets, 3, "{report}");
    for part in ["a.yaml:4", "rate_limit`", "b.yaml:4", "many", "fortnight"] {
        assert!(report.contains(part), "`{part}` is not in\n{report}");
    }
}

#[test]
fn explain_names_the_rule_that_is_hit() {
    let policies = Policies::of(&daily("user", 5));
    let ended =
        output(["explain", "test", "user=ann", "--policy", policies.path().to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(stdout(&ended).contains("user") && stdout(&ended).contains('5'), "{ended:?}");
}

#[test]
fn check_and_explain_take_overlays() {
    let files = Policies::of(&daily("user", 5));
    files.write(
        "overlays/good.yaml",
        "overlay:\n- key: user\n  rate_limit: { algorithm: gcra, burst: 2 }\n",
    );
    files.write("overlays/bad.yaml", "overlay:\n- key: user\n  rate_limit: { burst: two }\n");
    let [policy, good, bad] =
        ["policy.yaml", "overlays/good.yaml", "overlays/bad.yaml"].map(|name| files.file(name));
    let [policy, good, bad] = [&policy, &good, &bad].map(|path| path.to_str().unwrap());
    assert_eq!(output(["check", policy, "--overlay", good]).status.code(), Some(0));
    let ended = output(["check", policy, "--overlay", good, "--overlay", bad]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("overlays/bad.yaml:3:24"), "{ended:?}");
    let report =
        stdout(&output(["explain", "test", "user=ann", "--policy", policy, "--overlay", good]));
    assert!(report.contains("gcra: evenly spaced, burst 2 when idle"), "{report}");
}

#[test]
fn schema_prints_json() {
    let ended = output(["schema"]);
    assert_eq!(ended.status.code(), Some(0));
    assert!(serde_json::from_str::<Value>(&stdout(&ended)).unwrap().is_object());
}

#[test]
fn replay_decides_in_the_time_of_the_trace() {
    let policies = Policies::of(&daily("user", 1));
    let line = |at: &str| {
        let request = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
        format!("{{\"at\": {at}, \"request\": {request}}}\n")
    };
    let at = ["1780000000000000", "1780000000000001", r#""2027-01-01T00:00:00Z""#];
    policies.write("trace.jsonl", &at.map(line).concat());
    let policy = policies.file("policy.yaml");
    let trace = policies.file("trace.jsonl");
    let ended =
        output(["replay".as_ref(), "--policy".as_ref(), policy.as_os_str(), trace.as_os_str()]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let stdout = stdout(&ended);
    let answers = stdout.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["response"]["overallCode"].clone()
    });
    assert_eq!(answers.collect::<Vec<_>>(), ["OK", "OVER_LIMIT", "OK"]);
}

#[test]
fn every_subcommand_has_an_example_in_its_help() {
    for subcommand in ["serve", "check", "test", "diff", "replay", "explain", "hit", "schema"] {
        let help = stdout(&output([subcommand, "--help"]));
        assert!(help.contains(&format!("  tollgate {subcommand}")), "{subcommand}:\n{help}");
    }
}

/// Serves a policy of `amount` per day for each user.
fn serve(amount: u32) -> Tollgate {
    Tollgate::serve(Policies::of(&daily("user", amount)).path())
}

fn hit(service: &Tollgate, flags: &[&str]) -> Output {
    let address = service.grpc.to_string();
    output([&["hit", &address, "test", "user=ann"], flags].concat())
}

#[test]
fn check_and_test_report_to_programs_in_their_formats() {
    let policies = Policies::of("domain: test\ndescriptors:\n- key: user\n  rate_limt: {}\n");
    let policy = policies.path().join("policy.yaml");
    let policy = policy.to_str().unwrap();
    let check = |format| output(["check", "--format", format, policy]);
    let ended = check("json");
    assert_eq!(ended.status.code(), Some(1));
    let found: Value = serde_json::from_str(&stdout(&ended)).unwrap();
    let problem = &found["problems"][0];
    assert_eq!([&problem["file"], &found["ok"]], [&Value::from(policy), &Value::from(false)]);
    assert_eq!([&problem["line"], &problem["column"]], [4, 3]);
    let annotation = stdout(&check("github"));
    assert!(annotation.starts_with(&format!("::error file={policy},line=4,col=3::unknown key")));
    assert!(annotation.contains("did you mean"), "{annotation}");
    assert!(stdout(&check("junit")).contains("tests=\"1\" failures=\"1\""));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.yaml"), daily("user", 1)).unwrap();
    let file = folder.path().join("p.test.yaml");
    let steps = "steps: [{ hit: user=ann, expect: over_limit }]";
    let passing = "{ test: b, steps: [{ hit: user=ann, expect: ok }] }";
    let tests = format!("policies: [p.yaml]\ntests:\n- {{ test: a, {steps} }}\n- {passing}\n");
    std::fs::write(&file, tests).unwrap();
    let file = file.to_str().unwrap();
    let test = |format| output(["test", "--format", format, file]);
    assert_eq!(test("junit").status.code(), Some(1));
    let report = stdout(&test("junit"));
    assert!(report.contains("tests=\"2\" failures=\"1\"") && report.contains("name=\"b\"/>"));
    let annotation = stdout(&test("github"));
    let expected = format!("::error file={file},line=3::a: ");
    assert!(annotation.starts_with(&expected) && annotation.lines().count() == 1, "{annotation}");
}
