//! Known denials are answered without Redis until the limit may admit again, and no longer than
//! configured.

use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::amend::inspect;
use super::{calls, cluster, metric, nodes_of, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const YEARLY: &str = "algorithm: sliding_window, requests_per_unit: 1, unit: year";
const LONG: [&str; 2] = ["--deny-cache-max", "60s"];

/// A server, a service, and a client whose `user=ann` has been denied once.
struct Denied {
    redis: Redis,
    policies: Policies,
    service: Tollgate,
    client: Client,
}

impl Denied {
    async fn by(rules: &[(&str, &str)], flags: &[&str]) -> Self {
        let redis = Redis::start().await;
        let policies = Policies::of(&policy(rules));
        let (service, client) = serve(&policies, &redis.url(), flags).await;
        assert!(client.hit("user", "ann").await);
        assert!(!client.hit("user", "ann").await);
        Self { redis, policies, service, client }
    }

    /// Returns the number of script calls so far.
    async fn calls(&self) -> u64 {
        calls(&[&self.redis], "evalsha").await
    }
}

#[tokio::test]
async fn a_cached_denial_makes_no_store_call() {
    let denied = Denied::by(&[("user", YEARLY)], &LONG).await;
    let before = denied.calls().await;
    for _ in 0..20 {
        assert!(!denied.client.hit("user", "ann").await);
    }
    assert_eq!(denied.calls().await, before);
    assert_eq!(metric(&denied.service, "tollgate_deny_cache_hits_total").await, 20);
}

#[tokio::test]
async fn all_connections_of_a_process_share_cached_denials() {
    let denied = Denied::by(&[("user", YEARLY)], &LONG).await;
    let before = denied.calls().await;
    for _ in 0..4 {
        assert!(!Client::connect(denied.service.grpc).await.hit("user", "ann").await);
    }
    assert_eq!(denied.calls().await, before);
}

#[tokio::test]
async fn another_value_makes_a_store_call() {
    let denied = Denied::by(&[("user", YEARLY)], &LONG).await;
    assert!(denied.client.hit("user", "bob").await);
}

#[tokio::test]
async fn a_denial_of_many_hits_does_not_apply_to_fewer() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[(
        "user",
        "algorithm: sliding_window, requests_per_unit: 3, unit: year",
    )]));
    let (_service, client) = serve(&policies, &redis.url(), &LONG).await;
    assert_eq!(take(&client, 2).await, Code::Ok);
    assert_eq!(take(&client, 2).await, Code::OverLimit);
    assert_eq!(take(&client, 1).await, Code::Ok);
}

#[tokio::test]
async fn a_denial_is_cached_at_most_until_retry_after() {
    let limit = "algorithm: sliding_log, requests_per_unit: 1, unit: 2s";
    let denied = Denied::by(&[("user", limit)], &LONG).await;
    becomes(
        "there is room",
        TEST_TIMEOUT,
        || denied.client.hit("user", "ann"),
        |admitted| *admitted,
    )
    .await;
}

#[tokio::test]
async fn a_denial_is_cached_at_most_for_the_configured_time() {
    let denied = Denied::by(&[("user", YEARLY)], &["--deny-cache-max", "300ms"]).await;
    let before = denied.calls().await;
    let calls = || async {
        assert!(!denied.client.hit("user", "ann").await);
        denied.calls().await
    };
    becomes("Redis decides again", TEST_TIMEOUT, calls, |now| *now > before).await;
}

#[tokio::test]
async fn without_the_cache_every_denial_makes_a_store_call() {
    let denied = Denied::by(&[("user", YEARLY)], &["--deny-cache-max", "0s"]).await;
    let before = denied.calls().await;
    for _ in 0..20 {
        assert!(!denied.client.hit("user", "ann").await);
    }
    assert_eq!(denied.calls().await, before + 20);
}

#[tokio::test]
async fn a_refund_through_the_same_process_ends_a_cached_denial_at_once() {
    let denied = Denied::by(&[("user", YEARLY)], &LONG).await;
    let refund = RateLimitDescriptor { is_negative_hits: true, ..hits(1) };
    assert_eq!(denied.client.status(refund).await.code(), Code::Ok);
    assert!(denied.client.hit("user", "ann").await);
}

