//! Waits on every way out: a table of ways and outcomes.

use super::*;
use crate::grpc::json;
use crate::grpc::json::HoldPath;

/// A key for each outcome; requests charge as many hits as `CASES` says.
const POLICY: &str = "
domain: shop
defaults: { charge: admitted }
descriptors:
- { key: fixed, rate_limit: { unit: hour, requests_per_unit: 10 } }
- { key: sliding, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: sliding_window } }
- { key: log, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: sliding_log } }
- { key: gcra, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: gcra } }
- { key: bucket, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: token_bucket, burst: 20 } }
- key: several
  rate_limit: { windows: [{ unit: minute, requests_per_unit: 10 }, { unit: day, requests_per_unit: 100 }] }
- { key: flight, rate_limit: { algorithm: concurrency, in_flight: 10, hold: { ttl: 90s } } }
- { key: ban, rate_limit: { unit: hour, requests_per_unit: 0 } }
- { key: closed, rate_limit: { algorithm: concurrency, in_flight: 0, hold: { ttl: 90s } } }
- { key: short, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
- { key: long, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
- { key: none, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
requests:
";

/// Outcomes: the keys of the descriptors, the hits of the first requests, and of that whose answer
/// is in the table.
const CASES: [(&str, &[&str], u32, u32); 19] = [
    ("allowed", &["fixed"], 1, 1),
    ("denied", &["fixed"], 10, 1),
    ("fewer would fit", &["fixed"], 4, 8),
    ("never", &["fixed"], 1, 11),
    ("never, unused", &["fixed"], 0, 11),
    ("never", &["sliding"], 1, 11),
    ("never", &["log"], 1, 11),
    ("never", &["gcra"], 1, 11),
    ("denied", &["bucket"], 20, 1),
    ("never", &["bucket"], 1, 21),
    ("never in one window", &["several"], 1, 11),
    ("denied", &["flight"], 10, 1),
    ("never", &["flight"], 1, 11),
    ("ban", &["ban"], 0, 1),
    ("ban", &["closed"], 0, 1),
    ("votes", &["short", "long"], 1, 1),
    ("votes, one never", &["short", "none"], 1, 1),
    ("votes, all never", &["none"], 0, 1),
    ("a ban and votes", &["ban", "short", "long"], 1, 1),
];

/// Returns the policy, with a mapping for each case and each number of hits.
fn policy() -> String {
    let mut text = POLICY.to_owned();
    for (number, (_, keys, first, hits)) in CASES.iter().enumerate() {
        for (name, hits) in [("first", first), ("then", hits)] {
            let entries =
                keys.iter().map(|key| format!("{{ hits: {hits}, entries: {{ {key}: a }} }}"));
            let entries = entries.collect::<Vec<_>>().join(", ");
            text += &format!("- {{ name: {name}-{number}, descriptors: [{entries}] }}\n");
        }
    }
    text
}

fn descriptors(keys: &[&'static str], hits: u32) -> Vec<RateLimitDescriptor> {
    let one = |key: &&'static str| RateLimitDescriptor {
        entries: vec![Entry { key: (*key).into(), value: "a".into() }],
        hits_addend: Some(hits.into()),
        ..Default::default()
    };
    keys.iter().map(one).collect()
}

/// Returns what a response says of waits: a status for each descriptor, and headers.
fn waits_of(answer: &[u8]) -> String {
    let answer = RateLimitResponse::decode(answer).unwrap();
    let statuses = answer.statuses.iter().map(|status| {
        let code = if status.code() == Overall::Ok { "ok" } else { "over" };
        let wait = status.duration_until_reset.map(|wait| wait.seconds);
        let wait = wait.map_or_else(|| "absent".to_owned(), |wait| wait.to_string());
        format!("{code} r={} d={wait}", status.limit_remaining)
    });
    let statuses = statuses.collect::<Vec<_>>().join(" | ");
    format!(
        "{statuses}; {}",
        in_headers(
            answer
                .response_headers_to_add
                .iter()
                .map(|header| (header.key.as_str(), header.value.as_str()))
        )
    )
}

fn in_headers<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let shown = headers.filter(|(name, _)| ["retry-after", "x-reset", "RateLimit"].contains(name));
    shown.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
}

fn by_gateway(answer: &GatewayAnswer) -> String {
    let status = answer.denial.as_ref().map_or(200, |denial| denial.status.as_u16());
    let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    format!("{status}; {}", in_headers(headers))
}

/// Returns the status and headers of `/json` as its handler makes them, and its body.
fn in_json(answered: CallerAnswer, answer: &[u8]) -> String {
    let header = match answered {
        CallerAnswer::Ok => "200".to_owned(),
        CallerAnswer::OverLimit { retry_after: None } => "429".to_owned(),
        CallerAnswer::OverLimit { retry_after: Some(seconds) } => {
            format!("429; retry-after: {seconds}")
        }
    };
    let body = json::response(answer).unwrap();
    let statuses =
        body["statuses"].as_array().unwrap().iter().map(|status| {
            format!("r={} d={}", status["limitRemaining"], status["durationUntilReset"])
        });
    format!("{header}; {}", statuses.collect::<Vec<_>>().join(" | "))
}

#[test]
fn each_way_out_sends_the_same_wait_and_none_that_is_never_over() {
    let clock = Arc::<ManualClock>::default();
    // Ten seconds after the begin of an hour, 12 hours of a day are left.
    clock.set(Timestamp::from_micros((1_780_012_800 + 10) * 1_000_000));
    let mut table = String::new();
    for (number, (name, keys, first, hits)) in CASES.iter().enumerate() {
        let rls = |to: &ManualRls, hits| {
            let descriptors = descriptors(keys, hits);
            let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
            let mut answer = Vec::new();
            let proxy = Caller { receiver: Receiver::Proxy, ..to.http_caller() };
            ready(to.answer(&request.encode_to_vec(), proxy, None, &mut answer)).unwrap();
            waits_of(&answer)
        };
        let gateway = |to: &ManualRls, name: &str| {
            let mapping = format!("{name}-{number}");
            let http = GatewayRequest { method: b"GET", target: b"/", ..GatewayRequest::default() };
            let call = GatewayCall { mapping: Some(&mapping), http, caller: to.http_gateway() };
            by_gateway(&ready(to.decide_http(call, None)).unwrap())
        };
        let json = |to: &ManualRls, hits| {
            let descriptors = descriptors(keys, hits);
            let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
            let mut answer = Vec::new();
            let message = request.encode_to_vec();
            let answered = ready(to.answer(&message, to.http_caller(), None, &mut answer)).unwrap();
            in_json(answered, &answer)
        };
        let hold = |to: &ManualRls, hits: u32| {
            let entries =
                keys.iter().map(|key| format!(r#"{{"entries":[{{"key":"{key}","value":"a"}}]}}"#));
            let entries = entries.collect::<Vec<_>>().join(",");
            let text = format!(
                r#"{{"domain":"shop","id":"{hits}","hits":{hits},"descriptors":[{entries}]}}"#
            );
            let call = json::hold_text(HoldPath::Reserve, text.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let answered = ready(to.hold(call, to.http_caller(), None, &mut answer));
            answered
                .map(|answered| format!("{}; {}", waits_of(&answer), in_json(answered, &answer)))
        };
        let fresh = || service(compiled("waits.yaml", &policy()), &clock);
        table += &format!("{name}: {hits} after {first} of {}\n", keys.join(", "));
        let to = fresh();
        rls(&to, *first);
        table += &format!("  RLS          {}\n", rls(&to, *hits));
        let to = fresh();
        gateway(&to, "first");
        table += &format!("  gateways     {}\n", gateway(&to, "then"));
        let to = fresh();
        json(&to, *first);
        table += &format!("  JSON         {}\n", json(&to, *hits));
        let to = fresh();
        rls(&to, *first);
        let reserved = hold(&to, *hits).unwrap_or_else(|status| status.to_string());
        table += &format!("  HoldService  {reserved}\n");
    }
    insta::assert_snapshot!(table);
}
