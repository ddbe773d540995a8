//! A master that becomes a replica and stays alive, as when a virtual address, a Service or a
//! managed endpoint moves to another server: open connections stay with the old one. A DNS name
//! that changes is no different to the service, which resolves it for each connection.

use std::time::Duration;

use crate::support::faults::{
    AT_ONCE, Service, all, is_fast, measured, recovers_within, report, summary_of, unaffected,
    values,
};
use crate::support::redis::pair::Pair;
use crate::support::redis::sentinels::Sentinels;
use crate::support::{TEST_TIMEOUT, becomes};

/// Time within which a replica is noticed, and a master in its place.
const NOTICED: Duration = Duration::from_secs(2);
/// Message logged once about a replica.
const WARNING: &str = "Redis is a read-only replica";
const CONNECTS: &str = "tollgate_store_connects_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_host_name_is_followed_to_the_new_master_while_the_old_one_is_a_replica() {
    measured(async || {
        let pair = Pair::start().await;
        let service = Service::start(&pair.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
        let mut rounds = Vec::new();
        let connects = service.web.metric(CONNECTS).await;
        for master in [1, 0, 1] {
            let begun = load.go_on(500).await;
            pair.promote(master).await;
            let demoted = load.now();
            becomes(
                "it is not ready",
                TEST_TIMEOUT,
                || service.readiness(),
                |status| *status == 503,
            )
            .await;
            report("demoted, not ready", format!("after {:?}", load.now() - demoted));
            load.go_on(1_500).await;
            assert_eq!(service.web.get("/readyz").await.body, "store is a read-only replica\n");
            pair.lead_to(master);
            let changed = load.now();
            service.becomes_ready().await;
            report(
                "demoted, ready",
                format!("{:?} after the name led to the new master", load.now() - changed),
            );
            load.until_calm(0).await;
            rounds.push((begun, demoted, changed, load.now()));
        }
        let connects = service.web.metric(CONNECTS).await - connects;
        let calls = load.finish();
        for (begun, demoted, changed, end) in rounds {
            let of_round = calls.of(0).between(begun, end);
            let during = summary_of(
                "demoted, meanwhile",
                &of_round.between(demoted + Duration::from_millis(200), changed),
            );
            assert_eq!(during.admitted, 0, "{during}");
            is_fast(during.median < AT_ONCE, || during.to_string());
            recovers_within(
                "demoted, the name leads to the new master",
                &of_round,
                changed,
                NOTICED,
            );
        }
        unaffected("demoted, on_store_error: allow", &calls.of(1));
        report("demoted, connections made in three rounds", connects);
        let warnings =
            service.tollgate.process.log().iter().filter(|line| line.contains(WARNING)).count();
        assert_eq!(warnings, 3, "one for each round");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_fail_briefly_if_the_name_resolves_to_the_new_master_before_the_demotion() {
    measured(async || {
        let pair = Pair::start().await;
        let service = Service::start(&pair.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50))]).await;
        load.go_on(1_500).await;
        pair.servers[1].command(&["REPLICAOF", "NO", "ONE"]).await;
        pair.lead_to(1);
        pair.follow(0).await;
        let demoted = load.now();
        load.until_calm(0).await;
        recovers_within(
            "demoted after the name changed",
            &load.finish(),
            demoted,
            Duration::from_millis(1_000),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_sentinels_still_name_fails_calls_at_once_until_they_name_another() {
    measured(async || {
        let group = Sentinels::start().await;
        let service = Service::start(&group.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
        load.go_on(1_200).await;
        let old = group.master().await;
        old.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let demoted = load.now();
        becomes("it is not ready", TEST_TIMEOUT, || service.readiness(), |status| *status == 503)
            .await;
        group.successor_of(old.address).await;
        let named = load.now();
        load.until_calm(0).await;
        let calls = load.finish();
        let refused = demoted + Duration::from_millis(200)..demoted + Duration::from_millis(1_000);
        let during = summary_of(
            "sentinels, demoted by hand",
            &calls.of(0).between(refused.start, refused.end),
        );
        assert_eq!(during.admitted, 0, "{during}");
        is_fast(during.median < AT_ONCE, || during.to_string());
        recovers_within(
            "sentinels, demoted by hand",
            &calls.of(0),
            named,
            Duration::from_millis(1_500),
        );
        unaffected("sentinels, demoted by hand, on_store_error: allow", &calls.of(1));
    })
    .await;
}