#[tokio::test]
async fn a_policy_that_allows_more_ends_a_cached_denial() {
    let denied = Denied::by(&[("user", YEARLY)], &LONG).await;
    let raised = "algorithm: sliding_window, requests_per_unit: 2, unit: year";
    denied.policies.write("policy.yaml", &policy(&[("user", raised)]));
    becomes(
        "the new amount is in force",
        TEST_TIMEOUT,
        || denied.client.limit("user", "bob"),
        |now| *now == Some(2),
    )
    .await;
    assert!(denied.client.hit("user", "ann").await);
}

#[tokio::test]
async fn a_policy_that_moves_its_counters_ends_a_cached_denial() {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    for store in [redis.url(), cluster.url()] {
        let rules = policy(&[("user", "requests_per_unit: 1, unit: year")]);
        let policies = Policies::of(&rules);
        let (_service, client) = serve(&policies, &store, &LONG).await;
        assert!(client.hit("user", "ann").await);
        assert!(!client.hit("user", "ann").await);
        policies.write("policy.yaml", &format!("atomicity: domain\n{rules}"));
        becomes(
            "another counter is decided by Redis",
            TEST_TIMEOUT,
            || client.hit("user", "ann"),
            |admitted| *admitted,
        )
        .await;
    }
}

#[tokio::test]
async fn denied_hits_that_extend_the_wait_are_charged_and_the_wait_is_reported() {
    // Each hit adds 12 s to the wait of the hourly limit, and hits of the first window may use up
    // the second.
    let rate = "algorithm: gcra, requests_per_unit: 300, unit: hour, burst: 1, charge: always";
    let windows = "windows: [{ requests_per_unit: 1, unit: year }, { requests_per_unit: 10, unit: 3650d }], charge: always";
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("rate", rate), ("windows", windows)]));
    let (service, client) = serve(&policies, &redis.url(), &LONG).await;
    assert!(client.hit("rate", "ann").await && client.hit("windows", "ann").await);
    for denied in 1..=10 {
        let wait = client
            .status(descriptor(&[("rate", "ann")]))
            .await
            .duration_until_reset
            .unwrap()
            .seconds;
        // The elapsed time is less than a hit's worth, unless the machine is very slow.
        assert!(wait > denied * 12, "{denied} hits denied, {wait} s");
        assert!(!client.hit("windows", "ann").await);
    }
    let used = &inspect(&service, "windows=ann").await["state"]["windows"];
    assert_eq!([&used[0]["used"], &used[1]["used"]], [11, 11]);
    assert_eq!(metric(&service, "tollgate_deny_cache_hits_total").await, 0);
}

#[tokio::test]
async fn the_rest_of_a_denied_request_is_decided_as_denied() {
    let rules = [
        ("user", YEARLY),
        ("always", "requests_per_unit: 9, unit: year"),
        ("admitted", "requests_per_unit: 9, unit: year, charge: admitted"),
    ];
    let denied = Denied::by(&rules, &LONG).await;
    let before = denied.calls().await;
    let all = ["user", "always", "admitted"].map(|key| descriptor(&[(key, "ann")]));
    let answer = denied.client.decide(request(all.to_vec())).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let codes: Vec<Code> = answer.statuses.iter().map(|status| status.code()).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok, Code::Ok]);
    let left: Vec<u32> = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(left, [0, 8, 9]);
    assert_eq!(denied.calls().await, before + 1);
}

#[tokio::test]
async fn a_cluster_is_called_if_the_denial_may_come_from_a_charge_that_is_taken_back() {
    let cluster = cluster().await;
    let rules = [("user", YEARLY), ("always", "requests_per_unit: 1, unit: year")];
    let policies = Policies::of(&policy(&rules));
    let (_service, client) = serve(&policies, &cluster.url(), &LONG).await;
    for (key, calls_of_three) in [("user", 3), ("always", 0)] {
        assert!(client.hit(key, "ann").await);
        assert!(!client.hit(key, "ann").await);
        let before = calls(&nodes_of(&cluster), "evalsha").await;
        for _ in 0..3 {
            assert!(!client.hit(key, "ann").await);
        }
        assert_eq!(calls(&nodes_of(&cluster), "evalsha").await - before, calls_of_three, "{key}");
    }
}

/// Returns a descriptor that takes `count` hits of `user=ann`.
fn hits(count: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(count), ..descriptor(&[("user", "ann")]) }
}

async fn take(client: &Client, count: u64) -> Code {
    client.status(hits(count)).await.code()
}
