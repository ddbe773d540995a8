//! The admin API: it reports the traffic that was sent, and only to authorized callers.

mod commands;
mod counter;
mod counter_commands;
mod refusals;
mod reloads;
mod rights;

use serde_json::{Value, json};

use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::{Reply, Web, fetch};
use crate::support::{TEST_TIMEOUT, becomes};

const WRITER: &str = "ann:writer-0123456789";
const READER: &str = "bob:reader-0123456789";

#[tokio::test]
async fn denied_callers_are_listed_with_all_known_facts() {
    let policy = "domain: test\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 2, unit: day, record: [path] }\n  - key: plan\n    shadow_mode: true\n    rate_limit: { requests_per_unit: 0, unit: day }\n";
    let service = Tollgate::serve(Policies::of(policy).path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    for (user, hits) in [("ann", 5), ("bob", 3), ("cy", 1)] {
        for _ in 0..hits {
            let descriptors = vec![descriptor(&[("user", user)]), descriptor(&[("path", "/a")])];
            client.decide(request(descriptors)).await.unwrap();
        }
    }
    client.decide(request(vec![descriptor(&[("plan", "free")])])).await.unwrap();
    let top = fetch(&admin, "/api/v1/top").await;
    let keys: Vec<_> = top["denials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(&one["key"]), one["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(keys, [("user=ann", 3), ("plan=free", 1), ("user=bob", 1)]);
    let ann = &top["denials"][0];
    assert_eq!(
        (&ann["domain"], &ann["rule"], &ann["missed_at_most"]),
        (&json!("test"), &json!("user"), &json!(0))
    );
    assert_eq!(
        (&ann["hits"], &ann["passed"], &ann["recorded"]),
        (&json!(3), &json!(0), &json!(["path=/a"]))
    );
    assert_eq!(top["denials"][1]["passed"], 1, "in shadow mode requests pass");
    let version = fetch(&admin, "/api/v1/policies").await["version"].clone();
    assert_eq!(ann["version"], version);
    assert!(
        text(&ann["first"]) < text(&ann["last"]) && text(&ann["last"]) < text(&ann["retry_at"]),
        "{ann}"
    );
    let first = text(&ann["first"]);
    let last = text(&ann["last"]);
    let found =
        fetch(&admin, &format!("/api/v1/denials?rule=user&key=ann&since={first}&until={last}"))
            .await;
    assert_eq!(
        (&found["total"], &found["denials"][0]["count"], &found["dropped"]),
        (&json!(1), &json!(3), &json!(0))
    );
    let paged = fetch(&admin, "/api/v1/denials?domain=test&limit=1&offset=1").await;
    assert_eq!((paged["total"].as_u64(), paged["denials"].as_array().unwrap().len()), (Some(3), 1));
    assert_eq!(fetch(&admin, "/api/v1/denials?since=2100-01-01T00:00:00Z").await["total"], 0);
    let wrong = admin.get("/api/v1/denials?since=noon").await;
    assert!(wrong.status == 400 && wrong.body.contains("found `noon`"), "{wrong:?}");
}

#[tokio::test]
async fn reported_rates_match_the_traffic() {
    let user = "  - key: user\n    rate_limit: { requests_per_unit: 10, unit: day }\n";
    let policies = Policies::of(&(daily("idle", 10) + user));
    let service = Tollgate::serve(policies.path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    for _ in 0..15 {
        client.hit("user", "ann").await;
    }
    let rates = || async {
        fetch(&admin, "/api/v1/rules?order=denied").await["rules"][0]["rates"]["1m"].clone()
    };
    // A sample may fall between two requests, and the number of seconds it covers is unknown, so
    // only the ratios of the counts are checked: 10, 5 and 2.
    let of = |rate: &Value, what: &str| rate[what].as_f64().unwrap();
    let is_all = |rate: &Value| {
        of(rate, "denied") > 0.0 && (of(rate, "allowed") / of(rate, "denied") - 2.0).abs() < 1e-9
    };
    let minute = becomes("all rates are reported", TEST_TIMEOUT, rates, is_all).await;
    assert!(
        (of(&minute, "near") / of(&minute, "denied") - 0.4).abs() < 1e-9,
        "the last two of ten are near: {minute}"
    );
    let rule = &fetch(&admin, "/api/v1/rules?rule=use").await["rules"][0];
    assert_eq!(
        (&rule["domain"], &rule["rule"], &rule["limit"]),
        (&json!("test"), &json!("user"), &json!("10 hits in 1d"))
    );
    assert_eq!(
        Web::new(service.http)
            .metric(r#"tollgate_near_limit_total{domain="test",rule="user"}"#)
            .await,
        2
    );
}

#[tokio::test]
async fn a_dry_run_of_a_request_charges_nothing() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    let http = Web::new(service.http);
    assert!(client.hit("user", "ann").await);
    for (hits, would_admit, standing) in [(1, true, "room"), (2, false, "no room")] {
        let message = json!({"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}], "hits": hits}]});
        let answer = admin
            .send_with(
                "POST",
                "/api/v1/try",
                &[("content-type", "application/json")],
                message.to_string(),
            )
            .await;
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (&answer["would_admit"], &answer["statuses"][0]["standing"]),
            (&json!(would_admit), &json!(standing))
        );
        assert_eq!(answer["statuses"][0]["remaining"], 1);
    }
    let allowed = r#"tollgate_decisions_total{domain="test",rule="user",outcome="allowed"}"#;
    assert_eq!(http.metric(allowed).await, 1, "what is tried is counted nowhere");
    assert!(client.hit("user", "ann").await);
    let explained = fetch(&admin, "/api/v1/explain?domain=test&descriptor=user=ann").await;
    assert!(
        explained["rule"] == "user" && text(&explained["text"]).contains("key only user: yes"),
        "{explained}"
    );
    for (body, status) in [("{}", 422), (r#"{"domain": "test", "descriptors": []}"#, 400)] {
        let headers = [("content-type", "application/json")];
        assert_eq!(
            admin.send_with("POST", "/api/v1/try", &headers, body).await.status,
            status,
            "{body}"
        );
    }
    let long = format!("\"{}\"", "x".repeat(70_000));
    let headers = [("content-type", "application/json")];
    assert_eq!(admin.send_with("POST", "/api/v1/try", &headers, long).await.status, 413);
}

#[tokio::test]
async fn policies_are_reloaded_at_once_on_request() {
    let policies = Policies::of(&daily("user", 2));
    let mut service = Tollgate::serve(policies.path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    let http = Web::new(service.http);
    client.hit("user", "ann").await;
    let before = fetch(&admin, "/api/v1/policies").await;
    policies.write("policy.yaml", &daily("other", 2));
    let reloaded = reload(&admin, &[]).await;
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    let reloaded: Value = serde_json::from_str(&reloaded.body).unwrap();
    assert!(reloaded["is_changed"] == true && reloaded["policies"]["version"] != before["version"]);
    assert!(
        !http.get("/metrics").await.body.contains(r#"rule="user""#),
        "series of rules that are gone go"
    );
    policies.write("policy.yaml", "domain: test\ndescriptors:\n  - kee: user\n");
    let refused = reload(&admin, &[]).await;
    assert!(refused.status == 422 && refused.body.contains("kee"), "{refused:?}");
    let current = fetch(&admin, "/api/v1/policies").await;
    assert_eq!(current["version"], reloaded["policies"]["version"]);
    assert!(
        text(&current["last_error"]["report"]).contains("policy.yaml")
            && current["last_error"]["at"].is_string()
    );
    let degraded = fetch(&admin, "/api/v1/status").await["degraded"].clone();
    let [problem] = degraded.as_array().unwrap().as_slice() else { panic!("{degraded}") };
    let problem = text(problem);
    assert!(
        problem.starts_with("the last policy change was rejected: ") && problem.contains("`kee`"),
        "{problem}"
    );
    service.process.wait_for_line("the write by loopback", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let fields = &line["fields"];
        (line["target"] == "audit"
            && fields["who"] == "loopback"
            && fields["path"] == "/api/v1/policies/reload")
            .then_some(())
    });
}

#[tokio::test]
async fn the_openapi_document_is_valid_and_lists_every_route() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let admin = Web::new(service.admin);
    let document = fetch(&admin, "/api/v1/openapi.json").await;
    assert!(text(&document["openapi"]).starts_with("3."), "{}", document["openapi"]);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    let all = [
        "counter",
        "counter/grant",
        "counter/refund",
        "counter/reset",
        "counters/reset-ahead",
        "denials",
        "explain",
        "me",
        "policies",
        "policies/reload",
        "reloads",
        "replicas",
        "rules",
        "status",
        "store",
        "top",
        "try",
        "who",
    ];
    let mut found: Vec<&str> =
        paths.iter().map(|path| path.strip_prefix("/api/v1/").unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, all);
    // Every reference resolves, and every documented path responds.
    let whole = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for reference in whole.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is referred to and not there");
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let reply =
                admin.send_with(&method, path, &[("content-type", "application/json")], "").await;
            assert!(![404, 405].contains(&reply.status), "{method} {path}: {}", reply.status);
            assert!(
                operation["responses"]["200"]["content"]["application/json"].is_object(),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let silent: Vec<_> =
        (0..100).map(|_| std::net::TcpStream::connect(service.admin).unwrap()).collect();
    // Before the timeout of a request's head, after which they are closed.
    let admin = Web::new(service.admin);
    let status = tokio::time::timeout(TEST_TIMEOUT, fetch(&admin, "/api/v1/status")).await;
    assert_eq!(status.unwrap()["is_ready"], true);
    drop(silent);
}

#[tokio::test]
async fn metrics_follow_the_prometheus_conventions() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let client = Client::connect(service.grpc).await;
    let http = Web::new(service.http);
    client.hit("user", "ann").await;
    let older = http.get("/metrics").await;
    assert!(older.header("content-type").starts_with("text/plain; version=0.0.4"));
    assert!(
        older.body.contains("# TYPE tollgate_decisions_total counter\n")
            && !older.body.contains("# EOF")
    );
    assert!(older.body.contains("\ntollgate_call_duration_seconds_count 1\n"), "{older:?}");
    let newer = http
        .get_with(
            "/metrics",
            &[("accept", b"application/openmetrics-text;version=1.0.0,text/plain;q=0.5")],
        )
        .await;
    assert!(newer.header("content-type").starts_with("application/openmetrics-text"));
    assert!(
        newer.body.contains("# TYPE tollgate_decisions counter\n")
            && newer.body.ends_with("# EOF\n")
    );
}

#[tokio::test]
async fn rules_beyond_the_bound_are_counted_together() {
    let rules: String = (0..20)
        .map(|rule| {
            format!("  - key: k{rule}\n    rate_limit: {{ requests_per_unit: 5, unit: day }}\n")
        })
        .collect();
    let policies = Policies::of(&format!("domain: test\ndescriptors:\n{rules}"));
    let service = Tollgate::serve_with(policies.path(), &["--metrics-max-rules", "5"]);
    let client = Client::connect(service.grpc).await;
    let http = Web::new(service.http);
    for rule in 0..20 {
        client.hit(&format!("k{rule}"), "ann").await;
    }
    let metrics = http.get("/metrics").await.body;
    assert_eq!(
        metrics.lines().filter(|line| line.starts_with("tollgate_decisions_total{")).count(),
        6 * 7
    );
    assert_eq!(
        http.metric(r#"tollgate_decisions_total{domain="other",rule="other",outcome="allowed"}"#)
            .await,
        15
    );
}

fn guarded(folder: &Policies, flags: &[&str]) -> Tollgate {
    folder.write("tokens", &format!("# of the team\n{WRITER}\n"));
    folder.write("read-tokens", &format!("{READER}\n"));
    let tokens = folder.file("tokens");
    let read = folder.file("read-tokens");
    let own = [
        "--admin-token-file",
        tokens.to_str().unwrap(),
        "--admin-read-token-file",
        read.to_str().unwrap(),
    ];
    Tollgate::serve_with(&folder.file("policy.yaml"), &[&own, flags].concat())
}

async fn reload(admin: &Web, headers: &[(&'static str, &str)]) -> Reply {
    let headers: Vec<_> = headers.iter().copied().chain([("x-tollgate", "1")]).collect();
    admin.send_with("POST", "/api/v1/policies/reload", &headers, "").await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
