//! Policies from a control plane: served, refused, lost and restored.

mod connection;
mod delta;

use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::control_plane::ControlPlane;
use crate::support::policy::Policies;
use crate::support::rls::{Client, channel};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Returns a resource for domain `test`: `amount` per day for each value of `key`.
fn daily(key: &str, amount: u32) -> Value {
    json!({ "name": "test", "domain": "test", "descriptors": [limit(key, amount)] })
}

fn limit(key: &str, amount: u32) -> Value {
    json!({ "key": key, "rate_limit": { "unit": "DAY", "requests_per_unit": amount } })
}

/// Returns a resource that does not compile.
fn broken() -> Value {
    json!({ "name": "test", "domain": "test", "descriptors": [{ "key": "user", "rate_limit": { "requests_per_unit": 1 } }] })
}

/// Starts a service that follows `plane`, with a short backoff.
fn follow(plane: &ControlPlane, flags: &[&str]) -> Tollgate {
    let target = format!("127.0.0.1:{}", plane.port);
    let usual = [("--xds-backoff-min", "20ms"), ("--xds-backoff-max", "200ms")];
    let usual = usual
        .into_iter()
        .filter(|(flag, _)| !flags.contains(flag))
        .flat_map(|(flag, value)| [flag, value]);
    let usual: Vec<&str> = ["--xds", &target].into_iter().chain(usual).collect();
    Tollgate::serve_by(&[&usual, flags].concat())
}

/// Waits until the limit of `user` has the given amount.
async fn limit_becomes(service: &Tollgate, amount: Option<u32>) {
    becomes("it is ready", TEST_TIMEOUT, || ready(service), |status| *status == 200).await;
    let client = Client::connect(service.grpc).await;
    client.limit_becomes("user", "ann", amount).await;
}

async fn ready(service: &Tollgate) -> u16 {
    Web::new(service.http).get("/readyz").await.status
}

async fn metric(service: &Tollgate, name: &str) -> u64 {
    Web::new(service.http).metric(name).await
}

/// Waits until a metric has the given value.
async fn metric_becomes(service: &Tollgate, name: &str, value: u64) {
    becomes(name, TEST_TIMEOUT, || metric(service, name), |found| *found == value).await;
}

fn refuses(request: &Value) -> bool {
    request["error_detail"].is_object()
}

#[tokio::test]
async fn every_change_is_served_and_acknowledged() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;

    let first =
        plane.wait_for_request("the first request", |request| request["response_nonce"].is_null());
    assert_eq!(
        first["type_url"],
        "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
    );
    assert!(first["version_info"].is_null() && first["resource_names"].is_null(), "{first}");
    assert_eq!(first["node"]["id"], "default");
    let taken = plane
        .wait_for_request("that the second is taken", |request| request["response_nonce"] == "2");
    assert_eq!((&taken["version_info"], refuses(&taken)), (&json!("2"), false));
    assert_eq!(metric(&service, "tollgate_policy_loads_total{kind=\"loaded\"}").await, 2);
    assert_eq!(metric(&service, "tollgate_xds_connected").await, 1);
}

#[tokio::test]
async fn a_bad_change_is_refused_with_the_reason_and_the_running_policies_stay() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let mut service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[broken()]);
    let refused = plane.wait_for_request("that the second is refused", refuses);
    assert_eq!((&refused["version_info"], &refused["response_nonce"]), (&json!("1"), &json!("2")));
    assert_eq!(refused["error_detail"]["code"], 3);
    let reason = refused["error_detail"]["message"].as_str().unwrap();
    assert!(reason.contains("invalid unit `unknown`") && reason.contains("test:5:13"), "{reason}");
    service.process.wait_for_line("the rejection, with place and reason", |line| {
        line.contains("test:5:13").then_some(())
    });
    limit_becomes(&service, Some(5)).await;
    assert_eq!(metric(&service, "tollgate_policy_loads_total{kind=\"refused\"}").await, 1);

    plane.serve("3", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;
}

#[tokio::test]
async fn resources_that_cannot_be_decoded_are_refused() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[daily("user", 6), json!({ "broken": "other" })]);
    let refused = plane.wait_for_request("that the second is refused", refuses);
    assert!(
        refused["error_detail"]["message"].as_str().unwrap().contains("invalid RateLimitConfig"),
        "{refused}"
    );
    limit_becomes(&service, Some(5)).await;
}

#[tokio::test]
async fn resources_of_another_type_are_ignored() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve_content(
        &json!({ "version": "2", "resources": [], "type_url": "type.googleapis.com/another.Type" }),
    );
    plane.serve("3", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;
    plane.wait_for_request("that the third is taken", |request| request["version_info"] == "3");
    assert!(plane.events("request").iter().all(|request| request["version_info"] != "2"));
}

#[tokio::test]
async fn an_empty_configuration_lifts_all_limits() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[]);
    limit_becomes(&service, None).await;
    plane.wait_for_request("that it is taken", |request| {
        request["version_info"] == "2" && !refuses(request)
    });
}

