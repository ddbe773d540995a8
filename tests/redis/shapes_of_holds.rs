//! A counter with holds is judged alike in requests of every shape: the same answer, the same
//! values, the same TTL.
//!
//! Of two counters of one limit with holds, one is requested alone and the other together with
//! another limit: the same requests at the same instants. Every other time that is named twice, so
//! that the whole request is judged in turn. The counters change places: each shape reads what the
//! other has written.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::limiter::Modes;

use super::{calls, cluster, from_environment, nodes_of, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{Client, descriptor, request};
use crate::support::traces::cases::{START, steps};
use crate::support::traces::sides::Sides;

const CASES: u32 = 12;
const REQUESTS: usize = 150;
const FARTHEST_BACK: u64 = 59_000_000;
const COUNTERS: [&str; 2] = ["counter-a", "counter-b"];
/// A limit that denies nothing.
const RECORDED_RULE: &str = "  - key: recorded
    rate_limit: { algorithm: sliding_window, requests_per_unit: 4000000000, unit: year, record: [recorded] }
    shadow_mode: true
";

/// Operations on a hold by their reserved keys; none for a charge or a refund.
#[derive(Clone, Debug)]
struct Step {
    /// Microseconds forwards or back.
    by: i64,
    operations: Vec<Option<&'static str>>,
    id: &'static str,
    hits: Option<u64>,
    is_refund: bool,
    turns: bool,
}

struct Case {
    limit: String,
    mode: &'static str,
    trace: Vec<Step>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} requests", self.limit, self.trace.len())
    }
}

/// The fields of a hash.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

#[test]
fn a_counter_holds_alike_in_requests_of_every_shape() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(Redis::start());
    let mut seed = [9; 32];
    seed[0] =
        u8::try_from(from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default() % 256).unwrap();
    let cases_run = from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(CASES);
    let config = Config { cases: cases_run, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng)
        .run(&cases(), |case| runtime.block_on(run(&redis, &case)).map_err(TestCaseError::fail));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn run(redis: &Redis, case: &Case) -> Result<(), String> {
    let sides = Sides::new(&[redis.url()], "fast:", Modes::default()).await;
    sides.clear().await;
    let Case { limit, mode, trace } = case;
    let user = format!("  - key: user\n    rate_limit: {{ {limit} }}\n{mode}");
    sides.install(&format!("domain: test\ndescriptors:\n{user}{RECORDED_RULE}"));
    let mut now = START;
    let mut latest = START;
    for (number, step) in trace.iter().enumerate() {
        now = now.saturating_add_signed(step.by).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let what = format!("request {number}, {step:?}, of {limit}");
        let mut answers = Vec::new();
        for (place, others) in [0, 1 + number % 2].into_iter().enumerate() {
            let recorded = std::iter::repeat_n(descriptor(&[("recorded", "")]), others);
            let counter = COUNTERS[(place + usize::from(step.turns)) % COUNTERS.len()];
            let holds = step.operations.iter().map(|operation| of_step(step, *operation, counter));
            let decided = sides.decide(now, &request(holds.chain(recorded).collect())).await;
            let (answer, times, effects) =
                decided.map_err(|error| format!("{what}: {error}"))?.unwrap();
            let count = step.operations.len();
            let effects = effects[..count].to_vec();
            answers.push((answer.statuses[..count].to_vec(), times[..count].to_vec(), effects));
        }
        if answers[0] != answers[1] {
            return Err(format!("{what}: {answers:#?}"));
        }
        same(redis, &what).await?;
    }
    Ok(())
}

fn of_step(step: &Step, operation: Option<&str>, counter: &str) -> RateLimitDescriptor {
    let entry = operation.map(|operation| (operation, step.id));
    let entries: Vec<_> = std::iter::once(("user", counter)).chain(entry).collect();
    RateLimitDescriptor {
        hits_addend: step.hits,
        is_negative_hits: step.is_refund && operation.is_none(),
        ..descriptor(&entries)
    }
}

