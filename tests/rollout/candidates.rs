//! `candidate:` of a rule with a limit: counted and reported, but without effect on the response,
//! in memory and in Redis.

use super::run;
use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

const POLICY: &str = "domain: test
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 3, unit: day }
    candidate: { requests_per_unit: 1, unit: day, algorithm: gcra }
";

#[tokio::test]
async fn candidate_policies_are_reloaded_and_cannot_stop_the_service() {
    let policies = Policies::of(&daily("user", 9));
    policies.write("tried/policy.yaml", &daily("user", 1));
    let policy = policies.file("policy.yaml");
    let tried = policies.file("tried");
    let mut service =
        Tollgate::serve_with(&policy, &["--candidate-policy", tried.to_str().unwrap()]);
    let web = Web::new(service.http);
    let client = Client::connect(service.grpc).await;
    let denied = "tollgate_candidate_decisions_total{from=\"policy\",domain=\"test\",rule=\"user\",outcome=\"denied\"}";
    assert!(client.hit("user", "ann").await && client.hit("user", "ann").await);
    assert_eq!(web.metric(denied).await, 1);
    policies.write("tried/policy.yaml", "domain: test\ndescriptors: [{ kei: user }]\n");
    service.process.wait_for_line("the rejection", |line| {
        line.contains("candidate policies rejected").then_some(())
    });
    assert!(client.hit("user", "ann").await);
    assert_eq!(web.metric(denied).await, 2);
    policies.write("tried/policy.yaml", &(daily("user", 5) + "  - key: other\n"));
    let is_it = |line: &str| {
        (line.contains("candidate policies loaded") && line.contains("\"rules\":2")).then_some(())
    };
    service.process.wait_for_line("the new candidates", is_it);
    assert!(client.hit("user", "ann").await);
    assert_eq!(web.metric(denied).await, 2, "an amount is judged by the same counter");
}

#[test]
fn check_explain_diff_and_replay_show_a_candidate() {
    let policies = Policies::of(POLICY);
    let candidate = "    candidate: { requests_per_unit: 1, unit: day, algorithm: gcra }\n";
    policies.write("plain/policy.yaml", &POLICY.replace(candidate, ""));
    let line = |second: u32| format!("{{\"t\": {second}, \"user\": \"ann\"}}\n");
    policies.write("log.jsonl", &(1..5).map(line).collect::<String>());
    policies.write(
        "map",
        "time: { field: t }\ndomain: test\ndescriptors: [{ user: { field: user } }]\n",
    );
    let names = ["policy.yaml", "plain", "log.jsonl", "map"];
    let [policy, plain, log, map] =
        names.map(|name| policies.file(name).to_str().unwrap().to_owned());
    assert!(
        run(&["check", &policy])
            .1
            .starts_with("ok: 1 file, 1 domain, 1 rule, 1 limit, 1 candidate, 0 warnings; ")
    );
    let words = "1 hit in 1d, algorithm gcra, burst 1, max_debt 10, charge admitted";
    let explained = run(&["explain", "--policy", &policy, "test", "user=ann"]).1;
    assert!(
        explained.contains(&format!(
            "candidate       {words}; counted and reported, without effect on decisions\n"
        )),
        "{explained}"
    );
    let (code, report, _) = run(&["diff", &plain, &policy]);
    assert_eq!(code, 1);
    assert!(
        report.contains(&format!("    candidate       {words}\n    counters        continue")),
        "{report}"
    );
    let (_, out, err) = run(&["replay", "--policy", &policy, "--access-log", &log, "--map", &map]);
    let denied = |number: u32, times: &str| {
        format!(
            "          {number} from 1 key, {times}  test user\n              {number}  user=ann\n"
        )
    };
    assert_eq!(
        out,
        format!(
            "4 requests from 1970-01-01 00:00:01 to 00:00:04 UTC, 1 over limit\n\
             {}2 more if its candidates were in force\n{}",
            denied(1, "00:00:04 to 00:00:04"),
            denied(2, "00:00:02 to 00:00:03")
        ),
        "{err}"
    );
}

#[test]
fn a_candidate_rejects_options_that_affect_the_response() {
    let wrong =
        POLICY.replace("algorithm: gcra", "on_store_error: deny, name: x, shadow_mode: true");
    let policies = Policies::of(&wrong);
    let (code, _, err) = run(&["check", policies.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    for word in ["on_store_error", "name", "shadow_mode"] {
        assert!(err.contains(&format!("`{word}` is not allowed in `candidate`")), "{err}");
    }
}
