//! Cancelled calls: work that has begun is finished, and charges of a request that is not admitted
//! are taken back.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

use super::{cluster, metric, nodes_of, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{Client, descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

const PLENTY: u32 = 1_000_000;
const GONE: usize = 20;
const LOST: &str = "tollgate_take_backs_lost_total";
const UNKNOWN: &str = "tollgate_unknown_charges_total";

/// Returns one limit that is never reached, and one that a single hit uses up.
fn rules() -> Policies {
    let plenty = format!("requests_per_unit: {PLENTY}, unit: year, charge: admitted");
    Policies::of(&policy(&[
        ("plenty", &plenty),
        ("full", "requests_per_unit: 1, unit: year, charge: admitted"),
    ]))
}

fn of(entries: &[(&str, &str)]) -> RateLimitRequest {
    request(entries.iter().map(|entry| descriptor(&[*entry])).collect())
}

/// Sends a request `GONE` times concurrently, and cancels each call after its `wait`.
async fn send_and_cancel(
    client: &Client,
    message: &RateLimitRequest,
    wait: impl Fn(usize) -> Duration,
) {
    let mut gone = JoinSet::new();
    for number in 0..GONE {
        let client = client.clone();
        let message = message.clone();
        let wait = wait(number);
        gone.spawn(
            async move { tokio::time::timeout(wait, client.decide(message)).await.is_err() },
        );
    }
    gone.join_all().await;
}

/// Returns the node that has the counter of a value.
async fn place_of<'a>(cluster: &'a Cluster, value: &str) -> &'a Redis {
    for node in nodes_of(cluster) {
        let keys: Vec<Vec<u8>> = node.query(&["KEYS", &format!("*{value}*")]).await.unwrap();
        if !keys.is_empty() {
            return node;
        }
    }
    panic!("no node has a key of {value}")
}

/// Returns a value whose counter is not on the node of the full one, and that node. Both are used
/// once.
async fn apart<'a>(cluster: &'a Cluster, client: &Client) -> (String, &'a Redis) {
    assert!(client.hit("full", "the-full-one").await);
    let full = place_of(cluster, "the-full-one").await;
    for number in 0.. {
        let value = format!("value-{number}");
        assert!(client.hit("plenty", &value).await);
        if place_of(cluster, &value).await.address != full.address {
            return (value, full);
        }
    }
    unreachable!()
}

#[tokio::test]
async fn a_call_cancelled_while_waiting_for_a_slot_leaves_no_charge_at_another() {
    let cluster = cluster().await;
    let (service, client) = serve(&rules(), &cluster.url(), &["--deny-cache-max", "0s"]).await;
    let (value, full) = apart(&cluster, &client).await;
    let both = of(&[("plenty", &value), ("full", "the-full-one")]);
    full.pause();
    send_and_cancel(&client, &both, |_| Duration::from_millis(200)).await;
    full.resume();
    let left = || remaining(&client, "plenty", &value);
    becomes("only admitted hits are charged", TEST_TIMEOUT, left, |left| *left == PLENTY - 1).await;
    assert_eq!(metric(&service, UNKNOWN).await, 0, "what became of each charge is known");
    assert_eq!(metric(&service, LOST).await, 0);
}

#[tokio::test]
async fn calls_that_are_cancelled_at_any_time_leave_no_charge() {
    let cluster = cluster().await;
    let (service, client) = serve(&rules(), &cluster.url(), &["--deny-cache-max", "0s"]).await;
    let (value, _) = apart(&cluster, &client).await;
    let both = of(&[("plenty", &value), ("full", "the-full-one")]);
    for round in 0..25u64 {
        let wait =
            |number| Duration::from_micros(100 * round + 1_000 * u64::try_from(number).unwrap());
        send_and_cancel(&client, &both, wait).await;
    }
    let left = || remaining(&client, "plenty", &value);
    becomes("only admitted hits are charged", TEST_TIMEOUT, left, |left| *left == PLENTY - 1).await;
    assert_eq!(metric(&service, UNKNOWN).await, 0);
}

