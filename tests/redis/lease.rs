//! Leases: few commands for a hot key, no extra ones for a cold key, and never more hits than the
//! limit.

use rustix::process::Signal;
use tokio::task::JoinSet;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::amend::inspect;
use super::callers::{hit_as, lines, row, who};
use super::{calls, cluster, metric, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
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
async fn a_cold_key_needs_one_command_per_request() {
    let redis = Redis::start().await;
    let limit = format!("requests_per_unit: {PLENTY}, unit: year, lease: {{ size: 5000, {LONG} }}");
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    client.hit("user", "first").await;
    let before = scripts(&redis).await;
    for user in 0..20 {
        for _ in 0..7 {
            assert!(client.hit("user", &user.to_string()).await);
        }
    }
    assert_eq!(scripts(&redis).await - before, 20 * 7);
    assert_eq!(metric(&service, "tollgate_lease_blocks_total").await, 0);
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
async fn windows_that_end_under_load_admit_no_more_than_their_limits() {
    const WINDOW_US: u64 = 500_000;
    const AMOUNT: u64 = 600;
    let redis = Redis::start().await;
    let limit =
        format!("requests_per_unit: {AMOUNT}, unit: 500ms, lease: {{ size: 10%, ttl: 400ms }}");
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let mut services = Vec::new();
    for _ in 0..3 {
        services.push(serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await);
    }
    let first = now_us(&redis).await / WINDOW_US;
    let mut admitted = 0;
    let mut last = first;
    while last < first + 8 {
        let mut clients = JoinSet::new();
        for (_, client) in &services {
            let client = client.clone();
            clients.spawn(async move { many(&client, "user", 200, 16).await });
        }
        admitted += clients.join_all().await.into_iter().sum::<usize>() as u64;
        last = now_us(&redis).await / WINDOW_US;
    }
    let windows = last - first + 1;
    assert!(admitted <= windows * AMOUNT, "{admitted} in {windows} windows of {AMOUNT}");
    let mut used = 0;
    for (service, _) in &services {
        used += metric(service, "tollgate_lease_hits_used_total").await;
    }
    assert!(used > 0, "no hit was of a block, of {admitted} in {windows} windows");
}

/// Limits with leases. The first of the fixed windows ends while blocks are held; no hits leave the
/// other windows.
const COUNTED: [(&str, &str); 4] = [
    (
        "fixed",
        "windows: [{ requests_per_unit: 4000, unit: 300ms }, { requests_per_unit: 100000, unit: 3650d }], lease: { size: 200, ttl: 10s }",
    ),
    (
        "log",
        "algorithm: sliding_log, requests_per_unit: 9000, unit: 3650d, lease: { size: 200, ttl: 100ms }",
    ),
    (
        "logs",
        "algorithm: sliding_log, windows: [{ requests_per_unit: 4000, unit: 200ms }, { requests_per_unit: 9000, unit: 3650d }], lease: { size: 200, ttl: 100ms }",
    ),
    (
        "sliding",
        "algorithm: sliding_window, windows: [{ requests_per_unit: 4000, unit: 200ms }, { requests_per_unit: 9000, unit: 3650d }], lease: { size: 200, ttl: 100ms }",
    ),
];

#[tokio::test]
async fn after_bursts_a_server_counts_what_was_admitted() {
    let redis = Redis::start().await;
    what_was_admitted_counts(&redis.url()).await;
}

#[tokio::test]
async fn after_bursts_a_cluster_counts_what_was_admitted() {
    let cluster = cluster().await;
    what_was_admitted_counts(&cluster.url()).await;
}

async fn what_was_admitted_counts(store: &str) {
    let policies = Policies::of(&format!("defaults: {{ charge: admitted }}\n{}", policy(&COUNTED)));
    let mut services = Vec::new();
    for _ in 0..3 {
        services.push(serve(&policies, store, &[]).await);
    }
    let sum = async |name: &str| {
        let mut sum = 0;
        for (service, _) in &services {
            sum += metric(service, name).await;
        }
        sum
    };
    let mut admitted = [0; COUNTED.len()];
    for _ in 0..6 {
        for (admitted, (key, _)) in admitted.iter_mut().zip(COUNTED) {
            let bursts = services.iter().map(|(_, client)| many(client, key, 80, 8));
            *admitted +=
                futures_util::future::join_all(bursts).await.into_iter().sum::<usize>() as u64;
        }
        // The blocks in use end with hits left.
        becomes(
            "no block is held",
            TEST_TIMEOUT,
            || sum("tollgate_lease_hits_outstanding"),
            |held| *held == 0,
        )
        .await;
    }
    let counted = || async {
        let mut counted = [0; COUNTED.len()];
        for (counted, (key, _)) in counted.iter_mut().zip(COUNTED) {
            *counted = used(&services[0].0, key).await;
        }
        counted
    };
    assert!(sum("tollgate_lease_hits_unused_total").await > 0);
    // On a starved machine, an answer may arrive too late, and its hits are lost.
    let lost = sum("tollgate_lease_hits_lost_total").await;
    let counts = |counted: &[u64; COUNTED.len()]| {
        let mut pairs = counted.iter().zip(&admitted);
        pairs.all(|(counted, admitted)| (*admitted..=admitted + lost).contains(counted))
    };
    becomes(&format!("{admitted:?} were admitted, {lost} lost"), TEST_TIMEOUT, counted, counts)
        .await;
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
async fn a_policy_that_moves_its_counters_ends_their_blocks() {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    for store in [redis.url(), cluster.url()] {
        let limit = format!("requests_per_unit: 100000, unit: year, lease: {{ size: 1%, {LONG} }}");
        let rules = policy(&[("user", &limit)]);
        let policies = Policies::of(&rules);
        let (mut service, client) = serve(&policies, &store, &[]).await;
        let (observer, _) = serve(&policies, &store, &[]).await;
        assert_eq!(many(&client, "user", 100, 1).await, 100);
        assert!(metric(&service, "tollgate_lease_hits_outstanding").await > 0);
        policies.write("policy.yaml", &format!("atomicity: domain\n{rules}"));
        for service in [&service, &observer] {
            becomes(
                "another counter is decided by Redis",
                TEST_TIMEOUT,
                || used(service, "user"),
                |used| *used == 0,
            )
            .await;
        }
        assert_eq!(many(&client, "user", 5, 1).await, 5);
        drop(client);
        assert!(service.terminate().success());
        assert_eq!(used(&observer, "user").await, 5);
    }
}

#[tokio::test]
async fn a_block_is_usable_while_the_store_is_unavailable() {
    let redis = Redis::start().await;
    let limit = format!("requests_per_unit: 100000, unit: year, lease: {{ size: 1%, {LONG} }}");
    let policies = Policies::of(&policy(&[("user", &limit)]));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    assert_eq!(many(&client, "user", 100, 1).await, 100);
    let left = || remaining(&client, "user", "");
    becomes("a block is charged", TEST_TIMEOUT, left, |left| *left < 100_000 - 100).await;
    redis.kill();
    let one = || client.decide(request(vec![descriptor(&[("user", "")])]));
    assert_eq!(one().await.unwrap().overall_code(), Code::Ok);
    let mut served = 1;
    while one().await.is_ok() {
        served += 1;
        assert!(served <= 1_000, "a block is no more than its size");
    }
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
    eventually("all hits are recorded", TEST_TIMEOUT, is_complete);
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

/// Returns the hits used in a counter's last window.
async fn used(service: &Tollgate, key: &str) -> u64 {
    let windows = &inspect(service, key).await["state"]["windows"];
    windows.as_array().unwrap().last().unwrap()["used"].as_u64().unwrap()
}

async fn scripts(redis: &Redis) -> u64 {
    calls(&[redis], "evalsha").await + calls(&[redis], "eval").await
}

async fn now_us(redis: &Redis) -> u64 {
    let (seconds, us): (u64, u64) = redis.query(&["TIME"]).await.unwrap();
    seconds * 1_000_000 + us
}
