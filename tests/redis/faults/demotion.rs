//! A master that becomes a replica and stays alive, as when a virtual address, a Service or a
//! managed endpoint moves to another server: open connections stay with the old one. A DNS name
//! that changes is no different to the service, which resolves it for each connection.

use std::time::{Duration, Instant};

use crate::support::faults::{Answer, Service, report};
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::pair::Pair;
use crate::support::redis::{Redis, Setup};
use crate::support::{TEST_TIMEOUT, becomes};

/// Time within which a replica is noticed, and a master in its place.
const NOTICED: Duration = Duration::from_secs(2);
/// Message logged once about a replica.
const WARNING: &str = "Redis is a read-only replica";
const CONNECTS: &str = "tollgate_store_connects_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_replica_promoted_in_place_is_noticed_for_every_user_and_server() {
    for flavor in Flavor::ALL {
        let may = "+evalsha +eval +ping +select +client +time +get +set +del";
        let lines = vec![format!("user app on >first ~* -@all {may}")];
        let redis = Redis::start_as(Setup { flavor, lines, ..Setup::default() }).await;
        let service =
            Service::start(&format!("redis://app:first@{}", redis.address), &["--replicas", "1"])
                .await;
        // No requests are sent meanwhile.
        redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        becomes("it is not ready", TEST_TIMEOUT, || service.readiness(), |status| *status == 503)
            .await;
        redis.command(&["REPLICAOF", "NO", "ONE"]).await;
        let promoted = Instant::now();
        becomes(
            "it decides",
            TEST_TIMEOUT,
            || service.decide("user", "ann"),
            |answer| *answer == Answer::Ok,
        )
        .await;
        report(
            &format!("promoted where it is, {flavor:?}"),
            format!("decided after {:.1?}", promoted.elapsed()),
        );
        service.becomes_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_replica_at_startup_is_reported_until_it_is_a_master() {
    let pair = Pair::start().await;
    pair.lead_to(1);
    let mut service = Service::begin(&pair.url(), &[]).await;
    service.tollgate.process.wait_for_line(WARNING, |line| line.contains(WARNING).then_some(()));
    let unready = service.web.get("/readyz").await;
    assert_eq!((unready.status, unready.body.as_str()), (503, "store is a read-only replica\n"));
    assert_eq!(service.decide("user", "ann").await, Answer::Unavailable);
    assert_eq!(service.decide("lenient", "ann").await, Answer::Ok);
    tokio::time::sleep(NOTICED).await;
    pair.lead_to(0);
    let changed = Instant::now();
    becomes(
        "it decides",
        TEST_TIMEOUT,
        || service.decide("user", "ann"),
        |answer| *answer == Answer::Ok,
    )
    .await;
    report(
        "a replica at the start, decided",
        format!("{:.1?} after the name led to the master", changed.elapsed()),
    );
    service.becomes_ready().await;
    let log = service.tollgate.process.log();
    assert_eq!(log.iter().filter(|line| line.contains(WARNING)).count(), 1, "{log:#?}");
    let ready =
        Service::begin(&format!("redis://{}", pair.servers[1].address), &["--ready-without-store"])
            .await;
    assert_eq!(ready.readiness().await, 200);
    ready.ends("whose store is a replica");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_replica_of_a_cluster_returns_the_map_and_keeps_its_connection() {
    let cluster = Cluster::start_as(Layout { node_timeout_ms: 15_000, ..Layout::default() }).await;
    let replica = cluster.replica_of(0).await.redis.address;
    let service = Service::start(&format!("redis-cluster://{replica}"), &[]).await;
    let connects = || service.web.metric(CONNECTS);
    let in_half_a_second = || async {
        let before = connects().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        connects().await - before
    };
    becomes("all are connected", TEST_TIMEOUT, in_half_a_second, |more| *more == 0).await;
    let connects = connects().await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((service.decide("user", "ann").await, service.readiness().await), (Answer::Ok, 200));
    assert_eq!(service.web.metric(CONNECTS).await, connects);
}
