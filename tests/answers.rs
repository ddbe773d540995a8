//! Headers, dynamic metadata, and process-wide modes, as a proxy sees them.

use std::time::SystemTime;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Value as Json, json};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitResponse};

use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, entry, limit, request};
use crate::support::tollgate::{Tollgate, command, quiet};

const POLICY: &str = r#"
domain: test
descriptors:
  - key: a
    rate_limit: { requests_per_unit: 2, unit: day }
    metadata: { team: first, cost: { a: 1 } }
    detailed_metric: true
  - key: b
    rate_limit: { name: 'b"s', requests_per_unit: 10, unit: day }
    metadata: { team: second, cost: { b: 2 } }
  - { key: vote, quota_mode: true, rate_limit: { requests_per_unit: 1, unit: day } }
  - { key: watched, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: day } }
  - { key: free, rate_limit: { unlimited: true } }
"#;

#[tokio::test]
async fn a_response_without_flags_has_statuses_only() {
    let (_service, client) = serve(&[]).await;
    let answer = decide(&client, &["a", "b"]).await;
    assert_eq!((answer.response_headers_to_add.len(), answer.dynamic_metadata), (0, None));
}

/// A limit of 0 has a reset time, too: without it Envoy sends `x-ratelimit-reset: 0`, which clients
/// read as now.
#[tokio::test]
async fn a_limit_of_0_reports_the_end_of_its_first_window_for_every_algorithm() {
    let windows = |first, second| format!("windows: [{{ {first} }}, {{ {second} }}]");
    let five = "requests_per_unit: 5, unit: hour";
    let ban = "requests_per_unit: 0, unit: day";
    let rules = [
        ("fixed_window", ban.to_owned(), 86_400),
        ("sliding_window", windows(five, ban), 3_600),
        ("sliding_log", windows(ban, five), 86_400),
        ("gcra", "requests_per_unit: 0, unit: minute".to_owned(), 60),
        ("token_bucket", "requests_per_unit: 0, unit: 30s".to_owned(), 30),
    ];
    let rule = |(name, limit, _): &(&str, String, u64)| {
        let limit = format!("rate_limit: {{ algorithm: {name}, {limit} }}");
        format!(
            "  - {{ key: {name}, {limit} }}\n  - {{ key: {name}, value: watched, shadow_mode: true, {limit} }}\n"
        )
    };
    let text =
        format!("domain: test\ndescriptors:\n{}", rules.iter().map(rule).collect::<String>());
    let service = Tollgate::serve(Policies::of(&text).path());
    let client = Client::connect(service.grpc).await;
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for (name, _, period) in rules {
        for (value, code) in [("", Code::OverLimit), ("watched", Code::Ok)] {
            let begun = now();
            let status = client.status(descriptor(&[(name, value)])).await;
            let left: Vec<u64> = (begun..=now()).map(|at| period - at % period).collect();
            assert_eq!((status.code(), status.limit_remaining), (code, 0), "{name}");
            let reset = status.duration_until_reset.expect(name);
            assert!(
                left.contains(&u64::try_from(reset.seconds).unwrap()),
                "{name} {value}: {reset:?}, not {left:?}"
            );
        }
    }
}

#[tokio::test]
async fn legacy_headers_show_the_tightest_limit_under_the_configured_names() {
    let (_service, client) =
        serve(&["--response-headers", "legacy", "--response-header-names", "X-L,X-Left,X-R"]).await;
    let answer = decide(&client, &["b", "a", "free", "none"]).await;
    let headers = headers(&answer);
    assert_eq!(headers[..2], ["X-L: 2", "X-Left: 1"]);
    let reset = answer.statuses[1].duration_until_reset.unwrap().seconds;
    assert_eq!(headers[2..], [format!("X-R: {reset}")]);
    assert_eq!(self::headers(&decide(&client, &["none"]).await), [""; 0], "no limit, no headers");
    assert_eq!(self::headers(&decide(&client, &["free"]).await), [""; 0]);
}

#[tokio::test]
async fn legacy_headers_show_the_denying_limit_even_in_global_shadow_mode() {
    let (_service, client) = serve(&["--response-headers", "legacy", "--shadow-mode"]).await;
    for expected in [(Code::Ok, "1"), (Code::Ok, "0"), (Code::OverLimit, "0")] {
        let answer = decide(&client, &["a", "b"]).await;
        assert_eq!((answer.overall_code(), answer.statuses[0].code()), (Code::Ok, expected.0));
        assert_eq!(
            headers(&answer)[..2],
            ["RateLimit-Limit: 2".to_owned(), format!("RateLimit-Remaining: {}", expected.1)]
        );
    }
}

