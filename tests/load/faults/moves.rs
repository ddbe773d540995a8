//! Slots whose master changes while they are in use.

use std::time::Duration;

use super::cluster::split;
use crate::support::faults::{
    NOISE, Service, all, is_fast, measured, summary_of, unaffected, values,
};
use crate::support::redis::cluster::{Cluster, Node};
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_planned_failover_fails_few_calls_for_a_moment() {
    measured(async || {
        let cluster = Cluster::start(3, 1).await;
        let service = Service::start(&cluster.url(), &[]).await;
        let load = service.load(vec![all("user", &values(60))]).await;
        // Each master once: the others vote for the successor of one master only every few seconds.
        let mut begins = Vec::new();
        for slot in [0, 8_000, 16_000] {
            let replica = cluster.replica_of(slot).await;
            becomes("it can take over", TEST_TIMEOUT, || in_step(replica), |in_step| *in_step)
                .await;
            begins.push(load.go_on(500).await);
            cluster.failover(replica).await;
        }
        load.go_on(1_000).await;
        let calls = load.finish();
        for begin in begins {
            let one = summary_of(
                "planned failover, all keys",
                &calls.between(begin, begin + Duration::from_millis(1_000)),
            );
            is_fast(one.percent_failed() <= 10.0, || one.to_string());
        }
        let summary = summary_of("planned failover of each of 3 masters", &calls);
        is_fast(summary.percent_failed() <= 4.0 * NOISE, || summary.to_string());
        unaffected(
            "planned failover, after it",
            &calls.since(calls.last() - Duration::from_millis(500)),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn slots_that_move_fail_nothing_and_admit_no_more_than_the_limits() {
    measured(async || {
        let cluster = Cluster::start(3, 0).await;
        let service = Service::start(&cluster.url(), &[]).await;
        let from = &cluster.nodes[0];
        let to = &cluster.nodes[1];
        let (here, _) = split(&service, "few", from).await;
        let moving: Vec<String> = here.into_iter().take(4).collect();
        let slots = slots_of(from, &moving).await;
        // 60 for each, of which one is used: more is requested than is left.
        let load = service
            .load(moving.iter().map(|value| all("few", std::slice::from_ref(value))).collect())
            .await;
        for slot in slots {
            load.go_on(200).await;
            let migration = cluster.begin_migration(slot, to).await;
            load.go_on(100).await;
            migration.move_keys(1).await;
            load.go_on(100).await;
            migration.finish().await;
        }
        load.go_on(500).await;
        let calls = load.finish();
        unaffected("slots that move", &calls);
        for (group, value) in moving.iter().enumerate() {
            let summary = calls.of(group).summary();
            assert!(summary.admitted <= 59, "{value}: {summary}");
            assert!(
                summary.admitted + summary.errors >= 59.min(summary.calls),
                "{value}: {summary}"
            );
        }
        assert_eq!(service.web.metric("tollgate_take_backs_lost_total").await, 0);
    })
    .await;
}

async fn in_step(replica: &Node) -> bool {
    replica
        .redis
        .info("replication")
        .await
        .get("master_link_status")
        .is_some_and(|status| status == "up")
}

/// Returns the slots of the counters of some values.
async fn slots_of(node: &Node, values: &[String]) -> Vec<u16> {
    let mut slots = Vec::new();
    for value in values {
        let keys: Vec<Vec<u8>> = node.redis.query(&["KEYS", &format!("*{value}*")]).await.unwrap();
        slots.push(node.redis.query_bytes(&[b"CLUSTER", b"KEYSLOT", &keys[0]]).await.unwrap());
    }
    slots
}
