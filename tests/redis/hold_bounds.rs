//! Holds at the bounds of requests: IDs of any bytes, the largest amounts, the most
//! records, extended TTLs; alike in memory, on a server and on a Cluster.

use prost::bytes::Bytes;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::hold::{ExtendRequest, ReserveRequest};
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::limiter::Modes;

use super::{metric, on_all_stores, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, channel, descriptor, entry, request};
use crate::support::traces::cases::START;
use crate::support::traces::sides::Sides;

/// All algorithms, with the largest amounts that allow exact take-backs.
const LIMITS: [(&str, &str); 6] = [
    ("fixed", "requests_per_unit: 4294967295, unit: year, hold: { ttl: 1h }"),
    (
        "sliding",
        "algorithm: sliding_window, requests_per_unit: 4294967295, unit: year, hold: { ttl: 1h }",
    ),
    ("log", "algorithm: sliding_log, requests_per_unit: 10000, unit: year, hold: { ttl: 1h }"),
    ("gcra", "algorithm: gcra, requests_per_unit: 3000000, unit: year, hold: { ttl: 1h }"),
    (
        "bucket",
        "algorithm: token_bucket, requests_per_unit: 1, unit: hour, burst: 400000, hold: { ttl: 1h }",
    ),
    ("permits", "algorithm: concurrency, in_flight: 10000, hold: { ttl: 1h }"),
];

/// Returns the amount of a limit.
fn amount(key: &str) -> u32 {
    match key {
        "fixed" | "sliding" => u32::MAX,
        "gcra" => 3_000_000,
        "bucket" => 400_000,
        _ => 10_000,
    }
}

fn operation(key: &str, name: &str, id: &[u8], hits: Option<u32>) -> RateLimitDescriptor {
    let mut operation = descriptor(&[(key, "a")]);
    operation.entries.push(entry(name.as_bytes(), id));
    RateLimitDescriptor { hits_addend: hits.map(u64::from), ..operation }
}

async fn send(client: &Client, one: RateLimitDescriptor) -> DescriptorStatus {
    client.status(one).await
}

#[tokio::test]
async fn an_id_may_have_any_bytes() {
    let bytes: Vec<u8> = (0..=255).collect();
    let ids: [&[u8]; 10] = [
        &bytes[..128],
        &bytes[128..],
        b"\0",
        b"\0\0",
        b" ",
        b"\xff",
        b"\r\n$1\r\n",
        b"{a}|b",
        b"\xed\xa0\x80",
        &[0xc3; 128],
    ];
    for (_service, client, _guard) in on_all_stores(&LIMITS).await {
        for (key, _) in LIMITS {
            for id in ids {
                let one = send(&client, operation(key, "tollgate.reserve", id, Some(9))).await;
                assert_eq!(one.code(), Code::Ok, "{key} {id:?}");
            }
            let all = 9 * u32::try_from(ids.len()).unwrap();
            let left = super::remaining(&client, key, "a").await;
            assert_eq!(left, amount(key) - all, "{key}");
            for id in ids {
                send(&client, operation(key, "tollgate.commit", id, Some(0))).await;
            }
            // Part of a hit may be lost of a rate.
            let left = super::remaining(&client, key, "a").await;
            assert!(amount(key) - left <= 1, "{key}: {left}");
        }
    }
}

#[tokio::test]
async fn an_id_of_another_length_is_a_plain_charge_and_ends_nothing() {
    for (service, client, _guard) in on_all_stores(&LIMITS).await {
        let long = [b'x'; 129];
        for (key, _) in LIMITS {
            for id in [&b""[..], &long] {
                send(&client, operation(key, "tollgate.reserve", id, Some(5))).await;
                for name in ["tollgate.commit", "tollgate.settle"] {
                    let ended = send(&client, operation(key, name, id, Some(1))).await;
                    assert_eq!(ended.code(), Code::Ok, "{key}");
                }
            }
            assert_eq!(super::remaining(&client, key, "a").await, amount(key) - 10, "{key}");
            let name = format!("tollgate_hold_ids_refused_total{{domain=\"test\",rule=\"{key}\"}}");
            assert_eq!(metric(&service, &name).await, 6, "{key}");
        }
    }
}

