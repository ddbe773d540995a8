//! A counter is judged alike in requests of every shape: the same answer, the same value, the same
//! TTL.
//!
//! Of four counters of one limit, the first is always requested alone, the second together with
//! other limits, the third and the fourth together with a limit that is named twice, with which the
//! whole request is judged in turn; the last of these records entries. Two more are named twice
//! themselves.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::limiter::Modes;

use super::{calls, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::traces::cases::steps;
use crate::support::traces::rules::{RandomRule, rules};
use crate::support::traces::sides::Sides;

const CASES: u32 = 40;
const REQUESTS: usize = 150;
const START: u64 = 1_780_000_000_000_000;
const FARTHEST_BACK: u64 = 59_000_000;
/// A counter, and the keys of the other checks of the requests for it.
type Counter = (&'static str, &'static [&'static str]);
/// The counters that a request names once, and the keys of its other checks.
const COUNTERS: [Counter; 4] = [
    ("counter-a", &[]),
    ("counter-b", &["plain", "recorded"]),
    ("counter-d", &["plain", "plain"]),
    ("counter-c", &["recorded", "recorded"]),
];
/// The counters that a request names twice, likewise.
const NAMED_TWICE: [Counter; 2] = [("counter-e", &[]), ("counter-f", &["recorded", "recorded"])];
/// Limits that deny nothing.
const OTHER_RULES: &str = "  - key: plain
    rate_limit: { algorithm: sliding_window, requests_per_unit: 4000000000, unit: year }
    shadow_mode: true
  - key: recorded
    rate_limit: { algorithm: sliding_window, requests_per_unit: 4000000000, unit: year, record: [recorded] }
    shadow_mode: true
";

/// A limit, and the requests for it.
struct Case {
    rule: RandomRule,
    modes: Modes,
    trace: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    /// Microseconds forwards or back.
    by: i64,
    hits: Option<u64>,
    is_refund: bool,
    /// Number of positions by which the counters rotate, once.
    turn: usize,
}

#[test]
fn a_counter_is_judged_alike_in_requests_of_every_shape() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(Redis::start());
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let outcome = TestRunner::new_with_rng(config, rng).run(&cases(), |case| {
        runtime.block_on(run(&redis, &case));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {:?}, {} requests", self.rule, self.modes, self.trace.len())
    }
}

async fn run(redis: &Redis, case: &Case) {
    let sides = Sides::new(&[redis.url()], "fast:", case.modes).await;
    sides.clear().await;
    let RandomRule { limit, mode } = &case.rule;
    let user = format!("  - key: user\n    rate_limit: {{ {limit} }}\n{mode}");
    sides.install(&format!("domain: test\ndescriptors:\n{user}{OTHER_RULES}"));
    let mut now = START;
    let mut latest = START;
    for (number, step) in case.trace.iter().enumerate() {
        now = now.saturating_add_signed(step.by).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let what = format!("request {number}, {step:?}, of {case:?}");
        for (counters, times) in [(&COUNTERS[..], 1), (&NAMED_TWICE, 2)] {
            let mut answers = Vec::new();
            for (place, (_, others)) in counters.iter().enumerate() {
                let (counter, _) = counters[(place + step.turn) % counters.len()];
                let checked = RateLimitDescriptor {
                    hits_addend: step.hits,
                    is_negative_hits: step.is_refund,
                    ..descriptor(&[("user", counter)])
                };
                let others = others.iter().map(|key| descriptor(&[(*key, "")]));
                let all = std::iter::repeat_n(checked, times).chain(others).collect();
                let decided = sides.decide(now, &request(all)).await;
                let decided = decided.unwrap_or_else(|error| panic!("{what}: {error}")).unwrap();
                answers.push((decided.0.statuses[..times].to_vec(), decided.1[..times].to_vec()));
            }
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{what}: {answers:#?}");
            same(&values(redis, counters).await, counters, &what);
        }
    }
}

#[tokio::test]
async fn counters_expire_alike_in_requests_of_every_shape() {
    let redis = Redis::start().await;
    let algorithms = [
        "requests_per_unit: 9, unit: year",
        "windows: [{ requests_per_unit: 9, unit: hour }, { requests_per_unit: 90, unit: year }]",
        "algorithm: gcra, requests_per_unit: 9, unit: year",
        "algorithm: gcra, requests_per_unit: 7, unit: second",
        "algorithm: sliding_window, requests_per_unit: 9, unit: year",
        "algorithm: sliding_log, requests_per_unit: 9, unit: hour",
    ];
    for limit in algorithms {
        redis.command(&["FLUSHALL"]).await;
        let policies = Policies::of(&format!(
            "domain: test\ndescriptors:\n  - key: user\n    rate_limit: {{ {limit} }}\n{OTHER_RULES}"
        ));
        let (_service, client) = serve(&policies, &redis.url(), &[]).await;
        for _ in 0..4 {
            for (counter, others) in COUNTERS {
                let others = others.iter().map(|key| descriptor(&[(*key, "")]));
                let all = [descriptor(&[("user", counter)])].into_iter().chain(others).collect();
                client.decide(request(all)).await.unwrap();
            }
            let values = values(&redis, &COUNTERS).await;
            assert_eq!(values.len(), COUNTERS.len());
            let lives = || values.values().map(|(_, lives)| *lives);
            let apart = lives().max().unwrap() - lives().min().unwrap();
            assert!(apart < 10_000, "{limit}: {apart} ms apart");
        }
    }
}

/// Limits of every kind.
const KINDS: [(&str, &str); 10] = [
    ("fixed", "requests_per_unit: 3, unit: year"),
    (
        "windows",
        "windows: [{ requests_per_unit: 3, unit: hour }, { requests_per_unit: 9, unit: year }]",
    ),
    ("calendar", "requests_per_unit: 3, unit: year, calendar: true, time_zone: Europe/Berlin"),
    ("blamed", "requests_per_unit: 3, unit: year, charge: blamed"),
    ("gcra", "algorithm: gcra, requests_per_unit: 3, unit: year"),
    ("fractions", "algorithm: gcra, requests_per_unit: 7, unit: day"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 3, unit: year"),
    (
        "weighted",
        "algorithm: sliding_window, requests_per_unit: 3, unit: year, buckets: 10, estimate: weighted",
    ),
    (
        "three",
        "algorithm: sliding_window, windows: [{ requests_per_unit: 3, unit: hour }, { requests_per_unit: 4, unit: day }, { requests_per_unit: 5, unit: year }]",
    ),
    ("log", "algorithm: sliding_log, requests_per_unit: 3, unit: hour"),
];

#[tokio::test]
async fn a_request_takes_one_call_of_a_script() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&KINDS));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    for hits in [Some(1), Some(0), Some(1)] {
        // Loads every script.
        each_alone(&client, hits, false).await;
        together(&client, hits).await;
    }
    let before = calls(&[&redis], "evalsha").await;
    for (hits, is_refund) in
        [(Some(1), false), (Some(0), false), (Some(1), false), (Some(2), true), (Some(9), false)]
    {
        each_alone(&client, hits, is_refund).await;
        if !is_refund {
            together(&client, hits).await;
        }
    }
    let alone = 5 * KINDS.len();
    assert_eq!(calls(&[&redis], "evalsha").await - before, u64::try_from(alone + 4).unwrap());
}

#[tokio::test]
async fn a_key_of_another_type_is_decided_by_the_caller_and_the_others_are_charged() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[
        ("broken", "requests_per_unit: 9, unit: year, on_store_error: local"),
        ("fine", "requests_per_unit: 9, unit: year"),
    ]));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    client.decide(request(vec![descriptor(&[("broken", "x")])])).await.unwrap();
    replace_by_a_list(&redis).await;
    for (fine, left) in [(1, 8), (2, 6)] {
        let all = std::iter::once(("broken", "x")).chain(vec![("fine", "x"); fine]);
        let answer =
            client.decide(request(all.map(|one| descriptor(&[one])).collect())).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(answer.statuses[1].limit_remaining, left, "fine is named {fine} times");
    }
}