#[tokio::test]
async fn calls_past_their_deadline_leave_no_uncounted_charge() {
    let cluster = cluster().await;
    let (service, client) = serve(&rules(), &cluster.url(), &["--deny-cache-max", "0s"]).await;
    let (value, _) = apart(&cluster, &client).await;
    for round in 0..400 {
        let both = of(&[("plenty", &value), ("full", "the-full-one")]);
        let wait = Duration::from_micros(200 + 25 * (round % 100));
        let _ = client.decide_within(both, Some(wait)).await;
    }
    let left = async || {
        u64::from(remaining(&client, "plenty", &value).await) + metric(&service, UNKNOWN).await
    };
    let is_all = |left: &u64| *left >= u64::from(PLENTY - 1);
    becomes("each charge is taken back or counted", TEST_TIMEOUT, left, is_all).await;
}

#[tokio::test]
async fn a_cancelled_call_charges_no_server_that_was_not_called_yet() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        // A limit that never denies, and drains only one hit per second.
        (
            "second",
            "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1000000, charge: admitted",
        ),
        ("year", "requests_per_unit: 1000, unit: year, charge: admitted"),
    ];
    let flags = ["--per-second-store", &other.url(), "--deny-cache-max", "0s"];
    let (service, client) = serve(&Policies::of(&policy(&limits)), &redis.url(), &flags).await;
    let both = of(&[("second", "x"), ("year", "x")]);
    assert_eq!(client.decide(both.clone()).await.unwrap().overall_code(), Code::Ok);
    other.pause();
    send_and_cancel(&client, &both, |_| Duration::from_millis(200)).await;
    other.resume();
    becomes(
        "all hits are returned",
        TEST_TIMEOUT,
        || remaining(&client, "second", "x"),
        |left| *left >= PLENTY - 1,
    )
    .await;
    assert_eq!(remaining(&client, "year", "x").await, 999);
    assert_eq!(metric(&service, UNKNOWN).await, 0);
    let taken_back = metric(&service, "tollgate_take_backs_total").await;
    assert_eq!(taken_back, u64::try_from(GONE).unwrap());
}

/// The value before the charge cannot be restored, as it is if nothing is written meanwhile.
#[tokio::test]
async fn a_hold_whose_counter_was_written_since_ends_with_its_take_back() {
    let cluster = cluster().await;
    let plenty = format!("requests_per_unit: {PLENTY}, unit: year, hold: {{ ttl: 10m }}");
    let full = "requests_per_unit: 1, unit: year, charge: admitted";
    let policies = Policies::of(&policy(&[("plenty", &plenty), ("full", full)]));
    let (_service, client) = serve(&policies, &cluster.url(), &["--deny-cache-max", "0s"]).await;
    let (value, full) = apart(&cluster, &client).await;
    let of_hold = |operation, hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("plenty", &*value), (operation, "r")])
    };
    let left = || remaining(&client, "plenty", &value);
    let both =
        request(vec![of_hold("tollgate.reserve", 5), descriptor(&[("full", "the-full-one")])]);
    full.pause();
    let decided = tokio::spawn({
        let client = client.clone();
        async move { client.decide(both).await }
    });
    becomes("the hits are charged", TEST_TIMEOUT, left, |left| *left == PLENTY - 6).await;
    assert!(client.hit("plenty", &value).await);
    full.resume();
    assert_eq!(decided.await.unwrap().unwrap().overall_code(), Code::OverLimit);
    becomes("the hits are returned", TEST_TIMEOUT, left, |left| *left == PLENTY - 2).await;
    client.decide(request(vec![of_hold("tollgate.commit", 0)])).await.unwrap();
    assert_eq!(left().await, PLENTY - 2, "hits of the hold are not returned twice");
}

