//! The script of the frequent requests does what the one for all others does: the same answer, the same value, the same time
//! to live.
//!
//! Of two counters of one limit, one is always asked about alone, which is the frequent kind, and the other always beside a
//! limit in shadow mode that says nothing: the same requests at the same instants.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::serve;
use super::sides::Sides;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};

const CASES: u32 = 24;
const REQUESTS: usize = 200;
const START: u64 = 1_780_000_000_000_000;
const FARTHEST_BACK: u64 = 59_000_000;

/// A limit, and what is asked of it: microseconds forwards or back, hits, and whether the scripts change places once.
struct Case {
    limit: String,
    modes: Modes,
    trace: Vec<(i64, Option<u64>, bool)>,
}

#[test]
fn what_is_decided_straight_is_decided_as_all_else_is() {
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
        write!(f, "{}, {:?}, {} requests", self.limit, self.modes, self.trace.len())
    }
}

async fn run(redis: &Redis, case: &Case) {
    let sides = Sides::new(&[redis.url()], "straight:", case.modes).await;
    sides.clear().await;
    let beside = "  - key: beside\n    rate_limit: { algorithm: sliding_window, requests_per_unit: 4000000000, unit: year }\n    shadow_mode: true\n";
    sides.install(&format!("domain: test\ndescriptors:\n{}{beside}", case.limit));
    let (mut now, mut latest) = (START, START);
    for (number, (step, hits, both)) in case.trace.iter().enumerate() {
        now = now.saturating_add_signed(*step).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let of = |value: &str| RateLimitDescriptor { hits_addend: *hits, ..descriptor(&[("user", value)]) };
        let alone = sides.decide(now, &request(vec![of("counter-a")])).await.unwrap().unwrap();
        let company = request(vec![of("counter-b"), descriptor(&[("beside", "")])]);
        let company = sides.decide(now, &company).await.unwrap().unwrap();
        assert_eq!(alone.0.statuses[0], company.0.statuses[0], "request {number} of {case:?}");
        assert_eq!(alone.1[0], company.1[0], "request {number} of {case:?}");
        if *both {
            // Either script goes on with what the other has written.
            let of_a = sides.decide(now, &request(vec![of("counter-a"), descriptor(&[("beside", "")])])).await;
            let of_b = sides.decide(now, &request(vec![of("counter-b")])).await;
            let (of_a, of_b) = (of_a.unwrap().unwrap(), of_b.unwrap().unwrap());
            assert_eq!(
                (&of_a.0.statuses[0], of_a.1[0]),
                (&of_b.0.statuses[0], of_b.1[0]),
                "request {number} of {case:?}"
            );
        }
        let values = values(redis).await;
        same(&values, &format!("request {number} of {case:?}"));
    }
}

#[tokio::test]
async fn by_the_servers_clock_both_scripts_let_a_counter_live_as_long() {
    let redis = Redis::start().await;
    let rule = |key: &str, more: &str| format!("  - key: {key}\n    rate_limit: {{ unit: year, {more} }}\n");
    let beside = rule("beside", "requests_per_unit: 9");
    for algorithm in ["fixed_window", "gcra"] {
        redis.command(&["FLUSHALL"]).await;
        let user = rule("user", &format!("algorithm: {algorithm}, requests_per_unit: 9"));
        let policies = Policies::of(&format!("domain: test\ndescriptors:\n{user}{beside}"));
        let (_service, client) = serve(&policies, &redis.url(), &[]).await;
        for _ in 0..4 {
            let [a, b] = ["counter-a", "counter-b"].map(|value| descriptor(&[("user", value)]));
            client.ask(request(vec![a])).await.unwrap();
            client.ask(request(vec![b, descriptor(&[("beside", "")])])).await.unwrap();
            let values = values(&redis).await;
            assert_eq!(values.len(), 2);
            let ((_, a), (_, b)) = (&values["counter-a"], &values["counter-b"]);
            assert!((a - b).abs() < 10_000, "{algorithm}: {a} and {b} ms");
        }
    }
}

/// Both counters have the same value, or none, and go at about the same time.
fn same(values: &BTreeMap<String, (Vec<u8>, i64)>, what: &str) {
    let [a, b] = ["counter-a", "counter-b"].map(|counter| values.get(counter));
    assert_eq!(a.map(|(value, _)| value), b.map(|(value, _)| value), "{what}");
    if let (Some((_, a)), Some((_, b))) = (a, b) {
        assert!((a - b).abs() < 60_000, "{what}: {a} and {b} ms");
    }
}

/// The value of each of the two counters, and when it goes, in ms.
async fn values(redis: &Redis) -> BTreeMap<String, (Vec<u8>, i64)> {
    let mut values = BTreeMap::new();
    for counter in ["counter-a", "counter-b"] {
        let keys: Vec<Vec<u8>> = redis.ask(&["KEYS", &format!("*{counter}")]).await.unwrap();
        if let [key] = keys.as_slice() {
            let value = redis.ask_bytes(&[b"GET", key]).await.unwrap();
            let lives: i64 = redis.ask_bytes(&[b"PEXPIRETIME", key]).await.unwrap();
            values.insert(counter.to_owned(), (value, lives));
        }
    }
    values
}

fn cases() -> impl Strategy<Value = Case> {
    let amounts = prop_oneof![6 => 1u32..9, 2 => Just(600), 1 => Just(2_000_000_000)];
    let periods = prop::sample::select(vec!["second", "7s", "minute", "hour", "3650d"]);
    let algorithms = prop::sample::select(vec!["fixed_window", "gcra"]);
    let charges = prop::sample::select(vec!["admitted", "blamed", "always", "afterwards"]);
    let modes = prop::sample::select(vec!["", "    shadow_mode: true\n", "    quota_mode: true\n"]);
    let limits = (amounts, periods, algorithms, charges, modes).prop_map(|(amount, unit, algorithm, charge, mode)| {
        format!(
            "  - key: user\n    rate_limit: {{ algorithm: {algorithm}, requests_per_unit: {amount}, unit: {unit}, charge: {charge} }}\n{mode}"
        )
    });
    let hits = prop_oneof![6 => Just(None), 2 => (0u64..5).prop_map(Some), 1 => Just(Some(u64::from(u32::MAX)))];
    let steps = prop_oneof![4 => 0i64..2_000_000, 2 => Just(0i64), 1 => -3_000_000i64..0, 1 => 0i64..90_000_000];
    let trace = prop::collection::vec((steps, hits, prop::bool::weighted(0.2)), REQUESTS);
    let shadow = prop::bool::weighted(0.2);
    (limits, shadow, trace).prop_map(|(limit, shadow, trace)| Case {
        limit,
        modes: Modes { shadow, quota: false },
        trace,
    })
}
