//! Requests in flight are sent to Redis together, and the outcome of one does not affect another.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

use super::{calls, cluster, metric, nodes_of, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

/// Requests in flight at a time.
const AT_ONCE: usize = 64;

/// Limits of which tests exceed none.
const LIMITS: [(&str, &str); 3] = [
    ("fixed", "requests_per_unit: 1000, unit: year"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 1000, unit: year"),
    ("record", "requests_per_unit: 1000, unit: year, record: [record]"),
];

#[tokio::test]
async fn concurrent_requests_are_batched_into_fewer_calls() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    for (key, _) in LIMITS {
        answers_of(&client, vec![one(key, "first")]).await;
        let before = calls(&[&redis], "evalsha").await;
        let answers = answers_of(&client, users(key, AT_ONCE)).await;
        assert_eq!(answers, vec![ShortAnswer::Ok; AT_ONCE], "{key}");
        let calls = calls(&[&redis], "evalsha").await - before;
        assert!(calls < as_u64(AT_ONCE) / 4, "{key}: {calls} calls for {AT_ONCE} requests");
    }
}

#[tokio::test]
async fn requests_for_one_slot_of_a_cluster_are_one_call_and_those_of_others_go_with_them() {
    let cluster = cluster().await;
    let policies = Policies::of(&format!("atomicity: domain\n{}", policy(&LIMITS)));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    for (key, _) in LIMITS {
        answers_of(&client, vec![one(key, "first")]).await;
        let before = calls(&nodes_of(&cluster), "evalsha").await;
        assert_eq!(
            answers_of(&client, users(key, AT_ONCE)).await,
            vec![ShortAnswer::Ok; AT_ONCE],
            "{key}"
        );
        let calls = calls(&nodes_of(&cluster), "evalsha").await - before;
        assert!(calls < as_u64(AT_ONCE) / 4, "{key}: {calls} calls for {AT_ONCE} requests");
    }
}

#[tokio::test]
async fn requests_for_many_slots_of_a_cluster_are_few_calls_and_each_counts_once() {
    let cluster = cluster().await;
    let held = ("held", "requests_per_unit: 1000, unit: year, hold: { ttl: 1h }");
    let policies = Policies::of(&policy(&[LIMITS[0], held]));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    for key in ["fixed", "held"] {
        let rounds = Cell::new(0);
        let calls_of_a_round = async || {
            let before = calls(&nodes_of(&cluster), "evalsha").await;
            let answers = answers_of(&client, users(key, AT_ONCE)).await;
            assert_eq!(answers, vec![ShortAnswer::Ok; AT_ONCE]);
            rounds.set(rounds.get() + 1);
            calls(&nodes_of(&cluster), "evalsha").await - before
        };
        // Nodes are checked one after the other for whether calls can be shared.
        becomes("calls are shared", TEST_TIMEOUT, calls_of_a_round, |calls| {
            *calls < as_u64(AT_ONCE) / 2
        })
        .await;
        for number in [0, 17, AT_ONCE - 1] {
            let left = remaining(&client, key, &format!("{key}-{number}")).await;
            assert_eq!(left, 1000 - rounds.get(), "{key}");
        }
    }
}

#[tokio::test]
async fn requests_for_one_counter_see_each_other() {
    let redis = Redis::start().await;
    let limits = [
        ("fixed", "requests_per_unit: 40, unit: year"),
        ("gcra", "algorithm: gcra, requests_per_unit: 40, unit: year"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    for (key, _) in limits {
        let same = vec![one(key, "ann"); AT_ONCE];
        let answers = answers_of(&client, same).await;
        assert_eq!(
            answers.iter().filter(|said| **said == ShortAnswer::Ok).count(),
            40,
            "{key}: {answers:?}"
        );
        assert_eq!(remaining(&client, key, "ann").await, 0);
    }
}

#[tokio::test]
async fn a_foreign_value_fails_its_own_request_only() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    for (key, _) in LIMITS {
        let bad = format!("{key}-7");
        answers_of(&client, vec![one(key, &bad)]).await;
        let counters: Vec<Vec<u8>> = redis.query(&["KEYS", &format!("*{bad}")]).await.unwrap();
        redis.query_bytes::<redis::Value>(&[b"DEL", &counters[0]]).await.unwrap();
        redis.query_bytes::<redis::Value>(&[b"RPUSH", &counters[0], b"no counter"]).await.unwrap();
        let mut wanted = vec![ShortAnswer::Ok; AT_ONCE];
        wanted[7] = ShortAnswer::Failed;
        assert_eq!(answers_of(&client, users(key, AT_ONCE)).await, wanted, "{key}");
    }
    assert_eq!(metric(&service, r#"tollgate_store_errors_total{kind="unreadable"}"#).await, 3);
}

#[tokio::test]
async fn a_foreign_value_in_a_call_for_many_slots_fails_its_own_request_only() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    let nodes = nodes_of(&cluster);
    // Calls are shared once each node is known to refuse the keys of others.
    let calls_of_a_round = async || {
        let before = calls(&nodes, "evalsha").await;
        assert_eq!(
            answers_of(&client, users("fixed", AT_ONCE)).await,
            vec![ShortAnswer::Ok; AT_ONCE]
        );
        calls(&nodes, "evalsha").await - before
    };
    becomes("calls are shared", TEST_TIMEOUT, calls_of_a_round, |calls| {
        *calls < as_u64(AT_ONCE) / 2
    })
    .await;
    for foreign in [&b"SET"[..], b"RPUSH"] {
        for (key, _) in LIMITS {
            answers_of(&client, users(key, AT_ONCE)).await;
            let left = remaining(&client, key, &format!("{key}-6")).await;
            let bad = format!("{key}-7");
            for node in &nodes {
                let counters: Vec<Vec<u8>> =
                    node.query(&["KEYS", &format!("*{bad}")]).await.unwrap();
                for counter in counters {
                    node.query_bytes::<redis::Value>(&[b"DEL", &counter]).await.unwrap();
                    node.query_bytes::<redis::Value>(&[foreign, &counter, b"\x7f"]).await.unwrap();
                }
            }
            let mut wanted = vec![ShortAnswer::Ok; AT_ONCE];
            wanted[7] = ShortAnswer::Failed;
            assert_eq!(answers_of(&client, users(key, AT_ONCE)).await, wanted, "{key}");
            // With a second counter of the same slot or another: the others are not charged.
            let with_another = |request: RateLimitRequest| {
                let another = descriptor(&[("sliding", "another")]);
                RateLimitRequest {
                    descriptors: [request.descriptors, vec![another]].concat(),
                    ..request
                }
            };
            let both: Vec<_> = users(key, AT_ONCE).into_iter().map(with_another).collect();
            assert_eq!(answers_of(&client, both).await, wanted, "{key}, and another counter");
            assert_eq!(remaining(&client, key, &format!("{key}-6")).await, left - 2, "{key}");
        }
    }
}

#[tokio::test]
async fn a_full_store_rejects_writes_only() {
    let redis = Redis::start_with(&["maxmemory-policy noeviction"]).await;
    let limits = [
        ("fixed", "requests_per_unit: 1, unit: year, charge: admitted"),
        ("log", "algorithm: sliding_log, requests_per_unit: 1, unit: year"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    for (key, _) in limits {
        let even: Vec<RateLimitRequest> = users(key, AT_ONCE).into_iter().step_by(2).collect();
        assert_eq!(answers_of(&client, even).await, vec![ShortAnswer::Ok; AT_ONCE / 2]);
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let wanted = [ShortAnswer::Over, ShortAnswer::Failed].repeat(AT_ONCE / 2);
        assert_eq!(answers_of(&client, users(key, AT_ONCE)).await, wanted, "{key}");
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
}

#[tokio::test]
async fn a_forbidden_key_fails_its_own_request_only() {
    let redis = Redis::start().await;
    redis
        .command(&[
            "ACL",
            "SETUSER",
            "half",
            "on",
            ">secret",
            "+@all",
            "~*fixed-?",
            "~*sliding-?",
            "~*record-?",
        ])
        .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret").unwrap();
    let policies = Policies::of(&policy(&LIMITS));
    let flags = ["--redis-user", "half", "--redis-password-file", file.path().to_str().unwrap()];
    let (_service, client) = serve(&policies, &redis.url(), &flags).await;
    for (key, _) in LIMITS {
        // Only the first ten have a number of one digit.
        let wanted = [vec![ShortAnswer::Ok; 10], vec![ShortAnswer::Failed; AT_ONCE - 10]].concat();
        assert_eq!(answers_of(&client, users(key, AT_ONCE)).await, wanted, "{key}");
    }
}

#[tokio::test]
async fn scripts_flushed_under_load_fail_no_request_and_charge_once() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    for round in 1..=5 {
        for (key, _) in LIMITS {
            redis.command(&["SCRIPT", "FLUSH"]).await;
            assert_eq!(
                answers_of(&client, users(key, AT_ONCE)).await,
                vec![ShortAnswer::Ok; AT_ONCE],
                "{key}"
            );
            assert_eq!(remaining(&client, key, &format!("{key}-3")).await, 1000 - round, "{key}");
        }
    }
}

#[tokio::test]
async fn each_request_is_answered_at_its_own_deadline_though_the_batch_is_late() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    // Too few to open the circuit breaker.
    let hasty = 4;
    let patient = AT_ONCE - 4;
    for (round, (key, _)) in (1..).zip(LIMITS) {
        answers_of(&client, vec![one(key, "first")]).await;
        redis.pause();
        let waits = (0..AT_ONCE)
            .map(|number| if number < hasty { 100 } else { 20_000 })
            .map(Duration::from_millis);
        let asked = users(key, AT_ONCE).into_iter().zip(waits);
        let all: Vec<_> = asked
            .map(|(request, wait)| {
                let client = client.clone();
                tokio::spawn(async move { client.decide_within(request, Some(wait)).await })
            })
            .collect();
        let mut all = all.into_iter();
        // While the server still hangs.
        for answer in join_all(all.by_ref().take(hasty)).await {
            let answer = answer.unwrap();
            assert!(answer.is_err(), "{answer:?}");
        }
        redis.resume();
        let answers = join_all(all).await;
        let admitted = answers.into_iter().filter(|answer| is_ok(answer.as_ref().unwrap())).count();
        assert_eq!(admitted, patient, "{key}");
        let unknown = || metric(&service, "tollgate_unknown_charges_total");
        assert!(unknown().await <= as_u64(hasty) * round, "{}", unknown().await);
        becomes(
            "it decides",
            TEST_TIMEOUT,
            || answer_of(&client, one(key, "last")),
            |answer| *answer == ShortAnswer::Ok,
        )
        .await;
    }
}

/// An answer in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShortAnswer {
    Ok,
    Over,
    Failed,
}

/// Sends requests concurrently, and returns their answers.
async fn answers_of(client: &Client, requests: Vec<RateLimitRequest>) -> Vec<ShortAnswer> {
    join_all(requests.into_iter().map(|request| answer_of(client, request))).await
}

async fn answer_of(client: &Client, request: RateLimitRequest) -> ShortAnswer {
    match client.decide(request).await {
        Ok(answer) if answer.overall_code() == Code::Ok => ShortAnswer::Ok,
        Ok(_) => ShortAnswer::Over,
        Err(_) => ShortAnswer::Failed,
    }
}

fn is_ok(answer: &Result<tollgate::grpc::proto::RateLimitResponse, tonic::Status>) -> bool {
    answer.as_ref().is_ok_and(|answer| answer.overall_code() == Code::Ok)
}

/// Returns a request for each of `count` users.
fn users(key: &str, count: usize) -> Vec<RateLimitRequest> {
    (0..count).map(|number| one(key, &format!("{key}-{number}"))).collect()
}

fn one(key: &str, value: &str) -> RateLimitRequest {
    let descriptor: RateLimitDescriptor = descriptor(&[(key, value)]);
    request(vec![descriptor])
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}
