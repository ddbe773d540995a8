//! The deployment by Istio's sample: a ConfigMap, a Redis, no TLS.

use std::time::SystemTime;

use serde_json::{Value, json};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::rate_limit::Unit;
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::variables::policy;
use super::{ConfigMap, Istio};
use crate::support::policy::daily;
use crate::support::rls::{Client, channel, descriptor, limit, request};

const POLICY: &str = r#"
domain: test
descriptors:
  - key: PATH
    value: "/productpage"
    rate_limit: { unit: YEAR, requests_per_unit: 2 }
  - key: PATH
    value: "/api/*"
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: PATH
    rate_limit: { unit: hour, requests_per_unit: 100 }
    descriptors:
      - key: method
        rate_limit: { unit: week, requests_per_unit: 5, name: writes }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: month, requests_per_unit: 1 }
  - key: vote
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
  - key: strict
    rate_limit: { unit: year, requests_per_unit: 7, replaces: [{ name: writes }] }
"#;
pub(super) const BROKEN: &str = "domain: test\ndescriptors:\n  - kee: user\n";
const ASK: &str =
    r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;

/// Returns the length of that service's units: months and years are not those of the calendar.
const fn seconds(unit: Unit) -> u64 {
    match unit {
        Unit::Unknown => 0,
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 3_600,
        Unit::Day => 86_400,
        Unit::Week => 604_800,
        Unit::Month => 30 * 86_400,
        Unit::Year => 365 * 86_400,
    }
}

/// Sends a request and checks all fields of the statuses: the time until the window ends against
/// the clock, the others against `expected`.
async fn answers(
    client: &Client,
    descriptors: Vec<RateLimitDescriptor>,
    overall: Code,
    expected: &[DescriptorStatus],
) {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let begun = now();
    let mut answer = client.decide(request(descriptors)).await.unwrap();
    let ended = now();
    for status in &mut answer.statuses {
        let Some(limit) = &status.current_limit else { continue };
        let unit = seconds(limit.unit());
        let left = |at: u64| i64::try_from(unit - at % unit).unwrap();
        let reset = status.duration_until_reset.take().expect("a limit has an end of its window");
        assert!(
            (begun..=ended).any(|at| reset.seconds == left(at)),
            "{reset:?} of {limit:?} at {begun}"
        );
        assert_eq!(reset.nanos, 0);
    }
    assert_eq!(answer.statuses, expected);
    assert_eq!(answer.overall_code(), overall);
    assert_eq!((answer.response_headers_to_add.len(), answer.dynamic_metadata), (0, None));
}

fn of(code: Code, unit: Unit, requests_per_unit: u32, limit_remaining: u32) -> DescriptorStatus {
    let limit = RateLimit { requests_per_unit, unit: unit.into(), ..Default::default() };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(limit),
        limit_remaining,
        ..Default::default()
    }
}

fn named(name: &str, mut status: DescriptorStatus) -> DescriptorStatus {
    status.current_limit.as_mut().unwrap().name = name.to_owned();
    status
}

/// Returns the status of a descriptor without a limit.
fn none(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..Default::default() }
}

