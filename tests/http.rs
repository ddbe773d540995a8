//! Decisions in JSON over HTTP, and the admin pages.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::TEST_TIMEOUT;
use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, lasting_address};
use crate::support::web::Web;

const REQUEST: &str =
    r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;

#[tokio::test]
async fn a_request_in_json_is_decided_by_any_method() {
    let (_service, web) = serve(&daily("user", 2), &[]);
    for (method, status, expected) in [("POST", 200, json!(1)), ("PUT", 200, Value::Null)] {
        let reply = web.send(method, "/json", REQUEST).await;
        assert_eq!((reply.status, reply.header("content-type")), (status, "application/json"));
        let answer: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(answer["overallCode"], "OK");
        assert_eq!(answer["statuses"][0]["limitRemaining"], expected, "what is 0 is left out");
        assert_eq!(
            answer["statuses"][0]["currentLimit"],
            json!({"requestsPerUnit": 2, "unit": "DAY"})
        );
    }
    let denied = web.send("POST", "/json", REQUEST).await;
    assert_eq!(denied.status, 429);
    let seconds: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&seconds), "{seconds}");
    let answer: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!(
        (&answer["overallCode"], &answer["statuses"][0]["code"]),
        (&json!("OVER_LIMIT"), &json!("OVER_LIMIT"))
    );
    assert!(
        answer["statuses"][0]["durationUntilReset"].as_str().unwrap().ends_with('s'),
        "{answer}"
    );
}

#[tokio::test]
async fn a_denial_that_fewer_hits_would_fit_tells_what_remains() {
    let admitted = daily("user", 5).replace("unit: day", "unit: day, charge: admitted");
    let (_service, web) = serve(&admitted, &[]);
    let of = |hits: u32| {
        format!(
            r#"{{"domain": "test", "descriptors": [{{"entries": [{{"key": "user", "value": "ann"}}], "hitsAddend": {hits}}}]}}"#
        )
    };
    assert_eq!(web.send("POST", "/json", of(4)).await.status, 200);
    let denied = web.send("POST", "/json", of(2)).await;
    assert_eq!(denied.status, 429);
    let answer: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!(answer["statuses"][0]["code"], "OVER_LIMIT");
    assert_eq!(answer["statuses"][0]["limitRemaining"], 1);
    assert_eq!(web.send("POST", "/json", of(1)).await.status, 200);
}

#[tokio::test]
async fn the_port_describes_itself() {
    let (_service, web) = serve(&daily("user", 2), &[]);
    let reply = web.get("/openapi.json").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    let document: Value = serde_json::from_str(&reply.body).unwrap();
    for path in ["/json", "/json/reserve", "/json/extend", "/json/commit", "/json/cancel"] {
        let operation = &document["paths"][path]["post"];
        assert!(operation["responses"]["429"]["headers"]["Retry-After"].is_object(), "{path}");
        assert_ne!(web.send("POST", path, "").await.status, 404);
    }
    assert!(document["paths"]["/auth/{name}"]["get"].is_object());
    // What the service sends has only fields that are described.
    let answer = web.send("POST", "/json", REQUEST).await.body;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let schema = "/components/schemas/envoy.service.ratelimit.v3.RateLimitResponse/properties";
    let properties = document.pointer(schema).unwrap();
    for (name, _) in answer.as_object().unwrap() {
        assert!(properties[name].is_object(), "{name}");
    }
}

#[tokio::test]
async fn a_hold_in_json_has_the_bound_of_one_over_grpc() {
    let (_service, web) = serve(&daily("user", 9), &[]);
    for (length, status) in [(16_000, 200), (16_400, 413)] {
        let value = "a".repeat(length);
        let entries = json!([{ "key": "user", "value": value }]);
        let reserve = json!({ "domain": "test", "id": "a", "hits": 1, "descriptors": [{ "entries": entries }] });
        let reply = web.send("POST", "/json/reserve", reserve.to_string()).await;
        assert_eq!(reply.status, status, "{length}: {}", reply.body);
    }
}