#[tokio::test]
async fn without_a_first_configuration_calls_are_unavailable() {
    let mut plane = ControlPlane::start(&[broken()]);
    let service = follow(&plane, &[]);
    plane.wait_for_request("that the first is refused", refuses);
    assert_eq!(ready(&service).await, 503);
    let mut health = HealthClient::new(channel(service.grpc).await);
    let mut serves =
        async || health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
    assert_eq!(serves().await, ServingStatus::NotServing);
    let client = Client::connect(service.grpc).await;
    let descriptor = crate::support::rls::descriptor(&[("user", "ann")]);
    let refused = client.decide(crate::support::rls::request(vec![descriptor])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    plane.serve("2", &[daily("user", 5)]);
    limit_becomes(&service, Some(5)).await;
    let begun = std::time::Instant::now();
    while serves().await != ServingStatus::Serving {
        assert!(begun.elapsed() < TEST_TIMEOUT, "health does not follow");
    }
}

#[tokio::test]
async fn a_control_plane_that_repeats_a_bad_change_is_refused_slowly() {
    let mut plane = ControlPlane::start_with(&["--eager"], &[broken()]);
    let service = follow(&plane, &["--xds-backoff-min", "1h", "--xds-backoff-max", "1h"]);
    plane.wait_for_request("the first refusal", refuses);
    let refused = "tollgate_policy_loads_total{kind=\"refused\"}";
    metric_becomes(&service, refused, 2).await;
    let refusals = plane.events("request").iter().filter(|request| refuses(request)).count();
    assert_eq!(refusals, 1, "the second is held back");
    // A corrected resource is processed despite the backoff.
    plane.serve("2", &[daily("user", 5)]);
    limit_becomes(&service, Some(5)).await;
}

#[tokio::test]
async fn resources_of_envoy_gateway_limit_requests_of_its_envoys() {
    let route = "httproute/default/app/rule/0/match/0/*";
    let header = json!({ "key": "rule-0-match-0", "value": "rule-0-match-0", "rate_limit": { "unit": "HOUR", "requests_per_unit": 3 } });
    let config = json!({
        "name": "default/eg/http", "domain": "default/eg/http",
        "descriptors": [{ "key": route, "value": route, "descriptors": [header] }],
    });
    let plane = ControlPlane::start(&[config]);
    let service = follow(&plane, &["--xds-node-id", "envoy-ratelimit"]);
    becomes("it is ready", TEST_TIMEOUT, || ready(&service), |status| *status == 200).await;
    let client = Client::connect(service.grpc).await;
    let descriptor =
        crate::support::rls::descriptor(&[(route, route), ("rule-0-match-0", "rule-0-match-0")]);
    let mut request = crate::support::rls::request(vec![descriptor]);
    request.domain = "default/eg/http".to_owned();
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(client.decide(request.clone()).await.unwrap().overall_code);
    }
    assert_eq!(codes, [1, 1, 1, 2]);
    assert_eq!(plane.events("request")[0]["node"]["id"], "envoy-ratelimit");
}

#[tokio::test]
async fn an_overlay_and_metadata_set_options_that_the_protocol_lacks() {
    let files = Policies::none();
    files.write(
        "overlay.yaml",
        "overlay:\n- key: user\n  rate_limit: { algorithm: gcra, burst: 2 }\n",
    );
    let overlay = files.file("overlay.yaml");
    let mut other = limit("plan", 9);
    other["metadata"] =
        json!({ "tollgate": { "rate_limit": { "algorithm": "token_bucket", "burst": 3 } } });
    let config =
        json!({ "name": "test", "domain": "test", "descriptors": [limit("user", 5), other] });
    let plane = ControlPlane::start(&[config]);
    let service = follow(&plane, &["--overlay", overlay.to_str().unwrap()]);
    limit_becomes(&service, Some(5)).await;
    let client = Client::connect(service.grpc).await;
    assert_eq!(admitted(&client, "user", 4).await, 2);
    assert_eq!(admitted(&client, "plan", 5).await, 3);

    // The overlay changes at run time; an invalid change is refused.
    files.write(
        "overlay.yaml",
        "overlay:\n- key: user\n  rate_limit: { algorithm: gcra, burst: 0 }\n",
    );
    let refused = "tollgate_policy_loads_total{kind=\"refused\"}";
    metric_becomes(&service, refused, 1).await;
    files.write(
        "overlay.yaml",
        "overlay:\n- key: user\n  rate_limit: { algorithm: gcra, burst: 4 }\n",
    );
    let loaded = "tollgate_policy_loads_total{kind=\"loaded\"}";
    metric_becomes(&service, loaded, 2).await;
}

async fn admitted(client: &Client, key: &str, hits: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..hits {
        admitted += usize::from(client.hit(key, "ann").await);
    }
    admitted
}
