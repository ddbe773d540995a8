//! One of several masters that dies, hangs or is partitioned.

use std::time::Duration;

use crate::support::faults::{
    AT_ONCE, Answer, Service, all, answer_of, is_fast, measured, recovers_within, report,
    summary_of, unaffected, values,
};
use crate::support::load::Load;
use crate::support::redis::cluster::{Cluster, Layout, Node};
use crate::support::redis::partition::Isolation;
use crate::support::rls::{descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};
use tollgate::grpc::proto::RateLimitRequest;

/// Returns masters and replicas; a dead master stops only its own keys.
fn layout() -> Layout {
    Layout { needs_all_slots: false, ..Layout::default() }
}

/// Returns the values of `key` whose counters are on a node, and the others, after one hit of each.
pub(super) async fn split(service: &Service, key: &str, node: &Node) -> (Vec<String>, Vec<String>) {
    let all: Vec<String> = values(60).iter().map(|value| format!("{key}-{value}")).collect();
    for value in &all {
        becomes(
            "it decides",
            TEST_TIMEOUT,
            || service.decide(key, value),
            |answer| *answer != Answer::Unavailable,
        )
        .await;
    }
    let keys: Vec<Vec<u8>> = node.redis.query(&["KEYS", &format!("*{key}-value-*")]).await.unwrap();
    let text: String = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    let (here, others): (Vec<String>, Vec<String>) =
        all.into_iter().partition(|value| text.contains(value.as_str()));
    assert!(here.len() > 3 && others.len() > 3, "{here:?} {others:?}");
    (here, others)
}

/// Starts a load whose group 0 is on a node, and whose group 1 is not.
pub(super) async fn load_of(service: &Service, node: &Node) -> Load {
    let (here, others) = split(service, "user", node).await;
    service.load(vec![all("user", &here), all("user", &others)]).await
}

