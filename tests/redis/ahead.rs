//! Resets of all counters that were written while the clock of the store was ahead.

use std::process::Output;

use super::{cluster, last_write, nodes_of, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::tollgate::{Tollgate, output};

const DAY_US: u64 = 86_400_000_000;
const LIMITS: [(&str, &str); 5] = [
    ("fixed", "requests_per_unit: 2, unit: day, charge: admitted"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 2, unit: day"),
    ("log", "algorithm: sliding_log, requests_per_unit: 2, unit: day"),
    ("permits", "algorithm: concurrency, in_flight: 2, hold: { ttl: 24h }"),
    ("held", "requests_per_unit: 2, unit: day, charge: admitted, hold: { ttl: 1h }"),
];
const AHEAD: [&str; 2] = ["ann", "{x}1"];
const OTHERS: [&str; 2] = ["bob", "cy"];

#[tokio::test]
async fn all_counters_ahead_of_the_clock_are_reset_and_no_others() {
    let redis = Redis::start().await;
    are_reset(&redis.url(), &[&redis]).await;
    let cluster = cluster().await;
    are_reset(&cluster.url(), &nodes_of(&cluster)).await;
}

async fn are_reset(url: &str, nodes: &[&Redis]) {
    let policies = Policies::of(&policy(&LIMITS));
    let (mut service, client) = serve(&policies, url, &["--redis-prefix", "a[b]*:"]).await;
    for (limit, _) in LIMITS {
        for value in AHEAD.iter().chain(&OTHERS) {
            assert!(client.hit(limit, value).await, "{limit} {value}");
        }
    }
    let mut moved = 0;
    for node in nodes {
        for key in node.query::<Vec<Vec<u8>>>(&["KEYS", "*"]).await.unwrap() {
            moved += usize::from(moves_ahead(node, &key).await);
        }
    }
    assert_eq!(moved, LIMITS.len() * AHEAD.len());

    let report = reset(&service);
    assert!(report.contains(" examined, 10 reset; the farthest was 2"), "{report}");
    service.process.wait_for_line("the audit entry", |line| {
        let is_of_it = line.contains("/api/v1/counters/reset-ahead");
        (is_of_it && line.contains("counters ahead of the store's clock: 20")).then_some(())
    });
    for (limit, _) in LIMITS {
        for (values, admitted) in [(AHEAD, &[true, true, false][..]), (OTHERS, &[true, false])] {
            for (value, admitted) in
                values.iter().flat_map(|v| admitted.iter().map(move |a| (v, a)))
            {
                assert_eq!(client.hit(limit, value).await, *admitted, "{limit} {value}");
            }
        }
    }
    assert!(reset(&service).contains("none ahead of the store's clock"));
}

#[tokio::test]
async fn a_server_that_fails_loses_nothing_of_what_was_examined_before() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&LIMITS[..1]));
    let (service, client) = serve(&policies, &cluster.url(), &[]).await;
    for number in 0..60 {
        assert!(client.hit("fixed", &format!("user-{number}")).await);
    }
    // Masters are examined in the order of their addresses.
    let last =
        nodes_of(&cluster).into_iter().max_by_key(|redis| redis.address.to_string()).unwrap();
    last.pause();
    let ended = try_to_reset(&service);
    last.resume();
    assert!(!ended.status.success());
    let error = String::from_utf8(ended.stderr).unwrap();
    let examined = error.split("until then: ").nth(1).and_then(|text| text.split(' ').next());
    let examined: u64 = examined.unwrap().parse().unwrap();
    assert!((1..60).contains(&examined), "{error}");
}

/// Moves the clock of a counter a day ahead.
/// Returns `false` for other keys.
async fn moves_ahead(node: &Redis, key: &[u8]) -> bool {
    let is_of = |value: &&str| key.windows(value.len()).any(|part| part == value.as_bytes());
    if !AHEAD.iter().any(is_of) || key.ends_with(b":holds") {
        return false;
    }
    let value: Vec<u8> = node.query_bytes(&[b"GET", key]).await.unwrap();
    let ahead = (last_write(&value) + DAY_US).to_be_bytes();
    node.query_bytes::<()>(&[b"SETRANGE", key, b"1", &ahead[1..]]).await.unwrap();
    true
}

fn try_to_reset(service: &Tollgate) -> Output {
    let admin = format!("http://{}", service.admin);
    output(["reset", "--admin", &admin, "--ahead-of-clock"])
}

fn reset(service: &Tollgate) -> String {
    let ended = try_to_reset(service);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}