/// With a short wait, a client that obeys would come back at once, again and again.
#[tokio::test]
async fn hits_that_never_fit_are_denied_without_a_wait() {
    let (_service, web) =
        serve(&daily("user", 5).replace("unit: day", "unit: day, charge: admitted"), &[]);
    let of =
        |hits: u32| REQUEST.replace(r#""ann"}]"#, &format!(r#""ann"}}], "hitsAddend": {hits}"#));
    let never = web.send("POST", "/json", of(6)).await;
    assert_eq!(never.status, 429);
    assert!(!never.headers.contains_key("retry-after"), "{:?}", never.headers);
    let body: Value = serde_json::from_str(&never.body).unwrap();
    assert_eq!(body["statuses"][0]["durationUntilReset"], Value::Null);
    assert_eq!(body["statuses"][0]["limitRemaining"], 5);
    web.send("POST", "/json", of(5)).await;
    let denied = web.send("POST", "/json", of(1)).await;
    assert!(denied.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn json_and_grpc_count_together() {
    let (service, web) = serve(&daily("user", 2), &[]);
    assert_eq!(web.send("POST", "/json", REQUEST).await.status, 200);
    let client = Client::connect(service.grpc).await;
    assert!(client.hit("user", "ann").await);
    assert!(!client.hit("user", "ann").await);
    assert_eq!(web.send("POST", "/json", REQUEST).await.status, 429);
    let denied = r#"tollgate_decisions_total{domain="test",rule="user",outcome="denied"}"#;
    assert_eq!(web.metric(denied).await, 2);
}

#[tokio::test]
async fn an_invalid_request_is_400_with_the_reason() {
    let (_service, web) = serve(&daily("user", 2), &["--max-message", "1KiB"]);
    for (body, expected) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "expected a map"),
        (r#"{"domian": "test"}"#, "domian"),
        (r#"{"descriptors": [{}]}"#, "domain must not be empty"),
        (r#"{"domain": "test"}"#, "descriptors must not be empty"),
        (r#"{"domain": "a", "domain": "b"}"#, "twice"),
        (
            r#"{"domain": "test", "descriptors": [{"limit": {"requests_per_unit": 1}}]}"#,
            "limit.unit",
        ),
        (&format!("{REQUEST}{REQUEST}"), "trailing characters"),
        (&"[".repeat(1_000), "expected a map"),
    ] {
        let reply = web.send("POST", "/json", body.to_owned()).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.body);
        assert_eq!(reply.header("content-type"), "application/problem+json");
        let problem: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((&problem["status"], &problem["title"]), (&json!(400), &json!("Bad Request")));
        assert!(reply.body.contains(expected), "{body}: {}", reply.body);
    }
    assert_eq!(web.get("/json").await.status, 400);
    assert_eq!(web.send("POST", "/json", vec![b' '; 1025]).await.status, 413);
}

/// Bodies that two readers could take for different requests: each is the request of one hit by Zoe
/// (of more, as the number says), or refused.
#[tokio::test]
async fn every_spelling_of_a_request_in_json_counts_as_one_reading_of_it_or_is_refused() {
    let (_service, web) = serve(&daily("user", 1_000), &[]);
    let zoe = |more: &str| {
        format!(
            r#"{{"domain": "test", "descriptors": [{{"entries": [{{"key": "user", "value": "zoe"}}]}}]{more}}}"#
        )
    };
    let entry = |entry: &str| zoe("").replace(r#""value": "zoe""#, entry);
    let one = |more: &str| zoe("").replace("}]}]", &format!("}}]{more}}}]"));
    let spellings = [
        (zoe(""), 1),
        (entry(r#""\u0076alue": "\u007aoe""#), 1),
        (zoe(r#", "hits_addend": 2"#), 2),
        (zoe(r#", "hitsAddend": 1e1"#), 10),
        (one(r#", "hitsAddend": "7""#), 7),
        (one(r#", "hitsAddend": null, "isNegativeHits": null"#), 1),
        (entry(r#""value": "ann", "value": "zoe""#), 0),
        (entry(r#""\u0076alue": "ann", "value": "zoe""#), 0),
        (entry(r#""Value": "zoe""#), 0),
        (entry(r#""value": "zoe\ud800""#), 0),
        (zoe(r#", "hits_addend": 0, "hitsAddend": 5"#), 0),
        (zoe(r#", "hitsAddend": 5, "hits_addend": 0"#), 0),
        (one(r#", "isNegativeHits": true, "is_negative_hits": false"#), 0),
        (zoe(r#", "descriptors": []"#), 0),
        (zoe(r#", "hitsAddend": -1"#), 0),
        (zoe(r#", "hitsAddend": 1.5"#), 0),
        (zoe(r#", "hitsAddend": "4294967297""#), 0),
        (format!("\u{feff}{}", zoe("")), 0),
        (zoe("").replace(r#""zoe""#, r#"["zoe"]"#), 0),
    ];
    let mut left = 1_000;
    for (body, hits) in spellings {
        let reply = web.send("POST", "/json", body.clone()).await;
        left -= hits;
        let is_charged = reply.body.contains(&format!(r#""limitRemaining":{left},"#));
        assert_eq!(is_charged, hits > 0, "{body}: {}", reply.body);
        assert_eq!(reply.status, if hits > 0 { 200 } else { 400 }, "{body}: {}", reply.body);
    }
    let last = web.send("POST", "/json", zoe("")).await.body;
    assert!(last.contains(&format!(r#""limitRemaining":{},"#, left - 1)), "{last}");
}

#[tokio::test]
async fn a_body_has_at_most_64_kib_and_any_content_type() {
    let (_service, web) = serve(&daily("user", 2), &[]);
    assert_eq!(web.send("POST", "/json", vec![b' '; 64 * 1024 + 1]).await.status, 413);
    let form = [("content-type", "application/x-www-form-urlencoded"), ("host", "limits.example")];
    assert_eq!(
        web.send_with("POST", "/json", &form, REQUEST).await.status,
        200,
        "as curl sends it by default"
    );
}

#[tokio::test]
async fn cross_origin_requests_are_refused() {
    let (service, web) = serve(&daily("user", 9), &[]);
    let own = format!("http://{}", service.http);
    for (name, value, status) in [
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", own.as_str(), 200),
    ] {
        assert_eq!(
            web.send_with("POST", "/json", &[(name, value)], REQUEST).await.status,
            status,
            "{name}: {value}"
        );
    }
    let admin = Web::new(service.admin);
    let evil = [("x-tollgate", "1"), ("origin", "https://evil.example")];
    assert_eq!(admin.send_with("POST", "/api/v1/policies/reload", &evil, "").await.status, 403);
    assert_ne!(
        admin.send_with("POST", "/api/v1/policies/reload", &evil[..1], "").await.status,
        403
    );
}

#[tokio::test]
async fn browsers_read_and_charge_by_address_only_and_probes_come_by_any_name() {
    let (service, web) = serve(&daily("user", 9), &[]);
    let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
    let rebound = ("host", "evil.example:8080");
    let own = format!("localhost:{}", service.http.port());
    for (path, headers, status) in [
        ("/metrics", vec![browser, rebound], 421),
        ("/json", vec![browser, rebound], 421),
        ("/json", vec![("origin", "http://evil.example:8080"), rebound], 421),
        ("/json/reserve", vec![("sec-fetch-site", "same-origin"), rebound], 421),
        ("/json", vec![rebound], 200),
        ("/json", vec![browser, ("host", own.as_str())], 200),
        ("/json", vec![browser], 200),
        ("/readyz", vec![browser, rebound], 200),
    ] {
        let method = if path.starts_with("/json") { "POST" } else { "GET" };
        let reply = web.send_with(method, path, &headers, REQUEST).await;
        assert_eq!(reply.status, status, "{path} with {headers:?}: {}", reply.body);
    }
    let refused = r#"tollgate_http_refused_requests_total{port="http",kind="host"}"#;
    assert_eq!(web.metric(refused).await, 4);
}

#[tokio::test]
async fn a_request_has_one_host() {
    let (service, _) = serve(&daily("user", 2), &[]);
    for (version, hosts, status) in [
        ("1.1", "", "400"),
        ("1.1", "host: a\r\n", "200"),
        ("1.1", "host: a\r\nHost: b\r\n", "400"),
        ("1.0", "", "200"),
        ("1.0", "host: a\r\nhost: a\r\n", "400"),
    ] {
        let mut stream = TcpStream::connect(service.http).await.unwrap();
        let head = format!("GET /livez HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply.split(' ').nth(1), Some(status), "{head}: {reply}");
    }
}

#[tokio::test]
async fn a_head_has_at_most_32_kib() {
    let (_service, web) = serve(&daily("user", 2), &[]);
    for (bytes, status) in [(12 << 10, 200), (33 << 10, 431)] {
        let long = "a".repeat(bytes);
        assert_eq!(
            web.get_with("/livez", &[("x-long", long.as_bytes())]).await.status,
            status,
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn silent_connections_are_evicted_for_a_probe() {
    let (service, web) = serve(&daily("user", 2), &[]);
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        silent.push(TcpStream::connect(service.http).await.unwrap());
    }
    // Before the timeout of a request's head, after which the silent connections are closed.
    let probe = timeout(TEST_TIMEOUT, web.get("/livez")).await;
    assert_eq!(probe.unwrap().status, 200);
    drop(silent);
}

#[tokio::test]
async fn missing_bodies_do_not_delay_a_probe() {
    let (service, web) = serve(&daily("user", 2), &[]);
    let mut slow = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(service.http).await.unwrap();
        stream
            .write_all(b"POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n")
            .await
            .unwrap();
        slow.push(stream);
    }
    // Before the timeout of a body, after which the first connections are closed: 10 s.
    let probe = timeout(Duration::from_secs(8), web.get("/livez")).await;
    assert_eq!(probe.unwrap().status, 200);
    drop(slow);
}

#[tokio::test]
async fn bodies_that_do_not_arrive_delay_no_other_caller() {
    let (service, web) = serve(&daily("user", 1_000), &[]);
    let mut halves = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(service.http).await.unwrap();
        let head =
            "POST /json/reserve HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n{\"do";
        stream.write_all(head.as_bytes()).await.unwrap();
        halves.push(stream);
    }
    for _ in 0..20 {
        let reply = web.afresh().send("POST", "/json", REQUEST).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

#[tokio::test]
async fn an_unavailable_store_is_503() {
    let store = format!("redis://{}", lasting_address());
    let (_service, web) = serve(&daily("user", 2), &["--store", &store, "--ready-without-store"]);
    let reply = web.send("POST", "/json", REQUEST).await;
    assert_eq!(reply.status, 503);
    assert!(reply.body.contains("store"), "{}", reply.body);
}

#[tokio::test]
async fn the_configuration_is_listed_as_it_is_in_force() {
    let policy = "domain: test\ndescriptors:\n  - key: a\n    value: x\n    descriptors:\n      - key: b\n        shadow_mode: true\n        rate_limit: { requests_per_unit: 2, unit: day }\n";
    let (service, _) = serve(policy, &[]);
    let page = Web::new(service.admin).get("/rlconfig").await;
    assert_eq!(
        page.body,
        "test.a_x.b: unit=DAY requests_per_unit=2, shadow_mode: true, quota_mode: false\n"
    );
    assert!(
        page.header("content-type").starts_with("text/plain"),
        "{}",
        page.header("content-type")
    );
}

#[tokio::test]
async fn administration_lists_its_pages_and_each_is_there() {
    let (service, _) = serve(&daily("user", 2), &[]);
    let admin = Web::new(service.admin);
    let list = admin.get("/").await.body;
    let paths: Vec<&str> = list.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    assert!(
        paths.is_sorted()
            && ["/", "/policies", "/rlconfig", "/stats"].iter().all(|path| paths.contains(path))
    );
    for path in paths {
        assert_eq!(admin.get(path).await.status, 200, "{path}");
    }
    assert!(admin.get("/stats").await.body.contains("tollgate_policy_loads_total"));
    assert_eq!(admin.get("/nowhere").await.status, 404);
}

fn serve(policy: &str, flags: &[&str]) -> (Tollgate, Web) {
    let service = Tollgate::serve_with(Policies::of(policy).path(), flags);
    let web = Web::new(service.http);
    (service, web)
}