#[tokio::test]
async fn a_refund_that_fails_fails_its_request_which_charges_nothing() {
    let redis = Redis::start().await;
    let limit = "requests_per_unit: 9, unit: year, charge: admitted";
    let policies = Policies::of(&policy(&[("broken", limit), ("fine", limit)]));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    client.decide(request(vec![descriptor(&[("broken", "x")])])).await.unwrap();
    replace_by_a_list(&redis).await;
    let refund = RateLimitDescriptor {
        hits_addend: Some(2),
        is_negative_hits: true,
        ..descriptor(&[("broken", "x")])
    };
    let fine = || descriptor(&[("fine", "x")]);
    client.decide(request(vec![refund, fine()])).await.unwrap_err();
    let answer = client.decide(request(vec![fine()])).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 8, "only this request is charged");
}

/// Replaces the value of each key by one of another type.
async fn replace_by_a_list(redis: &Redis) {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*"]).await.unwrap();
    for key in keys {
        redis.query_bytes::<()>(&[b"DEL", &key]).await.unwrap();
        redis.query_bytes::<i64>(&[b"LPUSH", &key, b"x"]).await.unwrap();
    }
}

async fn each_alone(client: &Client, hits: Option<u64>, is_negative_hits: bool) {
    for (key, _) in KINDS {
        let one = RateLimitDescriptor {
            hits_addend: hits,
            is_negative_hits,
            ..descriptor(&[(key, "alone")])
        };
        client.decide(request(vec![one])).await.unwrap();
    }
}

