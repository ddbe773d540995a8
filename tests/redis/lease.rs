//! Leases of a running process: few commands for a hot key, and blocks that are returned at its
//! end. The crate `tollgate-store` and the simulated worlds test that no limit is exceeded.

use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use super::callers::{hit_as, lines, row, who};
use super::{calls, metric, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes, eventually};

/// An amount that no test comes near.
const PLENTY: u32 = 4_000_000_000;
/// TTL of a block that does not end during a test.
const LONG: &str = "ttl: 1h";

#[tokio::test]
async fn a_hot_key_needs_at_most_one_command_per_50_requests() {
    const REQUESTS: usize = 10_000;
    let redis = Redis::start().await;
    let limit = format!("requests_per_unit: {PLENTY}, unit: year, lease: {{ size: 5000, {LONG} }}");
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    let before = scripts(&redis).await;
    assert_eq!(many(&client, "user", REQUESTS, 16).await, REQUESTS);
    let commands = scripts(&redis).await - before;
    assert!(commands * 50 <= REQUESTS as u64, "{commands} commands for {REQUESTS} requests");
    drop(client);
    drop(service);
}

#[tokio::test]
async fn blocks_of_per_second_limits_are_taken_from_their_own_servers() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let limit = format!(
        "algorithm: gcra, requests_per_unit: {PLENTY}, unit: second, lease: {{ size: 1%, {LONG} }}"
    );
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let (mut service, client) =
        serve(&policies, &redis.url(), &["--per-second-store", &other.url()]).await;
    let before = scripts(&redis).await;
    let others = scripts(&other).await;
    assert_eq!(many(&client, "user", 200, 1).await, 200);
    assert!(metric(&service, "tollgate_lease_blocks_total").await > 0);
    drop(client);
    assert!(service.terminate().success());
    assert_eq!(scripts(&redis).await, before);
    assert!(scripts(&other).await - others < 100);
}

#[tokio::test]
async fn a_process_that_exits_returns_its_blocks_and_one_that_is_killed_loses_at_most_those() {
    let redis = Redis::start().await;
    let limit = format!(
        "algorithm: sliding_window, requests_per_unit: 100000, unit: year, lease: {{ size: 1%, {LONG} }}"
    );
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let (_other, observer) = serve(&policies, &redis.url(), &[]).await;

    let (mut ends, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(many(&client, "user", 500, 4).await, 500);
    let outstanding = metric(&ends, "tollgate_lease_hits_outstanding").await;
    assert!(outstanding > 0);
    let left = || remaining(&observer, "user", "");
    becomes("blocks are charged in advance", TEST_TIMEOUT, left, |left| *left < 100_000 - 500)
        .await;
    drop(client);
    assert!(ends.terminate().success());
    assert_eq!(remaining(&observer, "user", "").await, 100_000 - 500);

    let (mut dies, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(many(&client, "user", 500, 4).await, 500);
    // A block that is being requested may or may not be charged.
    let outstanding = becomes(
        "no block is requested",
        TEST_TIMEOUT,
        || balance(&dies, &observer),
        |(_, lost)| *lost >= 0,
    )
    .await
    .0;
    dies.process.signal(Signal::KILL);
    dies.process.wait_for_end();
    let left = remaining(&observer, "user", "").await;
    assert!(
        left <= 100_000 - 1_000 && u64::from(left) + outstanding >= 100_000 - 1_000,
        "{left} and {outstanding}"
    );
}

/// Returns the outstanding hits, and their excess over those charged and not admitted, after 1,000
/// of 100,000 were admitted.
async fn balance(service: &Tollgate, observer: &Client) -> (u64, i64) {
    let outstanding = metric(service, "tollgate_lease_hits_outstanding").await;
    let charged = 100_000 - 1_000 - i64::from(remaining(observer, "user", "").await);
    (outstanding, i64::try_from(outstanding).unwrap() - charged)
}

#[tokio::test]
async fn tallies_are_flushed_with_the_blocks() {
    let redis = Redis::start().await;
    let limit = format!(
        "algorithm: sliding_window, requests_per_unit: 100000, unit: year, record: [user], lease: {{ size: 1%, {LONG} }}"
    );
    let policies = Policies::of(&policy(&[("tenant", &limit)]));
    let (mut service, client) = serve(&policies, &redis.url(), &[]).await;
    for _ in 0..60 {
        hit_as(&client, "ann", 1).await;
        hit_as(&client, "bob", 2).await;
    }
    assert!(metric(&service, "tollgate_lease_blocks_total").await > 0);
    drop(client);
    assert!(service.terminate().success());
    let recorded = || lines(&who(&policies, &redis.url(), "tenant=acme"));
    let expected = [row(([120, 0], "user=bob")), row(([60, 0], "user=ann"))];
    let is_complete = || (recorded() == expected).then_some(());
    eventually("all hits are recorded", Duration::from_secs(5), is_complete);
}

/// Sends `requests` requests of one hit, `at_once` at a time. Returns how many were admitted.
async fn many(client: &Client, key: &'static str, requests: usize, at_once: usize) -> usize {
    let mut clients = JoinSet::new();
    for first in 0..at_once {
        let client = client.clone();
        clients.spawn(async move {
            let mut admitted = 0;
            for _ in (first..requests).step_by(at_once) {
                admitted += usize::from(client.hit(key, "").await);
            }
            admitted
        });
    }
    clients.join_all().await.into_iter().sum()
}

async fn scripts(redis: &Redis) -> u64 {
    calls(&[redis], "evalsha").await + calls(&[redis], "eval").await
}