#[tokio::test]
async fn charges_that_this_process_would_have_denied_are_taken_back() {
    let redis = Redis::start().await;
    let limits = [
        ("local", "requests_per_unit: 1, unit: year, charge: admitted, on_store_error: local"),
        ("year", "requests_per_unit: 1000, unit: year, charge: admitted"),
    ];
    let (service, client) =
        serve(&Policies::of(&policy(&limits)), &redis.url(), &["--deny-cache-max", "0s"]).await;
    assert!(client.hit("local", "foreign").await);
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*foreign*"]).await.unwrap();
    redis.query_bytes::<redis::Value>(&[b"SET", &keys[0], b"no counter"]).await.unwrap();
    let both = of(&[("local", "foreign"), ("year", "x")]);
    assert_eq!(client.decide(both.clone()).await.unwrap().overall_code(), Code::Ok);
    redis.pause();
    send_and_cancel(&client, &both, |_| Duration::from_millis(200)).await;
    redis.resume();
    becomes(
        "all hits are returned",
        TEST_TIMEOUT,
        || remaining(&client, "year", "x"),
        |left| *left == 999,
    )
    .await;
    assert_eq!(metric(&service, UNKNOWN).await, 0);
}

#[tokio::test]
async fn hits_of_a_block_go_back_to_it() {
    let redis = Redis::start().await;
    let limits = [
        (
            "hot",
            "requests_per_unit: 100000, unit: year, charge: admitted, lease: { size: 1000, ttl: 1h }",
        ),
        ("year", "requests_per_unit: 1000, unit: year, charge: admitted"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (mut service, client) = serve(&policies, &redis.url(), &["--drain-timeout", "20s"]).await;
    for _ in 0..200 {
        assert!(client.hit("hot", "x").await);
    }
    assert!(metric(&service, "tollgate_lease_hits_outstanding").await > GONE as u64);
    redis.pause();
    send_and_cancel(&client, &of(&[("hot", "x"), ("year", "x")]), |_| Duration::from_millis(200))
        .await;
    redis.resume();
    drop(client);
    // On shutdown, it returns the unused hits of its blocks.
    assert!(service.terminate().success());
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(remaining(&client, "hot", "x").await, 100_000 - 200);
}

#[tokio::test]
async fn a_charge_is_taken_back_of_a_server_that_was_away_for_a_moment() {
    const HITS: u64 = 5_000;
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limits = [
        (
            "second",
            "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1000000, charge: admitted",
        ),
        ("full", "requests_per_unit: 1, unit: year, charge: admitted"),
    ];
    let flags = ["--per-second-store", &other.url(), "--deny-cache-max", "0s"];
    let (service, client) = serve(&Policies::of(&policy(&limits)), &redis.url(), &flags).await;
    assert!(client.hit("full", "").await);
    redis.pause();
    let many = RateLimitDescriptor { hits_addend: Some(HITS), ..descriptor(&[("second", "")]) };
    let caller = client.clone();
    let both = request(vec![many, descriptor(&[("full", "")])]);
    let call = tokio::spawn(async move { caller.decide(both).await });
    let keys = async || other.query::<u64>(&["DBSIZE"]).await.unwrap();
    becomes("one server has charged", TEST_TIMEOUT, keys, |keys| *keys == 1).await;
    other.command(&["SAVE"]).await;
    other.kill();
    redis.resume();
    assert_eq!(call.await.unwrap().unwrap().overall_code(), Code::OverLimit);
    let due = || metric(&service, "tollgate_take_backs_total");
    becomes("the charge is to be taken back", TEST_TIMEOUT, due, |due| *due == 1).await;
    other.restart().await;
    let left = || remaining_or_none(&client);
    let is_back = |left: &Option<u32>| left.is_some_and(|left| left > PLENTY - 100);
    becomes("it is taken back", TEST_TIMEOUT, left, is_back).await;
    assert_eq!(metric(&service, LOST).await, 0);
}

/// Returns the hits left of the per-second limit, if its server is reachable.
async fn remaining_or_none(client: &Client) -> Option<u32> {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("second", "")]) };
    client.decide(request(vec![peek])).await.ok().map(|answer| answer.statuses[0].limit_remaining)
}
