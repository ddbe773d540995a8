//! Counters whose stored state is put to a bound that no trace reaches in a short time. Some tests
//! were written for mutants of the scripts (`tests/MUTANTS.md`).

use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::hold::ReserveRequest;
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;

use super::{last_write, only_counter, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{channel, descriptor};

fn of(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

/// The oldest hit leaves with the one after it.
#[tokio::test]
async fn the_two_oldest_entries_of_the_longest_log_are_merged() {
    const MOST_ENTRIES: u32 = 20_000;
    let redis = Redis::start().await;
    let limit = "algorithm: sliding_log, requests_per_unit: 10000, unit: hour, charge: blamed";
    let policies = Policies::of(&policy(&[("log", limit)]));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    assert!(client.hit("log", "a").await);
    let (key, one) = only_counter(&redis, "*").await;
    let last = last_write(&one);
    let entry = |number: u32| {
        let at = last - u64::from(MOST_ENTRIES - number);
        [&at.to_be_bytes()[1..], &number.to_be_bytes()].concat()
    };
    let head = [&one[..8], &20_000_u16.to_be_bytes(), &[0; 4]].concat();
    let full: Vec<u8> = head.into_iter().chain((1..=MOST_ENTRIES).flat_map(entry)).collect();
    redis.query_bytes::<()>(&[b"SET", &key, &full, b"KEEPTTL"]).await.unwrap();

    assert!(!client.hit("log", "a").await);
    let now: Vec<u8> = redis.query_bytes(&[b"GET", &key]).await.unwrap();
    assert_eq!(now[8..14], full[8..14], "as many entries, and none before them");
    let kept = full.len() - 11;
    assert_eq!(now[14..kept], full[25..], "the first has its own hit and that of the oldest");
    assert_eq!(now[now.len() - 4..], (MOST_ENTRIES + 1).to_be_bytes());
    assert_eq!(now.len(), full.len());
}

/// The totals may reach their bound. They begin at 0 again before they are cut to it.
#[tokio::test]
async fn the_largest_totals_of_a_ledger_are_bounded() {
    const MAX_HITS: u64 = (1 << 53) - 1;
    let wide = |total: u64| total.to_be_bytes()[1..].to_vec();
    let redis = Redis::start().await;
    let limit = |algorithm: &str| {
        format!("algorithm: {algorithm}, requests_per_unit: 9, unit: year, charge: blamed")
    };
    let [log, window] = ["sliding_log", "sliding_window"].map(limit);
    let policies = Policies::of(&policy(&[("log", &log), ("window", &window)]));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    for (key, tag, entries) in [("log", 23, 2), ("window", 21, 1)] {
        assert!(client.hit(key, key).await);
        let (name, one) = only_counter(&redis, &format!("*{key}")).await;
        let value = [&[tag], &one[1..10], &wide(5), &one[14..21], &wide(MAX_HITS - 1)].concat();
        redis.query_bytes::<()>(&[b"SET", &name, &value, b"KEEPTTL"]).await.unwrap();

        client.status(of(&[(key, key)], 1)).await;
        let now: Vec<u8> = redis.query_bytes(&[b"GET", &name]).await.unwrap();
        assert_eq!(now[8..10], u16::to_be_bytes(entries), "{key}");
        assert_eq!(now[10..17], wide(5), "{key}: the total before the oldest entry");
        assert_eq!(now[now.len() - 7..], wide(MAX_HITS), "{key}");

        redis.query_bytes::<()>(&[b"SET", &name, &value, b"KEEPTTL"]).await.unwrap();
        client.status(of(&[(key, key)], 7)).await;
        let now: Vec<u8> = redis.query_bytes(&[b"GET", &name]).await.unwrap();
        assert_eq!(now[0], tag, "{key}");
        assert_eq!(now[8..10], u16::to_be_bytes(entries), "{key}");
        assert_eq!(now[10..17], wide(0), "{key}: the total before the oldest entry");
        assert_eq!(now[now.len() - 7..], wide(MAX_HITS), "{key}");
    }
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
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*:holds"]).await.unwrap();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    let fill = b"local one = redis.call('HGET', KEYS[1], '0')
        for number = 34, 100000 do redis.call('HSET', KEYS[1], 'copy ' .. number, one) end";
    redis.query_bytes::<()>(&[b"EVAL", fill, b"1", key]).await.unwrap();
    client.status(of(&[("fixed", "a"), ("tollgate.commit", "unknown")], 5)).await;
    let lives: i64 = redis.query_bytes(&[b"PTTL", key]).await.unwrap();
    assert!(lives <= 700_000, "{lives} ms");
}