#[tokio::test]
async fn the_largest_amounts_saturate() {
    for (_service, client, _guard) in on_all_stores(&LIMITS).await {
        for (key, _) in LIMITS {
            let all = amount(key);
            let reserve =
                |id: &'static [u8], hits| operation(key, "tollgate.reserve", id, Some(hits));
            assert_eq!(send(&client, reserve(b"r", all)).await.code(), Code::Ok, "{key}");
            assert_eq!(send(&client, reserve(b"s", 1)).await.code(), Code::OverLimit, "{key}");
            // A cost of as much as a number can have, with a hold and twice without.
            for id in [&b"r"[..], b"t", b"u"] {
                let commit = operation(key, "tollgate.commit", id, Some(u32::MAX));
                assert_eq!(send(&client, commit).await.code(), Code::Ok, "{key}");
            }
            let left = super::remaining(&client, key, "a").await;
            assert_eq!(left, if key == "permits" { all } else { 0 }, "{key}");
            let more = send(&client, reserve(b"v", 1)).await.code();
            assert_eq!(more, if key == "permits" { Code::Ok } else { Code::OverLimit }, "{key}");
            let other = request(vec![operation(key, "tollgate.commit", b"w", None)]);
            let mut too_many = other.clone();
            too_many.descriptors[0].hits_addend = Some(u64::from(u32::MAX) + 1);
            let refused = client.decide(too_many).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{key}");
        }
    }
}

#[tokio::test]
async fn a_hold_of_one_hit_or_more_may_be_extended_again_and_again() {
    for (service, client, _guard) in on_all_stores(&LIMITS).await {
        let mut holds = HoldServiceClient::new(channel(service.grpc).await);
        for (key, _) in LIMITS {
            for (id, hits, times) in [("r", 9, 20), ("s", 1, 1)] {
                let before = super::remaining(&client, key, "a").await;
                send(&client, operation(key, "tollgate.reserve", id.as_bytes(), Some(hits))).await;
                for seconds in [3600, 1, 3600, 30].repeat(times) {
                    let extend = ExtendRequest {
                        domain: "test".to_owned(),
                        descriptors: vec![descriptor(&[(key, "a")])],
                        id: id.to_owned(),
                        ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
                    };
                    let extended = holds.extend(extend).await;
                    extended.unwrap_or_else(|status| panic!("{key} {id}: {status}"));
                }
                assert_eq!(super::remaining(&client, key, "a").await, before - hits, "{key}");
                if key == "permits" {
                    let mut peek = descriptor(&[(key, "a")]);
                    peek.hits_addend = Some(0);
                    let ends = client.status(peek).await.duration_until_reset.unwrap();
                    assert!(ends.seconds <= 30, "a permit ends with its last extension: {ends:?}");
                }
                send(&client, operation(key, "tollgate.commit", id.as_bytes(), Some(0))).await;
                assert!(before - super::remaining(&client, key, "a").await <= 1, "{key}");
            }
        }
    }
}

#[tokio::test]
async fn beyond_the_most_records_a_reserve_is_a_plain_charge() {
    /// Of a counter.
    const RECORDS: u32 = 100_000;
    /// Descriptors of a request.
    const AT_ONCE: u32 = 250;
    let limits = [LIMITS[0]];
    for (service, client, _guard) in on_all_stores(&limits).await.into_iter().take(2) {
        let ids = |from: u32| (from..from + AT_ONCE).map(|number| Bytes::from(number.to_string()));
        for first in (0..RECORDS + AT_ONCE).step_by(AT_ONCE as usize) {
            let reserve = |id: Bytes| operation("fixed", "tollgate.reserve", &id, Some(2));
            let answer = client.decide(request(ids(first).map(reserve).collect())).await.unwrap();
            assert_eq!(answer.overall_code(), Code::Ok);
        }
        let name = |of: &str| format!("tollgate_hold_{of}_total{{domain=\"test\",rule=\"fixed\"}}");
        assert_eq!(metric(&service, &name("reserved")).await, u64::from(RECORDS));
        assert_eq!(metric(&service, &name("unrecorded")).await, u64::from(AT_ONCE));
        let used = 2 * (RECORDS + AT_ONCE);
        assert_eq!(super::remaining(&client, "fixed", "a").await, u32::MAX - used);
        // One that is recorded is given back, one that is not is charged.
        send(&client, operation("fixed", "tollgate.commit", b"7", Some(0))).await;
        assert_eq!(super::remaining(&client, "fixed", "a").await, u32::MAX - used + 2);
        let beyond = RECORDS.to_string();
        send(&client, operation("fixed", "tollgate.commit", beyond.as_bytes(), Some(5))).await;
        assert_eq!(super::remaining(&client, "fixed", "a").await, u32::MAX - used + 2 - 5);
    }
}