/// Compares the values and the hashes of both counters, and when they expire.
async fn same(redis: &Redis, what: &str) -> Result<(), String> {
    let mut all = Vec::new();
    for counter in COUNTERS {
        let value = first_of(redis, &format!("*{counter}"), "GET").await;
        let fields = first_of(redis, &format!("*{counter}:holds"), "HGETALL").await;
        all.push((value, fields));
    }
    match &all[..] {
        [one, other] if one == other => Ok(()),
        _ => Err(format!("{what}: {all:#?}")),
    }
}

/// Returns the reply to a command about the only key of a pattern.
async fn first_of(redis: &Redis, pattern: &str, command: &str) -> Option<Fields> {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", pattern]).await.unwrap();
    let [key] = keys.as_slice() else { return None };
    if command == "GET" {
        let value: Vec<u8> = redis.query_bytes(&[b"GET", key]).await.unwrap();
        return Some(Fields::from([(Vec::new(), value)]));
    }
    Some(redis.query_bytes(&[command.as_bytes(), key]).await.unwrap())
}

fn cases() -> impl Strategy<Value = Case> {
    let amounts = || prop_oneof![8 => 1u32..12, 2 => select(vec![60, 997, 100_000])];
    let units = select(vec!["7ms", "250ms", "second", "7s", "minute", "hour"]);
    let limits = (0u8..9, amounts(), units, 1u32..40, 1u32..7).prop_map(
        |(kind, amount, unit, burst, buckets)| {
            let single = format!("requests_per_unit: {amount}, unit: {unit}");
            match kind {
                0 | 1 => single,
                2 => format!("windows: [{{ {single} }}, {{ requests_per_unit: 50, unit: day }}]"),
                3 => format!("algorithm: sliding_window, buckets: {buckets}, {single}"),
                4 => format!("algorithm: sliding_log, requests_per_unit: 9, unit: {unit}"),
                5 | 6 => format!("algorithm: gcra, burst: {burst}, {single}"),
                _ => format!("algorithm: concurrency, in_flight: {burst}"),
            }
        },
    );
    let holds = (select(vec!["1s", "5s", "1m"]), select(vec!["charge", "release"]))
        .prop_map(|(ttl, on_settle)| (ttl, format!(", on_settle: {on_settle}")));
    let limits = (limits, holds).prop_map(|(limit, (ttl, on_settle))| {
        let on_settle = if limit.contains("in_flight") { String::new() } else { on_settle };
        format!("{limit}, hold: {{ ttl: {ttl}{on_settle} }}")
    });
    let modes = select(vec!["", "", "    shadow_mode: true\n"]);
    (limits, modes, prop::collection::vec(traces(), REQUESTS))
        .prop_map(|(limit, mode, trace)| Case { limit, mode, trace })
}

fn traces() -> impl Strategy<Value = Step> {
    let [reserve, commit, settle] = [RESERVE, COMMIT, SETTLE].map(Some);
    let operations = prop_oneof![
        8 => Just(vec![reserve]),
        4 => Just(vec![commit]),
        2 => Just(vec![settle]),
        3 => Just(vec![commit, settle]),
        1 => Just(vec![settle, commit]),
        2 => Just(vec![None]),
    ];
    let ids = select(vec!["1", "2", "3", "4", "5", "6", "7", "8", "9", "0"]);
    let hits = prop_oneof![
        4 => Just(None),
        1 => Just(Some(0)),
        8 => (1u64..6).prop_map(Some),
        1 => select(vec![70_000, 4_294_967_295]).prop_map(Some),
    ];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (steps(), operations, ids, hits, flags).prop_map(
        |(by, operations, id, hits, (is_refund, turns))| Step {
            by,
            operations,
            id,
            hits,
            is_refund,
            turns,
        },
    )
}

