//! Reports of the service: its log, for pipelines and for operators who search the reason why a
//! request is not limited; and spans.

use std::net::SocketAddr;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{Istio, command};
use crate::spans::Collector;
use crate::support::process::Process;
use crate::support::rls::{Client, descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = r#"
domain: test
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
  - { key: watched, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: depth, descriptors: [{ key: more, rate_limit: { unit: year, requests_per_unit: 1 } }] }
"#;

/// Waits for a line with this message from which `read` returns a value, and returns that.
fn line<T>(process: &mut Process, message: &str, read: impl Fn(&Value) -> Option<T>) -> T {
    process.wait_for_line(message, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        read(&line).filter(|_| line["@message"] == message)
    })
}

async fn serve(istio: &Istio, folder: &TempDir) -> (Process, Client) {
    let variables = istio.variables(&[("LOG_FORMAT", "json")]);
    let mut process = Process::start("ratelimit", &mut command(folder.path(), &variables));
    let of_grpc = |line: &Value| {
        line["address"].as_str().filter(|_| line["protocol"] == "grpc")?.parse().ok()
    };
    let address: SocketAddr = line(&mut process, "listening", of_grpc);
    line(&mut process, "store connected", |_| Some(()));
    let client = Client::connect(address).await;
    (process, client)
}

#[tokio::test]
async fn spans_are_sent_over_http_unless_grpc_is_configured() {
    let istio = Istio::with(POLICY).await;
    let collector = Collector::start_by_http(0);
    let url = collector.url();
    let variables = [("TRACING_ENABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())];
    let mut service = istio.serve(&variables).await;
    service.client().await.decide(request(vec![descriptor(&[("free", "")])])).await.unwrap();
    let spans = becomes(
        "it is sent",
        TEST_TIMEOUT,
        || async { collector.spans() },
        |spans| !spans.is_empty(),
    )
    .await;
    assert_eq!(spans[0]["resource"]["service.name"], "RateLimit");
}

#[tokio::test]
async fn json_log_lines_have_the_names_and_levels_of_envoyproxy_ratelimit() {
    let istio = Istio::with(POLICY).await;
    let folder = TempDir::new().unwrap();
    let (mut process, client) = serve(&istio, &folder).await;
    let at = line(&mut process, "listening", |line| {
        Some((line["@timestamp"].clone(), line["level"].clone()))
    });
    at.0.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(at.1, "info");
    client.decide(request(vec![])).await.unwrap_err();
    let refused = "invalid requests rejected; most proxies admit a request after this error";
    let warning = line(&mut process, refused, |line| Some(line.clone()));
    assert_eq!((&warning["level"], &warning["times"]), (&"warning".into(), &1.into()), "{warning}");
    for line in process.log() {
        let line: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line} is no JSON"));
        assert!(line.get("timestamp").is_none() && line.get("fields").is_none(), "{line}");
    }
}

#[tokio::test]
async fn debug_shows_the_keys_the_rule_and_the_decision_of_each_request() {
    let istio = Istio::with(POLICY).await;
    let folder = TempDir::new().unwrap();
    let (mut process, client) = serve(&istio, &folder).await;
    let user = || descriptor(&[("user", "ann")]);
    let others = ["watched", "free", "depth", "unknown"].map(|key| descriptor(&[(key, "x")]));
    for (code, more) in [(Code::Ok, vec![]), (Code::OverLimit, others.to_vec())] {
        let answer = client.decide(request([vec![user()], more].concat())).await.unwrap();
        assert_eq!(answer.overall_code(), code);
    }
    for (text, rule, limit, decision, overall) in [
        ("user=ann", "user", "1 per 365d", "OK", "OK"),
        ("user=ann", "user", "1 per 365d", "OVER_LIMIT", "OVER_LIMIT"),
        ("watched=x", "watched", "0 per 365d", "OK: over limit in shadow mode", "OVER_LIMIT"),
        ("free=x", "free", "", "unlimited", "OVER_LIMIT"),
        ("depth=x", "depth", "", "no limit: the rule has no limit or is replaced", "OVER_LIMIT"),
        ("unknown=x", "", "", "no limit: no rule matches", "OVER_LIMIT"),
    ] {
        let expected = [("descriptor", text), ("decision", decision), ("request", overall)];
        let is_it = |line: &Value| expected.iter().all(|(name, value)| line[*name] == *value);
        let found = line(&mut process, "request", |line| is_it(line).then(|| line.clone()));
        assert_eq!((&found["rule"], &found["limit"]), (&rule.into(), &limit.into()), "{found}");
        assert_eq!((&found["level"], &found["domain"]), (&"debug".into(), &"test".into()));
    }
    let elsewhere = tollgate::grpc::proto::RateLimitRequest {
        domain: "other".to_owned(),
        ..request(vec![user()])
    };
    client.decide(elsewhere).await.unwrap();
    line(&mut process, "request", |line| {
        (line["decision"] == "no limit: no policy for this domain").then_some(())
    });
}