/// Returns the key of the only counter's records.
async fn hold_key(redis: &Redis) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*"]).await.unwrap();
    for key in keys {
        let kind: String = redis.query_bytes(&[b"TYPE", &key]).await.unwrap();
        if kind == "hash" && key.ends_with(b":holds") {
            return key;
        }
    }
    panic!("no records")
}

/// Reserves a hit of `fixed` by a number as its ID.
async fn reserve(sides: &Sides, at: u64, number: u64) {
    let id = number.to_string();
    let reserve = operation("fixed", "tollgate.reserve", id.as_bytes(), Some(1));
    sides.decide(at, &request(vec![reserve])).await.unwrap().unwrap();
}

/// Expired records are looked for after as many inserts as the last check allowed: those of inserts
/// 34, 69 and 139, then, since it removes more than a quarter, as many as it removed.
#[tokio::test]
async fn expired_records_are_looked_for_after_at_least_as_many_inserts_as_at_first() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], "checks:", Modes::default()).await;
    let limit = "requests_per_unit: 4294967295, unit: year, hold: { ttl: 3s }";
    sides.install(&policy(&[("fixed", limit)]));
    for number in 0..172u64 {
        let at = START + number + if number < 138 { 0 } else { 3_100_000 };
        reserve(&sides, at, number).await;
    }
    let key = hold_key(&redis).await;
    let fields: u64 = redis.query_bytes(&[b"HLEN", &key]).await.unwrap();
    // The head, 34 records, and the 10 or 11 that were not in the sample.
    assert!((45..=46).contains(&fields), "{fields}");
}

/// The records are checked by insert 34, when there are 99,999 of them: memory has 33.
#[tokio::test]
async fn a_reserve_has_room_for_the_last_record() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], "last:", Modes::default()).await;
    let limit = "requests_per_unit: 4294967295, unit: year, hold: { ttl: 1h }";
    sides.install(&policy(&[("fixed", limit)]));
    for number in 0..33 {
        reserve(&sides, START + number, number).await;
    }
    let key = hold_key(&redis).await;
    let fill = b"local one = redis.call('HGET', KEYS[1], '0')
        for number = 34, 99999 do redis.call('HSET', KEYS[1], 'copy ' .. number, one) end";
    redis.query_bytes::<()>(&[b"EVAL", fill, b"1", &key]).await.unwrap();
    reserve(&sides, START + 33, 33).await;
    let fields: u64 = redis.query_bytes(&[b"HLEN", &key]).await.unwrap();
    assert_eq!(fields, 100_001, "the head, and a record more");
}

#[tokio::test]
async fn a_commit_without_a_record_does_not_keep_a_full_counter_for_longer() {
    let redis = Redis::start().await;
    let limit = "requests_per_unit: 4294967295, unit: minute, hold: { ttl: 1h }";
    let policies = Policies::of(&policy(&[("fixed", limit)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    let mut holds = HoldServiceClient::new(channel(service.grpc).await);
    // As many inserts as come before the first check of the records.
    for number in 0..33 {
        let reserve = ReserveRequest {
            domain: "test".to_owned(),
            descriptors: vec![descriptor(&[("fixed", "a")])],
            id: number.to_string(),
            hits: 1,
            ttl: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        };
        holds.reserve(reserve).await.unwrap();
    }
    let key = hold_key(&redis).await;
    let fill = b"local one = redis.call('HGET', KEYS[1], '0')
        for number = 34, 100000 do redis.call('HSET', KEYS[1], 'copy ' .. number, one) end";
    redis.query_bytes::<()>(&[b"EVAL", fill, b"1", &key]).await.unwrap();
    send(&client, operation("fixed", "tollgate.commit", b"unknown", Some(5))).await;
    let lives: i64 = redis.query_bytes(&[b"PTTL", &key]).await.unwrap();
    assert!(lives <= 700_000, "{lives} ms");
}