/// Limits with holds.
const KINDS: [(&str, &str); 6] = [
    ("fixed", "requests_per_unit: 100, unit: year, hold: { ttl: 1m }"),
    (
        "windows",
        "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }], hold: { ttl: 1m }",
    ),
    ("gcra", "algorithm: gcra, requests_per_unit: 100, unit: year, hold: { ttl: 1m }"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 100, unit: year, hold: { ttl: 1m }"),
    ("log", "algorithm: sliding_log, requests_per_unit: 100, unit: hour, hold: { ttl: 1m }"),
    ("permits", "algorithm: concurrency, in_flight: 20, hold: { ttl: 1m }"),
];

#[tokio::test]
async fn an_operation_on_a_hold_takes_one_call_of_a_script() {
    let redis = Redis::start().await;
    let policies = Policies::of(&format!("{}{RECORDED_RULE}", policy(&KINDS)));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    // Loads every script.
    for (key, _) in KINDS {
        frequent(&client, key, "warm", &[]).await;
        frequent(&client, key, "warm-recorded", &[descriptor(&[("recorded", "")])]).await;
    }
    for (key, _) in KINDS {
        for more in [&[][..], &[descriptor(&[("recorded", "")])]] {
            let before = calls(&[&redis], "evalsha").await;
            let count = frequent(&client, key, &format!("counted-{}", more.len()), more).await;
            assert_eq!(calls(&[&redis], "evalsha").await - before, count, "{key} {more:?}");
        }
    }
}

const RESERVE: &str = "tollgate.reserve";
const COMMIT: &str = "tollgate.commit";
const SETTLE: &str = "tollgate.settle";
/// Frequent requests: operations of an ID, and the hits.
const FREQUENT: [(&[&str], &str, u64); 9] = [
    (&[RESERVE], "a", 5),
    (&[COMMIT, SETTLE], "a", 5),
    (&[SETTLE], "a", 0),
    (&[COMMIT], "a", 7),
    (&[RESERVE], "b", 5),
    (&[SETTLE], "b", 0),
    (&[RESERVE], "c", 1_000),
    (&[SETTLE], "c", 0),
    (&[SETTLE], "unknown", 0),
];
/// Commits of a cost above the hold, and below it.
const MORE: [(&[&str], &str, u64); 2] = [(&[RESERVE], "d", 1), (&[COMMIT], "d", 3)];
const LESS: [(&[&str], &str, u64); 2] = [(&[RESERVE], "e", 9), (&[SETTLE, COMMIT], "e", 3)];

/// Makes the frequent requests of a counter, with these descriptors in each, and returns their
/// number.
async fn frequent(client: &Client, key: &str, value: &str, others: &[RateLimitDescriptor]) -> u64 {
    let more: &[_] = if key == "log" { &[] } else { &MORE };
    let less: &[_] = if matches!(key, "fixed" | "gcra" | "permits") { &LESS } else { &[] };
    let requests = FREQUENT.iter().chain(more).chain(less).map(|(operations, id, hits)| {
        let of = |operation: &&str| RateLimitDescriptor {
            hits_addend: (*operation != SETTLE).then_some(*hits),
            ..descriptor(&[(key, value), (*operation, *id)])
        };
        operations.iter().map(of).collect::<Vec<_>>()
    });
    let plain = [1, 0].map(|hits| {
        vec![RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, value)]) }]
    });
    let mut count = 0;
    for one in requests.chain(plain) {
        client.decide(request([&one, others].concat())).await.unwrap();
        count += 1;
    }
    count
}

