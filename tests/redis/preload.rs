//! Scripts are loaded before the process is ready, and again on each new connection.

use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{cluster, nodes_of, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

/// A limit of each kind that decides without holds; all but the last can also keep holds.
const KINDS: [&str; 6] = [
    "requests_per_unit: 90, unit: year",
    "windows: [{ requests_per_unit: 90, unit: hour }, { requests_per_unit: 90, unit: year }]",
    "algorithm: sliding_window, requests_per_unit: 90, unit: year",
    "algorithm: sliding_log, requests_per_unit: 90, unit: year",
    "algorithm: gcra, requests_per_unit: 90, unit: year, burst: 90",
    "algorithm: gcra, requests_per_unit: 90, unit: year, burst: 90, record: [recorded]",
];
const CONCURRENCY: &str = "algorithm: concurrency, in_flight: 9";

/// Returns a policy with each kind, and with each kind that keeps holds.
fn kinds() -> Policies {
    let plain = KINDS
        .iter()
        .enumerate()
        .map(|(number, limit)| (format!("plain-{number}"), (*limit).to_owned()));
    let holding = KINDS[..5].iter().chain([&CONCURRENCY]).enumerate();
    let holding = holding.map(|(number, limit)| {
        (format!("holding-{number}"), format!("{limit}, hold: {{ ttl: 1h }}"))
    });
    let limits: Vec<_> = plain.chain(holding).collect();
    let limits: Vec<_> = limits.iter().map(|(key, limit)| (key.as_str(), limit.as_str())).collect();
    Policies::of(&policy(&limits))
}

/// Sends a request of each kind, each of which is admitted.
async fn decide(client: &Client, value: &str) {
    let send = async |one: RateLimitDescriptor| {
        let text = format!("{:?}", one.entries);
        let answer = client.decide(request(vec![one])).await;
        assert_eq!(answer.map(|answer| answer.overall_code()).ok(), Some(Code::Ok), "{text}");
    };
    for number in 0..KINDS.len() {
        let key = format!("plain-{number}");
        send(descriptor(&[(key.as_str(), value)])).await;
        send(RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[(key.as_str(), value)]) })
            .await;
    }
    for number in 0..6 {
        let key = format!("holding-{number}");
        for operation in ["tollgate.reserve", "tollgate.commit", "tollgate.settle"] {
            send(descriptor(&[(key.as_str(), value), (operation, "id")])).await;
        }
    }
}

/// Returns the number of calls by a digest that a server did not know.
async fn unknown_scripts(redis: &Redis) -> u64 {
    let errors = redis.info("errorstats").await;
    let count = errors.get("errorstat_NOSCRIPT").map_or("count=0", String::as_str);
    count.trim_start_matches("count=").parse().unwrap()
}

#[tokio::test]
async fn the_first_decision_of_each_kind_finds_its_script() {
    let redis = Redis::start().await;
    let policies = kinds();
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(redis.query::<u64>(&["DBSIZE"]).await.unwrap(), 0, "loading writes nothing");
    let before = unknown_scripts(&redis).await;
    decide(&client, "ann").await;
    assert_eq!(unknown_scripts(&redis).await, before);
}

#[tokio::test]
async fn each_master_of_a_cluster_has_the_scripts() {
    let cluster = cluster().await;
    let policies = kinds();
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    let unknown = async || {
        let mut sum = 0;
        for node in nodes_of(&cluster) {
            sum += unknown_scripts(node).await;
        }
        sum
    };
    let before = unknown().await;
    for value in ["ann", "bob", "eve"] {
        decide(&client, value).await;
    }
    assert_eq!(unknown().await, before);
}

#[tokio::test]
async fn a_new_connection_loads_the_scripts_again() {
    let redis = Redis::start().await;
    let policies = kinds();
    let (_service, _client) = serve(&policies, &redis.url(), &[]).await;
    let cached = async || redis.info("memory").await["number_of_cached_scripts"].clone();
    let before = cached().await;
    assert_ne!(before, "0");
    redis.command(&["SCRIPT", "FLUSH"]).await;
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    becomes("the scripts are loaded", TEST_TIMEOUT, cached, |now| *now == before).await;
}