/// Waits until a replica has become a master and calls of group 0 are calm. Returns the time of the
/// former.
async fn replaced(cluster: &Cluster, replica: &Node, load: &Load) -> Duration {
    cluster.wait_until_promoted(replica).await;
    let promoted = load.now();
    load.until_calm(0).await;
    promoted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_master_that_is_killed_fails_its_own_keys_until_it_is_replaced() {
    measured(async || {
        let cluster = Cluster::start_as(layout()).await;
        let service = Service::start(&cluster.url(), &[]).await;
        let master = cluster.master_of(0).await;
        let replica = cluster.replica_of(0).await;
        let load = load_of(&service, master).await;
        load.go_on(500).await;
        let killed = load.now();
        master.redis.kill();
        let promoted = replaced(&cluster, replica, &load).await;
        let calls = load.finish();
        report("master killed, promoted", format!("{:?} after", promoted - killed));
        unaffected("master killed, keys of the others", &calls.of(1));
        let own = calls
            .of(0)
            .between(killed + Duration::from_millis(500), promoted - Duration::from_millis(500));
        if own.summary().calls > 20 {
            let own = summary_of("master killed, its keys until then", &own);
            is_fast(own.median < AT_ONCE, || own.to_string());
        }
        recovers_within(
            "master killed, its keys",
            &calls.of(0),
            promoted,
            Duration::from_millis(1_000),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn with_full_coverage_a_killed_master_fails_all_keys_until_it_is_replaced() {
    measured(async || {
        let cluster = Cluster::start(3, 1).await;
        let service = Service::start(&cluster.url(), &[]).await;
        let master = cluster.master_of(0).await;
        let replica = cluster.replica_of(0).await;
        let load = load_of(&service, master).await;
        load.go_on(500).await;
        master.redis.kill();
        let promoted = replaced(&cluster, replica, &load).await;
        let calls = load.finish();
        recovers_within(
            "master killed, full coverage, keys of the others",
            &calls.of(1),
            promoted,
            Duration::from_millis(1_000),
        );
        recovers_within(
            "master killed, full coverage, its keys",
            &calls.of(0),
            promoted,
            Duration::from_millis(1_000),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hanging_master_fails_its_own_keys_until_it_is_replaced_and_becomes_a_replica() {
    measured(async || {
        let cluster = Cluster::start_as(layout()).await;
        let service = Service::start(&cluster.url(), &[]).await;
        let master = cluster.master_of(0).await;
        let replica = cluster.replica_of(0).await;
        let load = load_of(&service, master).await;
        load.go_on(500).await;
        master.redis.pause();
        let promoted = replaced(&cluster, replica, &load).await;
        let resumed = load.now();
        master.redis.resume();
        load.go_on(2_000).await;
        let calls = load.finish();
        unaffected("master hangs, keys of the others", &calls.of(1));
        recovers_within(
            "master hangs, its keys",
            &calls.of(0).between(Duration::ZERO, resumed),
            promoted,
            Duration::from_millis(1_000),
        );
        unaffected("master goes on as a replica, all keys", &calls.since(resumed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_master_that_is_cut_off_fails_its_own_keys_until_it_is_replaced() {
    measured(async || {
        for isolation in [Isolation::FromAll, Isolation::FromNodes] {
            let cluster = Cluster::start_as(Layout { is_wired: true, ..layout() }).await;
            let service = Service::start(&cluster.url(), &[]).await;
            let master = cluster.master_of(0).await;
            let replica = cluster.replica_of(0).await;
            let load = load_of(&service, master).await;
            load.go_on(500).await;
            cluster.isolate(master, isolation);
            cluster.wait_until_promoted(replica).await;
            let promoted = load.now();
            load.until_calm(0).await;
            let healed = load.now();
            cluster.heal();
            load.go_on(1_500).await;
            let calls = load.finish();
            unaffected(&format!("cut off {isolation:?}, keys of the others"), &calls.of(1));
            // A master that only clients can reach decides until it notices; its writes are lost.
            let what = format!("cut off {isolation:?}, its keys");
            recovers_within(
                &what,
                &calls.of(0).between(Duration::ZERO, healed),
                promoted,
                Duration::from_millis(1_500),
            );
            unaffected(&format!("cut off {isolation:?}, after it is healed"), &calls.since(healed));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_service_that_starts_while_a_master_is_dead_is_ready_for_the_keys_of_the_others() {
    measured(async || {
        let cluster = Cluster::start_as(Layout { replicas: 0, ..layout() }).await;
        cluster.nodes[0].redis.kill();
        let service = Service::begin(&cluster.url(), &[]).await;
        service.becomes_ready().await;
        let load = service.load(vec![all("user", &values(60))]).await;
        load.go_on(1_000).await;
        let back = load.now();
        cluster.nodes[0].redis.restart().await;
        cluster.wait_until_agreed().await;
        let agreed = load.now();
        load.until_calm(0).await;
        let calls = load.finish();
        let without = summary_of(
            "a master dead from the start",
            &calls.between(Duration::from_millis(300), back),
        );
        assert!((5.0..75.0).contains(&without.percent_failed()), "{without}");
        recovers_within(
            "a master dead from the start, its keys",
            &calls,
            agreed,
            Duration::from_millis(2_000),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_take_backs_are_counted() {
    let cluster = Cluster::start_as(Layout { replicas: 0, ..layout() }).await;
    let service = Service::start(&cluster.url(), &[]).await;
    let charged = &cluster.nodes[0];
    let silent = &cluster.nodes[1];
    let (of_charged, _) = split(&service, "user", charged).await;
    let (of_silent, _) = split(&service, "user", silent).await;
    let pair = |number: usize| -> RateLimitRequest {
        request(vec![
            descriptor(&[("user", &of_charged[number])]),
            descriptor(&[("user", &of_silent[number])]),
        ])
    };
    assert_eq!(answer_of(&service.client, pair(0)).await, Answer::Ok);
    // One slot charges at once, the other hangs; when the wait ends, the server to take the charge
    // back from is gone.
    silent.redis.pause();
    let client = service.client.clone();
    let first = pair(1);
    let second = pair(2);
    let wait = Some(Duration::from_secs(2));
    let calls = tokio::spawn(async move {
        (client.decide_within(first, wait).await, client.decide_within(second, wait).await)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    charged.redis.kill();
    let (first, _) = calls.await.unwrap();
    // UNAVAILABLE comes 5 ms before the client's own timeout: on a busy machine, either may be
    // first.
    assert!(first.is_err());
    let lost = || service.web.metric("tollgate_take_backs_lost_total");
    becomes("it is counted", TEST_TIMEOUT, lost, |lost| *lost > 0).await;
    assert!(service.web.metric("tollgate_unknown_charges_total").await > 0, "the other's charge");
}