#[tokio::test]
async fn keys_of_holds_live_long_enough_in_requests_of_every_shape() {
    const TTL_MS: i64 = 61_000;
    let redis = Redis::start().await;
    let algorithms = [
        "requests_per_unit: 900, unit: second",
        "requests_per_unit: 900, unit: year",
        "algorithm: gcra, requests_per_unit: 900, unit: second",
        "algorithm: sliding_window, requests_per_unit: 900, unit: second",
        "algorithm: sliding_log, requests_per_unit: 900, unit: hour",
    ];
    for limit in algorithms {
        redis.command(&["FLUSHALL"]).await;
        let policies = Policies::of(&format!(
            "domain: test\ndescriptors:\n  - key: user\n    rate_limit: {{ {limit}, hold: {{ ttl: 61s }} }}\n{RECORDED_RULE}"
        ));
        let (_service, client) = serve(&policies, &redis.url(), &[]).await;
        for number in 0..8 {
            for (counter, others) in COUNTERS.into_iter().zip([0, 2]) {
                let recorded = std::iter::repeat_n(descriptor(&[("recorded", "")]), others);
                let id = format!("id-{number}");
                let reserve = descriptor(&[("user", counter), ("tollgate.reserve", &id)]);
                let all = std::iter::once(reserve).chain(recorded).collect();
                client.decide(request(all)).await.unwrap();
                for pattern in [format!("*{counter}"), format!("*{counter}:holds")] {
                    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", &pattern]).await.unwrap();
                    let lives: i64 = redis.query_bytes(&[b"PTTL", &keys[0]]).await.unwrap();
                    assert!(lives >= TTL_MS + 59_000, "{limit}: {pattern} for {lives} ms");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_refused_write_of_a_hold_leaves_other_counters_of_the_request_as_they_are() {
    let may = "+@read +@string +@scripting +@connection +time +del";
    let lines = vec![format!("user app on >first ~* -@all {may}")];
    let redis = Redis::start_as(Setup { lines, ..Setup::default() }).await;
    let policies = Policies::of(&policy(&[
        ("permits", "algorithm: concurrency, in_flight: 2, hold: { ttl: 1m }"),
        ("tokens", "requests_per_unit: 9, unit: year, hold: { ttl: 1m }, on_store_error: allow"),
    ]));
    let url = format!("redis://app:first@{}", redis.address);
    let (_service, client) = serve(&policies, &url, &["--deny-cache-max", "0s"]).await;
    let mut admitted = 0;
    for id in ["a", "b", "c", "d"] {
        let reserve = |key| descriptor(&[(key, "x"), (RESERVE, id)]);
        let both = request(vec![reserve("permits"), reserve("tokens")]);
        admitted += usize::from(client.decide(both).await.unwrap().overall_code() == Code::Ok);
    }
    assert_eq!(admitted, 2, "permits that may be taken at once");
}

#[tokio::test]
async fn an_unreadable_counter_is_decided_by_the_caller_and_the_others_are_charged() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[
        ("tokens", "requests_per_unit: 9, unit: year, hold: { ttl: 1m }, on_store_error: local"),
        ("plain", "requests_per_unit: 9, unit: year"),
    ]));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    let both = || {
        request(vec![descriptor(&[("tokens", "x"), (RESERVE, "a")]), descriptor(&[("plain", "x")])])
    };
    client.decide(both()).await.unwrap();
    let keys: Vec<Vec<u8>> = redis
        .query(&["SCAN", "0", "TYPE", "hash"])
        .await
        .map(|(_, keys): (String, _)| keys)
        .unwrap();
    let [hash] = keys.as_slice() else { panic!("{keys:?}") };
    redis.query_bytes::<()>(&[b"DEL", hash]).await.unwrap();
    redis.query_bytes::<()>(&[b"SET", hash, b"of another type"]).await.unwrap();
    for left in [7, 6] {
        let answer = client.decide(both()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(answer.statuses[1].limit_remaining, left, "each request is charged once");
    }
}

#[tokio::test]
async fn a_take_back_leaves_other_holds_of_the_counter_and_their_time_to_live() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&[
        ("tokens", "requests_per_unit: 10, unit: second, hold: { ttl: 10m }"),
        ("full", "requests_per_unit: 1, unit: year, charge: admitted"),
    ]));
    let (_service, client) = serve(&policies, &cluster.url(), &["--deny-cache-max", "0s"]).await;
    let tokens = |id| descriptor(&[("tokens", "x"), (RESERVE, id)]);
    client.decide(request(vec![tokens("a"), descriptor(&[("full", "x")])])).await.unwrap();
    let denied = request(vec![tokens("b"), descriptor(&[("full", "x")])]);
    assert_eq!(client.decide(denied).await.unwrap().overall_code(), Code::OverLimit);
    let mut lives = Vec::new();
    for node in nodes_of(&cluster) {
        let keys: Vec<Vec<u8>> = node.query(&["KEYS", "*"]).await.unwrap();
        for key in keys {
            lives.push(node.query_bytes::<i64>(&[b"PTTL", &key]).await.unwrap());
        }
    }
    assert_eq!(lives.len(), 3, "two values, and the holds of one");
    assert!(lives.iter().all(|lives| *lives > 600_000), "{lives:?} ms");
}