async fn together(client: &Client, hits: Option<u64>) {
    let one = |(key, _): &(&str, &str)| RateLimitDescriptor {
        hits_addend: hits,
        ..descriptor(&[(key, "together")])
    };
    client.decide(request(KINDS.iter().map(one).collect())).await.unwrap();
}

/// Asserts that all counters have the same value, or none, and expire at about the same time.
fn same(values: &BTreeMap<String, (Vec<u8>, i64)>, counters: &[Counter], what: &str) {
    let first = values.get(counters[0].0);
    for other in counters.iter().map(|(counter, _)| values.get(*counter)) {
        assert_eq!(other.map(|(value, _)| value), first.map(|(value, _)| value), "{what}");
        if let (Some((_, a)), Some((_, b))) = (first, other) {
            assert!((a - b).abs() < 60_000, "{what}: {a} and {b} ms");
        }
    }
}

/// Returns the value of each counter, and its expiry in ms since the epoch.
async fn values(redis: &Redis, counters: &[Counter]) -> BTreeMap<String, (Vec<u8>, i64)> {
    let mut values = BTreeMap::new();
    for (counter, _) in counters {
        let keys: Vec<Vec<u8>> = redis.query(&["KEYS", &format!("*{counter}")]).await.unwrap();
        if let [key] = keys.as_slice() {
            let value = redis.query_bytes(&[b"GET", key]).await.unwrap();
            let lives: i64 = redis.query_bytes(&[b"PEXPIRETIME", key]).await.unwrap();
            values.insert((*counter).to_owned(), (value, lives));
        }
    }
    values
}

fn cases() -> impl Strategy<Value = Case> {
    let hits = prop_oneof![
        6 => Just(None),
        2 => (0u64..5).prop_map(Some),
        1 => Just(Some(70_000)),
        1 => Just(Some(u64::from(u32::MAX))),
    ];
    let turns = prop_oneof![4 => Just(0), 1 => 1usize..3];
    let step = (steps(), hits, prop::bool::weighted(0.12), turns)
        .prop_map(|(by, hits, is_refund, turn)| Step { by, hits, is_refund, turn });
    let trace = prop::collection::vec(step, REQUESTS);
    let shadow = prop::bool::weighted(0.2);
    (rules().prop_map(RandomRule::without_record), shadow, trace).prop_map(
        |(rule, shadow, trace)| Case { rule, modes: Modes { shadow, quota: false }, trace },
    )
}
