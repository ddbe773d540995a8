//! Traces made by hand, of what random ones rarely meet. Some were written for mutants of the
//! scripts (`tests/MUTANTS.md`).

use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::{last_write, only_counter, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};
use crate::support::traces::directed::DIRECTED;
use crate::support::traces::run;
use crate::support::traces::sides::Sides;

const START: u64 = 1_780_000_000_000_000;

async fn sides(redis: &Redis, rules: &[(&str, &str)]) -> Sides {
    let sides = Sides::new(&[redis.url()], "edges:", Modes::default()).await;
    sides.install(&policy(rules));
    sides
}

/// Decides a request of some descriptors on all sides, which must agree.
async fn decide(sides: &Sides, at: u64, descriptors: Vec<RateLimitDescriptor>) {
    let decided = sides.decide(at, &request(descriptors)).await;
    decided.unwrap_or_else(|error| panic!("{error}")).unwrap();
}

fn of(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

/// The traces also run with simulated servers (`tests/world`).
#[tokio::test]
async fn directed_traces_are_judged_alike_by_memory_and_a_real_server() {
    let redis = Redis::start().await;
    for (number, case) in DIRECTED.iter().enumerate() {
        let sides = Sides::new(&[redis.url()], &format!("{number}:"), case.modes).await;
        run(&sides, case).await.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Both counters are judged by one call, of which the first is stored in the wide form since the
/// costs of its holds are large.
#[tokio::test]
async fn a_counter_is_stored_in_the_short_form_after_one_in_the_wide_form() {
    let redis = Redis::start().await;
    for algorithm in ["sliding_log", "sliding_window"] {
        let limit = format!(
            "algorithm: {algorithm}, requests_per_unit: 9, unit: hour, hold: {{ ttl: 1m }}"
        );
        let sides = sides(&redis, &[("user", &limit)]).await;
        sides.clear().await;
        let commit = |id| of(&[("user", "wide"), ("tollgate.commit", id)], u64::from(u32::MAX));
        let short = |user| of(&[("user", user)], 1);
        decide(&sides, START, vec![short("alone")]).await;
        for id in ["r", "s"] {
            decide(&sides, START, vec![commit(id)]).await;
        }
        decide(&sides, START, vec![commit("t"), short("together")]).await;
        let mut values = Vec::new();
        for user in ["alone", "together"] {
            values.push(only_counter(&redis, &format!("*{user}")).await.1);
        }
        assert_eq!(values[1], values[0], "{algorithm}");
    }
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
