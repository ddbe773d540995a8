//! Per-second limits on servers of their own: `--per-second-store`.

use tollgate::grpc::proto::rate_limit_response::Code;

use redis::Value;

use super::{is_ready, metric, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn the_per_second_server_has_per_second_limits_only() {
    let redis = Redis::start().await;
    let other = guarded().await;
    let limits = [
        ("second", "requests_per_unit: 1000, unit: second"),
        ("rate", "algorithm: gcra, requests_per_unit: 1000, unit: 1s"),
        ("minute", "requests_per_unit: 1000, unit: minute"),
        (
            "both",
            "windows: [{requests_per_unit: 9, unit: second}, {requests_per_unit: 99, unit: hour}]",
        ),
    ];
    let policies = Policies::of(&policy(&limits));
    // No heartbeat is among the keys: the number of processes is given.
    let there = ["--per-second-store", &other.url(), "--per-second-password", "secret"];
    let (_service, client) = serve(&policies, &redis.url(), &there).await;
    for (key, _) in limits {
        assert!(client.hit(key, "ann").await, "{key}");
    }
    for server in [&redis, &other] {
        assert_eq!(server.command(&["DBSIZE"]).await, Value::Int(2));
    }
}

#[tokio::test]
async fn a_denial_of_one_server_is_taken_back_at_the_other() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        // A limit that never denies, and drains only one hit per second.
        (
            "second",
            "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1000, charge: admitted",
        ),
        ("year", "requests_per_unit: 1, unit: year, charge: admitted"),
    ];
    let policies = Policies::of(&policy(&limits));
    let flags = ["--per-second-store", &other.url(), "--deny-cache-max", "0s"];
    let (service, client) = serve(&policies, &redis.url(), &flags).await;
    let both = || request(vec![descriptor(&[("second", "")]), descriptor(&[("year", "")])]);
    assert_eq!(client.decide(both()).await.unwrap().overall_code(), Code::Ok);
    for _ in 0..10 {
        assert_eq!(client.decide(both()).await.unwrap().overall_code(), Code::OverLimit);
    }
    assert_eq!(metric(&service, "tollgate_take_backs_total").await, 10);
    becomes(
        "the hits taken back remain",
        TEST_TIMEOUT,
        || remaining(&client, "second", ""),
        |left| *left >= 999,
    )
    .await;
}

#[tokio::test]
async fn an_unavailable_server_fails_its_own_limits_only() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        ("second", "requests_per_unit: 1000, unit: second"),
        ("minute", "requests_per_unit: 1000, unit: minute"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (_service, client) =
        serve(&policies, &redis.url(), &["--per-second-store", &other.url()]).await;
    assert!(client.hit("second", "ann").await);
    other.kill();
    let send = |key| client.decide(request(vec![descriptor(&[(key, "ann")])]));
    becomes("its limits fail", TEST_TIMEOUT, || send("second"), Result::is_err).await.unwrap_err();
    assert!(client.hit("minute", "ann").await);
}

#[tokio::test]
async fn a_hanging_server_leaves_the_other_time_to_decide() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        ("second", "requests_per_unit: 1000, unit: second, on_store_error: allow"),
        ("year", "requests_per_unit: 3, unit: year"),
    ];
    let policies = Policies::of(&policy(&limits));
    let flags = [
        "--store",
        &redis.url(),
        "--per-second-store",
        &other.url(),
        "--store-timeout",
        "2s",
        "--replicas",
        "1",
    ];
    let service = Tollgate::serve_with(policies.path(), &flags);
    becomes("it is ready", TEST_TIMEOUT, || is_ready(&service), |ready| *ready).await;
    let client = Client::connect(service.grpc).await;
    let both = || request(vec![descriptor(&[("second", "")]), descriptor(&[("year", "")])]);
    assert_eq!(client.decide(both()).await.unwrap().overall_code(), Code::Ok);
    other.pause();
    assert_eq!(client.decide(both()).await.unwrap().overall_code(), Code::Ok);
    assert_eq!(remaining(&client, "year", "").await, 1);
    other.resume();
}

#[tokio::test]
async fn per_second_decisions_are_known_before_the_others_charge() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        ("gone", "requests_per_unit: 1000, unit: second, on_store_error: deny"),
        ("year", "requests_per_unit: 100, unit: year, charge: admitted"),
    ];
    let vote =
        "\n  - {key: vote, quota_mode: true, rate_limit: {requests_per_unit: 0, unit: second}}";
    let policies = Policies::of(&format!("{}{vote}", policy(&limits).trim_end()));
    let flags = ["--per-second-store", &other.url()];
    let (service, client) = serve(&policies, &redis.url(), &flags).await;
    let send = |key: &'static str| {
        client.decide(request(vec![descriptor(&[(key, "")]), descriptor(&[("year", "")])]))
    };
    assert_eq!(send("vote").await.unwrap().overall_code(), Code::OverLimit);
    other.kill();
    becomes(
        "the unavailable store denies",
        TEST_TIMEOUT,
        || send("gone"),
        |answer| answer.as_ref().is_ok_and(|answer| answer.overall_code() == Code::OverLimit),
    )
    .await
    .unwrap();
    assert_eq!(metric(&service, "tollgate_take_backs_total").await, 0);
    assert_eq!(remaining(&client, "year", "").await, 100);
}

async fn guarded() -> Redis {
    Redis::start_as(Setup { password: Some("secret"), ..Setup::default() }).await
}