#[tokio::test]
async fn the_standards_headers_have_all_limits() {
    let (_service, client) = serve(&["--response-headers", "ietf"]).await;
    let answer = client
        .decide(request(vec![of("a"), of("b"), of("a"), overridden("a"), of("none")]))
        .await
        .unwrap();
    let reset = answer.statuses[0].duration_until_reset.unwrap().seconds;
    let headers = headers(&answer);
    assert_eq!(
        headers[0],
        r#"RateLimit-Policy: "a";q=2;w=86400, "b\"s";q=10;w=86400, "override";q=7;w=3600"#
    );
    let left = headers[1].strip_prefix("RateLimit: ").unwrap();
    let items: Vec<&str> = left.split(", ").collect();
    assert_eq!(items[0], format!("\"a\";r=0;t={reset}"));
    assert!(
        items[1].starts_with(r#""b\"s";r=9;t="#) && items[3].starts_with(r#""override";r=6;t="#),
        "{left}"
    );
}

#[tokio::test]
async fn metadata_has_the_request_and_merges_that_of_admitting_rules() {
    let (_service, client) = serve(&["--dynamic-metadata"]).await;
    let mut costly = request(vec![
        of("a"),
        RateLimitDescriptor { hits_addend: Some(3), ..of("b") },
        overridden("none"),
    ]);
    costly.hits_addend = 2;
    let expected = json!({
        "domain": "test", "hitsAddend": 2.0, "remaining": 0.0,
        "descriptors": [
            {"entries": ["a=x"]}, {"entries": ["b=x"], "hitsAddend": 3.0},
            {"entries": ["none=x"], "limit": "requests_per_unit:7 unit:HOUR"},
        ],
        "metadata": {"team": "first", "cost": {"a": 1.0, "b": 2.0}},
    });
    assert_eq!(metadata(&client.decide(costly.clone()).await.unwrap()), expected);
    // Metadata merged for one request does not leak into the next, and a denial adds none.
    let alone = metadata(&client.decide(request(vec![of("b")])).await.unwrap());
    assert_eq!(alone["metadata"], json!({"team": "second", "cost": {"b": 2.0}}));
    assert_eq!(alone["remaining"], 6.0);
    assert_eq!(metadata(&client.decide(costly).await.unwrap())["metadata"], alone["metadata"]);
}

#[tokio::test]
async fn metadata_has_no_remaining_hits_of_shadow_mode_or_without_a_limit() {
    let (_service, client) = serve(&["--dynamic-metadata"]).await;
    let left = async |keys: &[&str]| metadata(&decide(&client, keys).await)["remaining"].clone();
    assert_eq!(left(&["watched", "b", "free", "none"]).await, 9.0);
    assert_eq!(left(&["watched", "free", "none"]).await, Json::Null);
}

#[tokio::test]
async fn metadata_is_text_whatever_the_bytes_of_the_request() {
    let (_service, client) = serve(&["--dynamic-metadata"]).await;
    let bytes =
        RateLimitDescriptor { entries: vec![entry(b"a", b"\xff\0\xc3")], ..Default::default() };
    let answer = client.decide(request(vec![bytes])).await.unwrap();
    assert_eq!(metadata(&answer)["descriptors"], json!([{"entries": ["a=\u{fffd}\0\u{fffd}"]}]));
}

#[tokio::test]
async fn in_quota_mode_a_request_is_admitted_if_one_descriptor_is() {
    let (_service, client) = serve(&["--quota-mode"]).await;
    let overall = async |keys: &[&str]| decide(&client, keys).await.overall_code();
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(overall(&["a"]).await, expected);
    }
    assert_eq!(overall(&["a", "b"]).await, Code::Ok);
    assert_eq!(overall(&["a", "none"]).await, Code::Ok);
    assert_eq!(overall(&["a", "free"]).await, Code::OverLimit);
    assert_eq!(overall(&["a", "watched"]).await, Code::Ok);
    assert_eq!(overall(&["a", "vote"]).await, Code::Ok);
    assert_eq!(overall(&["a", "vote"]).await, Code::OverLimit);
}

#[test]
fn invalid_header_names_are_reported_at_startup() {
    let wrong = ["--response-headers", "draft", "--response-header-names", "a,b"];
    let ended = command(quiet(&[])).args(wrong).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        error.contains("--response-headers: ") && error.contains("--response-header-names: "),
        "{error}"
    );
}

async fn serve(flags: &[&str]) -> (Tollgate, Client) {
    let service = Tollgate::serve_with(Policies::of(POLICY).path(), flags);
    let client = Client::connect(service.grpc).await;
    (service, client)
}

fn of(key: &str) -> RateLimitDescriptor {
    descriptor(&[(key, "x")])
}

/// Returns a descriptor with a limit override of 7 per hour.
fn overridden(key: &str) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: limit(7, 3), ..of(key) }
}

/// Sends a request with one hit on each key.
async fn decide(client: &Client, keys: &[&str]) -> RateLimitResponse {
    client.decide(request(keys.iter().map(|key| of(key)).collect())).await.unwrap()
}

fn headers(answer: &RateLimitResponse) -> Vec<String> {
    answer
        .response_headers_to_add
        .iter()
        .map(|header| format!("{}: {}", header.key, header.value))
        .collect()
}

fn metadata(answer: &RateLimitResponse) -> Json {
    structure(answer.dynamic_metadata.as_ref().unwrap())
}

fn structure(all: &Struct) -> Json {
    all.fields.iter().map(|(name, value)| (name.clone(), shown(value))).collect()
}

fn shown(value: &Value) -> Json {
    match value.kind.as_ref().unwrap() {
        Kind::NullValue(_) => Json::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(truth) => json!(truth),
        Kind::ListValue(list) => list.values.iter().map(shown).collect(),
        Kind::StructValue(all) => structure(all),
    }
}
