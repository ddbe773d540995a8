//! Memory of a counter in Redis, and its expiry.

use std::time::{Duration, Instant};

use redis::Value;
use tokio::task::JoinSet;

use super::{policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of counters, just below a power of two, where hash tables are fullest: Redis doubles them
/// when they hold as many keys as slots, so that right above it a key costs up to 16 bytes more
/// (two tables, of values and of expiries, with 8 bytes per slot).
const COUNTERS: usize = (1 << 13) - 1;
/// Counters per request; one round trip for many counters is faster than many round trips for one.
const AT_ONCE: usize = 64;
/// Length of a value: a client's address as text has up to 45 bytes, usually fewer than 16.
const VALUE_BYTES: usize = 32;
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_counter_takes_few_bytes() {
    let windows = "[{ requests_per_unit: 10, unit: second }, { requests_per_unit: 500, unit: minute }, { requests_per_unit: 5000, unit: hour }]";
    for (limit, most) in [
        ("requests_per_unit: 100, unit: day", 160),
        ("algorithm: gcra, requests_per_unit: 100, unit: minute", 160),
        (&format!("algorithm: sliding_window, windows: {windows}"), 350),
    ] {
        assert_costs(limit, most).await;
    }
}

/// Asserts that a counter under `limit` takes at most this many bytes: key, value, and its part of
/// both tables.
async fn assert_costs(limit: &str, most: u64) {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("user", limit)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    for _ in 0..3 {
        fill(&client, 0..COUNTERS).await;
    }
    assert_eq!(redis.command(&["DBSIZE"]).await, Value::Int(i64::try_from(COUNTERS).unwrap()));
    // The memory of its connections varies.
    drop(service);
    let is_alone = |clients: &String| clients == "1";
    becomes("no client is connected", TEST_TIMEOUT, || connections(&redis), is_alone).await;
    let full = used(&redis).await;
    redis.command(&["FLUSHDB", "SYNC"]).await;
    let each = (full - used(&redis).await) / u64::try_from(COUNTERS).unwrap();
    assert!(each <= most, "{each} bytes");
}

async fn connections(redis: &Redis) -> String {
    redis.info("clients").await["connected_clients"].clone()
}

async fn fill(client: &Client, users: std::ops::Range<usize>) {
    let users: Vec<_> = users.map(|user| format!("{user:0width$}", width = VALUE_BYTES)).collect();
    let mut requests = JoinSet::new();
    for users in users.chunks(AT_ONCE) {
        let descriptors: Vec<_> =
            users.iter().map(|user| descriptor(&[("user", user.as_str())])).collect();
        let client = client.clone();
        requests.spawn(async move { client.decide(request(descriptors)).await.unwrap() });
    }
    requests.join_all().await;
}

async fn used(redis: &Redis) -> u64 {
    redis.info("memory").await["used_memory"].parse().unwrap()
}

#[tokio::test]
async fn a_counter_expires_a_minute_after_it_stops_mattering() {
    let limits = [
        ("fixed", "requests_per_unit: 9, unit: hour"),
        (
            "windows",
            "windows: [{ requests_per_unit: 9, unit: second }, { requests_per_unit: 9, unit: hour }]",
        ),
        ("sliding", "algorithm: sliding_window, requests_per_unit: 9, unit: hour"),
        ("log", "algorithm: sliding_log, requests_per_unit: 9, unit: hour"),
        ("gcra", "algorithm: gcra, requests_per_unit: 9, unit: hour"),
    ];
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&limits));
    let (_service, client) = serve(&policies, &redis.url(), &["--exact-durations"]).await;
    for (key, _) in limits {
        redis.command(&["FLUSHDB"]).await;
        let begun = Instant::now();
        let status = client.status(descriptor(&[(key, "ann")])).await;
        let lives = "return redis.call('PTTL', redis.call('KEYS', '*')[1])";
        let lives = Duration::from_millis(redis.query(&["EVAL", lives, "0"]).await.unwrap());
        let until_reset = Duration::try_from(status.duration_until_reset.unwrap()).unwrap();
        // A binding window of a second has no information about the hour; the others report the
        // time of their reset.
        let matters = if key == "windows" { Duration::ZERO } else { until_reset };
        let most = if key == "windows" { Duration::from_secs(3600) } else { until_reset };
        assert!(
            lives <= most + MINUTE + Duration::from_millis(1),
            "{key}: {lives:?} with {until_reset:?} to the end"
        );
        assert!(
            lives + begun.elapsed() >= matters + MINUTE,
            "{key}: {lives:?} with {until_reset:?} to the end"
        );
    }
}

#[tokio::test]
async fn every_key_expires() {
    let redis = Redis::start().await;
    let limits = [
        ("ban", "requests_per_unit: 0, unit: day"),
        ("fixed", "requests_per_unit: 1, unit: 3650d"),
        ("bucket", "algorithm: token_bucket, requests_per_unit: 1, unit: year, charge: always"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    for (key, _) in limits {
        for hits in [1, u64::from(u32::MAX)] {
            let mut wanted = descriptor(&[(key, "ann")]);
            wanted.hits_addend = Some(hits);
            client.status(wanted).await;
        }
    }
    let mortal = redis.info("keyspace").await["db0"].clone();
    assert!(mortal.starts_with("keys=2,expires=2,"), "{mortal}");
}