fn taking(hits: u64, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

#[tokio::test]
async fn responses_equal_those_of_envoyproxy_ratelimit_in_every_field() {
    let istio = Istio::with(POLICY).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    let page = || vec![descriptor(&[("PATH", "/productpage")])];
    for (code, left) in [(Code::Ok, 1), (Code::Ok, 0), (Code::OverLimit, 0), (Code::OverLimit, 0)] {
        answers(&client, page(), code, &[of(code, Unit::Year, 2, left)]).await;
    }
    // Hits that do not fit are counted nevertheless; 0 hits are a peek.
    let api = |hits| vec![taking(hits, &[("PATH", "/api/x")])];
    answers(&client, api(8), Code::Ok, &[of(Code::Ok, Unit::Day, 10, 2)]).await;
    answers(&client, api(0), Code::Ok, &[of(Code::Ok, Unit::Day, 10, 2)]).await;
    answers(&client, api(5), Code::OverLimit, &[of(Code::OverLimit, Unit::Day, 10, 0)]).await;
    answers(&client, api(1), Code::OverLimit, &[of(Code::OverLimit, Unit::Day, 10, 0)]).await;
    answers(
        &client,
        vec![taking(1, &[("PATH", "/api/y")])],
        Code::Ok,
        &[of(Code::Ok, Unit::Day, 10, 9)],
    )
    .await;
    // Only the rule at the depth of the last entry applies.
    let write = || descriptor(&[("PATH", "/x"), ("method", "PUT")]);
    let other = vec![
        descriptor(&[("PATH", "/x")]),
        write(),
        descriptor(&[("PATH", "/x"), ("deeper", "1")]),
    ];
    let writes = named("writes", of(Code::Ok, Unit::Week, 5, 4));
    answers(&client, other, Code::Ok, &[of(Code::Ok, Unit::Hour, 100, 99), writes, none(0)]).await;
    // A limit that is replaced by another counts nothing and is not in the status.
    let replaced = vec![write(), descriptor(&[("strict", "")])];
    answers(&client, replaced, Code::Ok, &[none(0), of(Code::Ok, Unit::Year, 7, 6)]).await;
    answers(&client, vec![write()], Code::Ok, &[named("writes", of(Code::Ok, Unit::Week, 5, 3))])
        .await;
    answers(&client, vec![descriptor(&[("free", "")])], Code::Ok, &[none(u32::MAX)]).await;
    let own = RateLimitDescriptor {
        limit: limit(3, 7),
        ..descriptor(&[("PATH", "/productpage"), ("own", "")])
    };
    answers(&client, vec![own], Code::Ok, &[of(Code::Ok, Unit::Week, 3, 2)]).await;
}

/// envoyproxy/ratelimit bounds only the size of the message, and Envoy admits requests that are
/// refused.
#[tokio::test]
async fn a_thousand_descriptors_and_a_thousand_entries_are_decided() {
    let istio = Istio::with(POLICY).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    let each = |number: usize| descriptor(&[("PATH", &format!("/api/{number}"))]);
    let answer = client.decide(request((0..1_000).map(each).collect())).await.unwrap();
    let remaining: Vec<u32> = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(remaining, [9; 1_000]);
    // One counter a thousand times: ten hits are left.
    let answer =
        client.decide(request(vec![descriptor(&[("PATH", "/api/all")]); 1_000])).await.unwrap();
    let over = answer.statuses.iter().filter(|status| status.code() == Code::OverLimit).count();
    assert_eq!((answer.statuses.len(), over), (1_000, 990));
    let deep: Vec<(&str, &str)> =
        [("PATH", "/a"), ("method", "POST")].into_iter().cycle().take(1_000).collect();
    answers(&client, vec![descriptor(&deep)], Code::Ok, &[none(0)]).await;
}

#[tokio::test]
async fn shadow_and_quota_mode_respond_as_envoyproxy_ratelimit() {
    let istio = Istio::with(POLICY).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    let watched = || vec![descriptor(&[("watched", "x")])];
    for _ in 0..2 {
        answers(&client, watched(), Code::Ok, &[of(Code::Ok, Unit::Month, 1, 0)]).await;
    }
    let vote = |value| descriptor(&[("vote", value)]);
    answers(&client, vec![vote("a")], Code::Ok, &[of(Code::Ok, Unit::Year, 1, 0)]).await;
    let over = of(Code::OverLimit, Unit::Year, 1, 0);
    answers(
        &client,
        vec![vote("a"), vote("b")],
        Code::Ok,
        &[over.clone(), of(Code::Ok, Unit::Year, 1, 0)],
    )
    .await;
    answers(&client, vec![vote("a"), vote("b")], Code::OverLimit, &[over.clone(), over]).await;
}

#[tokio::test]
async fn every_descriptor_is_charged_independently_of_the_others() {
    let rules = [
        ("a", "unit: year, requests_per_unit: 5"),
        ("b", "unit: year, requests_per_unit: 1"),
        ("never", "unit: day"),
        ("now", "unit: second, requests_per_unit: 4294967295"),
    ];
    let istio = Istio::with(&policy(&rules)).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    let a = || descriptor(&[("a", "")]);
    let b = || descriptor(&[("b", "")]);
    let yearly = |code, amount, left| of(code, Unit::Year, amount, left);
    // One counter twice is two hits. That service reports for the first the hits that remain before
    // the second; this one reports for both the hits that remain after the request.
    let twice = [yearly(Code::Ok, 5, 3), yearly(Code::Ok, 5, 3), yearly(Code::Ok, 1, 0)];
    answers(&client, vec![a(), a(), b()], Code::Ok, &twice).await;
    for left in [2, 1] {
        let over = [yearly(Code::OverLimit, 1, 0), yearly(Code::Ok, 5, left)];
        answers(&client, vec![b(), a()], Code::OverLimit, &over).await;
    }
    let mut costly = request(vec![a(), taking(0, &[("a", "")])]);
    costly.hits_addend = 3;
    let answer = client.decide(costly).await.unwrap();
    assert_eq!(
        answer.overall_code(),
        Code::OverLimit,
        "the descriptor's hits win over those of the request"
    );
    answers(&client, vec![a()], Code::OverLimit, &[yearly(Code::OverLimit, 5, 0)]).await;
    // Envoy reports when the window ends, although clients are over limit in the next one too.
    answers(
        &client,
        vec![descriptor(&[("never", "")])],
        Code::OverLimit,
        &[of(Code::OverLimit, Unit::Day, 0, 0)],
    )
    .await;
    answers(
        &client,
        vec![descriptor(&[("now", "")])],
        Code::Ok,
        &[of(Code::Ok, Unit::Second, u32::MAX, u32::MAX - 1)],
    )
    .await;
}

#[tokio::test]
async fn json_is_decided_and_an_invalid_request_is_400() {
    let istio = Istio::with(&daily("user", 1)).await;
    let service = istio.serve(&[]).await;
    let first = service.http.send("POST", "/json", ASK).await;
    let second = service.http.send("POST", "/json", ASK).await;
    let statuses = |text: &str| {
        let mut answer: Value = serde_json::from_str(text).unwrap();
        let status = answer["statuses"][0].as_object_mut().unwrap();
        assert!(status.remove("durationUntilReset").unwrap().as_str().unwrap().ends_with('s'));
        answer
    };
    let limit = json!({ "requestsPerUnit": 1, "unit": "DAY" });
    let expected = |code| json!({ "overallCode": code, "statuses": [{ "code": code, "currentLimit": limit }] });
    assert_eq!((first.status, statuses(&first.body)), (200, expected("OK")));
    assert_eq!((second.status, statuses(&second.body)), (429, expected("OVER_LIMIT")));
    assert_eq!(second.header("content-type"), "application/json");
    for wrong in ["", "{}", r#"{"domain": "test", "descriptors": [], "more": 1}"#] {
        assert_eq!(service.http.send("POST", "/json", wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(service.http.get("/elsewhere").await.status, 404);
}

#[tokio::test]
async fn health_and_the_pages_keep_their_paths() {
    let istio = Istio::with(POLICY).await;
    let mut service = istio.serve(&[]).await;
    let health = service.http.get("/healthcheck").await;
    assert_eq!((health.status, health.body.as_str()), (200, "OK"));
    let mut grpc = HealthClient::new(channel(service.grpc()).await);
    for name in ["", "ratelimit"] {
        let check = HealthCheckRequest { service: name.to_owned() };
        assert_eq!(grpc.check(check).await.unwrap().into_inner().status(), ServingStatus::Serving);
    }
    let unknown = grpc.check(HealthCheckRequest { service: "other".to_owned() }).await;
    assert_eq!(unknown.unwrap_err().code(), tonic::Code::NotFound);
    insta::assert_snapshot!(service.admin.get("/rlconfig").await.body, @r"
    test.PATH_/productpage: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false
    test.PATH_/api/*: unit=DAY requests_per_unit=10, shadow_mode: false, quota_mode: false
    test.PATH: unit=HOUR requests_per_unit=100, shadow_mode: false, quota_mode: false
    test.PATH.method: unit=WEEK requests_per_unit=5, shadow_mode: false, quota_mode: false
    test.watched: unit=MONTH requests_per_unit=1, shadow_mode: true, quota_mode: false
    test.vote: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: true
    test.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
    test.strict: unit=YEAR requests_per_unit=7, shadow_mode: false, quota_mode: false
    ");
    for path in ["/", "/stats"] {
        assert_eq!(service.admin.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn ipv6_any_takes_ipv4_as_well() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // A machine without IPv6.
    }
    let istio = Istio::with(&daily("user", 5)).await;
    let mut service =
        istio.serve(&[("HOST", "::"), ("GRPC_HOST", "::"), ("DEBUG_HOST", "::")]).await;
    assert!(service.client().await.hit("user", "ann").await);
    assert!(service.admin.get("/rlconfig").await.body.starts_with("test.user: "));
}

#[test]
fn a_config_map_is_what_kubernetes_mounts() {
    let mut map = ConfigMap::of("a");
    map.swap("b");
    let folder = map.files.file("ratelimit/config");
    assert_eq!(std::fs::read_to_string(folder.join("policy.yaml")).unwrap(), "b");
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["..2", "..data", "policy.yaml"]);
}
