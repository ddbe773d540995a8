//! One request takes one round trip to each slot that it needs. That one which a slot denies leaves
//! the counters of the others as they were is in the traces.

use tollgate::grpc::proto::rate_limit_response::Code;

use super::{calls, cluster, metric, nodes_of, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const REQUESTS: u64 = 50;
const CONNECTS: &str = "tollgate_store_connects_total";
const DAILY: &str = "algorithm: sliding_window, requests_per_unit: 1000, unit: day";

#[tokio::test]
async fn a_request_with_one_descriptor_is_one_call() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("user", DAILY)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(calls_for((&service, &client), &["user"], &[&redis]).await, REQUESTS);
}

#[tokio::test]
async fn a_request_with_three_descriptors_is_one_call() {
    let redis = Redis::start().await;
    let a = DAILY;
    let b = "requests_per_unit: 1000, unit: day";
    let c = "algorithm: gcra, requests_per_unit: 9, unit: day";
    let policies = Policies::of(&policy(&[("a", a), ("b", b), ("c", c)]));
    let (service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    assert_eq!(calls_for((&service, &client), &["a", "b", "c"], &[&redis]).await, REQUESTS);
}

#[tokio::test]
async fn requests_are_not_preceded_by_pings() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("user", DAILY)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    let begun = std::time::Instant::now();
    let before = calls(&[&redis], "ping").await;
    calls_for((&service, &client), &["user"], &[&redis]).await;
    // Each connection sends a PING once a second, and there are fewer than eight of them.
    let of_idle_connections = 8 * (begun.elapsed().as_secs() + 1);
    let pings = calls(&[&redis], "ping").await - before;
    assert!(pings <= of_idle_connections, "{pings} pings with {REQUESTS} requests");
}

#[tokio::test]
async fn a_domain_in_one_slot_is_one_call_in_a_cluster() {
    let cluster = cluster().await;
    let rules = policy(&[("a", DAILY), ("b", DAILY), ("c", DAILY)]);
    let policies = Policies::of(&format!("atomicity: domain\n{rules}"));
    let (service, client) = serve(&policies, &cluster.url(), &[]).await;
    assert_eq!(
        calls_for((&service, &client), &["a", "b", "c"], &nodes_of(&cluster)).await,
        REQUESTS
    );
}

#[tokio::test]
async fn a_request_is_one_call_to_each_master_that_it_needs() {
    let cluster = cluster().await;
    let keys = ["a", "b", "c", "d", "e"];
    let limit = "algorithm: sliding_window, requests_per_unit: 1000000, unit: day";
    let policies = Policies::of(&policy(&keys.map(|key| (key, limit))));
    let (service, client) = serve(&policies, &cluster.url(), &[]).await;
    calls_for((&service, &client), &keys, &nodes_of(&cluster)).await;
    let mut masters = 0;
    for node in nodes_of(&cluster) {
        masters += u64::from(node.query::<u64>(&["DBSIZE"]).await.unwrap() > 0);
    }
    assert!(masters > 1 && masters < 5, "{masters}");
    // Nodes are probed one after the other for whether one call may name keys of several slots.
    let calls = async || calls_for((&service, &client), &keys, &nodes_of(&cluster)).await;
    becomes("slots of one master share a call", TEST_TIMEOUT, calls, |calls| {
        *calls == masters * REQUESTS
    })
    .await;
}

/// One limit of each algorithm, in a domain whose limits all have keys in slots of their own.
const ONE_OF_EACH: [(&str, &str); 4] = [
    ("fixed", "requests_per_unit: 5, unit: year, charge: admitted"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 5, unit: year"),
    ("log", "algorithm: sliding_log, requests_per_unit: 5, unit: year"),
    ("gcra", "algorithm: gcra, requests_per_unit: 5, unit: year"),
];

#[tokio::test]
async fn take_backs_are_counted() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(
        &[&ONE_OF_EACH[..], &[("full", "requests_per_unit: 1, unit: year")]].concat(),
    ));
    let (service, client) = serve(&policies, &cluster.url(), &["--deny-cache-max", "0s"]).await;
    assert!(client.hit("full", "").await);
    assert_eq!(metric(&service, "tollgate_take_backs_total").await, 0);
    let all = ["fixed", "sliding", "log", "gcra", "full"].map(|key| descriptor(&[(key, "")]));
    assert_eq!(client.decide(request(all.to_vec())).await.unwrap().overall_code(), Code::OverLimit);
    assert_eq!(metric(&service, "tollgate_take_backs_total").await, 4);
    for (key, _) in ONE_OF_EACH {
        becomes(key, TEST_TIMEOUT, || remaining(&client, key, ""), |left| *left == 5).await;
    }
    assert_eq!(metric(&service, "tollgate_take_backs_lost_total").await, 0);
}

#[tokio::test]
async fn the_fastest_rate_takes_no_longer_than_others() {
    let redis = Redis::start().await;
    let limit = "algorithm: gcra, requests_per_unit: 4294967295, unit: 1ms, burst: 4000000000";
    let policies = Policies::of(&policy(&[("user", limit)]));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    client.hit("user", "ann").await;
    let mut shortest = u64::MAX;
    for _ in 0..5 {
        redis.command(&["CONFIG", "RESETSTAT"]).await;
        client.hit("user", "ann").await;
        let spent = redis.info("commandstats").await["cmdstat_evalsha"].clone();
        let us = spent.split_once("usec=").unwrap().1.split_once(',').unwrap().0;
        shortest = shortest.min(us.parse().unwrap());
    }
    assert!(shortest < 50_000, "{shortest} us in the server");
}

/// Returns the number of script calls for `REQUESTS` requests, after one that loads the scripts.
async fn calls_for(
    (service, client): (&Tollgate, &Client),
    keys: &[&str],
    nodes: &[&Redis],
) -> u64 {
    let descriptors: Vec<_> = keys.iter().map(|key| descriptor(&[(key, "ann")])).collect();
    client.decide(request(descriptors.clone())).await.unwrap();
    loop {
        let connects = metric(service, CONNECTS).await;
        let before = calls(nodes, "evalsha").await + calls(nodes, "eval").await;
        for _ in 0..REQUESTS {
            client.decide(request(descriptors.clone())).await.unwrap();
        }
        let count = calls(nodes, "evalsha").await + calls(nodes, "eval").await - before;
        // A new connection makes calls of its own.
        if metric(service, CONNECTS).await == connects {
            return count;
        }
    }
}
