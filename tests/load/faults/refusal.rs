//! One server that answers, but not with a decision.

use std::time::Duration;

use crate::support::faults::{
    Answer, Service, all, measured, recovers_within, report, summary_of, unaffected, values,
};
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

const UNREADABLE: &str = r#"tollgate_store_errors_total{kind="unreadable"}"#;

/// Returns the number of connections that Redis has, and that of those that the service uses.
async fn connections(redis: &Redis, service: &Service) -> (u64, u64) {
    let list: String = redis.query(&["CLIENT", "LIST", "TYPE", "normal"]).await.unwrap();
    (list.lines().count() as u64, service.web.metric("tollgate_store_connections").await)
}

/// Returns the key that contains a text.
async fn key_of(redis: &Redis, text: &str) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", &format!("*{text}*")]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn flushed_scripts_are_sent_again() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50))]).await;
        for _ in 0..20 {
            load.go_on(100).await;
            redis.command(&["SCRIPT", "FLUSH"]).await;
        }
        load.go_on(200).await;
        unaffected("SCRIPT FLUSH, 20 times", &load.finish());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn closed_connections_fail_only_the_calls_in_flight() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &["--workers", "2"]).await;
        // Two of the workers, two of the process, and that of this test.
        let are_open = |open: &(u64, u64)| *open == (5, 4);
        let connections = || connections(&redis, &service);
        becomes("its connections are open", TEST_TIMEOUT, connections, are_open).await;
        let load = service.load(vec![all("user", &values(50))]).await;
        let mut kills = Vec::new();
        for _ in 0..10 {
            let begin = load.go_on(200).await;
            redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
            kills.push((begin, load.now()));
            becomes("its connections are open again", TEST_TIMEOUT, connections, are_open).await;
        }
        load.go_on(500).await;
        let calls = load.finish();
        summary_of("CLIENT KILL, 10 times", &calls);
        for call in calls.failed() {
            let was_in_flight = |(begin, end): &(Duration, Duration)| {
                call.at <= *end && call.at + call.took >= *begin
            };
            assert!(kills.iter().any(was_in_flight), "{call:?} was not in flight at {kills:?}");
        }
        let unknown = service.web.metric("tollgate_unknown_charges_total").await;
        report("CLIENT KILL, charges not known to be written", unknown);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_became_a_replica_fails_calls_until_it_is_a_master_again() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
        load.go_on(500).await;
        redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        // Both counts are of a replica: on a busy machine a master runs many scripts between two
        // commands of this test.
        let before = redis.commandstats().await["evalsha"];
        let begun = load.now();
        load.go_on(1_000).await;
        let scripts = redis.commandstats().await["evalsha"] - before;
        redis.command(&["REPLICAOF", "NO", "ONE"]).await;
        let back = load.now();
        load.until_calm(0).await;
        let calls = load.finish();
        let during = calls.between(begun, back).summary().calls;
        report("READONLY", format!("{scripts} scripts for {during} calls"));
        assert!(scripts < 50, "{scripts} scripts for {during} calls: the server gets no more");
        unaffected("READONLY, on_store_error: allow", &calls.of(1));
        recovers_within("READONLY", &calls.of(0), back, Duration::from_millis(2_000));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_foreign_value_fails_its_own_counter_only() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        for (value, foreign) in [("alice", &b"RPUSH"[..]), ("bob", b"SET")] {
            assert_eq!(service.decide("user", value).await, Answer::Ok);
            let key = key_of(&redis, value).await;
            redis.query_bytes::<redis::Value>(&[b"DEL", &key]).await.unwrap();
            redis.query_bytes::<redis::Value>(&[foreign, &key, b"no counter"]).await.unwrap();
        }
        let before = service.web.metric(UNREADABLE).await;
        for value in ["alice", "bob"] {
            assert_eq!(service.decide("user", value).await, Answer::Unavailable);
            let both = crate::support::rls::request(vec![
                crate::support::rls::descriptor(&[("user", value)]),
                crate::support::rls::descriptor(&[("few", value)]),
            ]);
            assert_eq!(
                crate::support::faults::answer_of(&service.client, both).await,
                Answer::Unavailable
            );
        }
        assert_eq!(service.web.metric(UNREADABLE).await, before + 4);
        let load = service
            .load(vec![
                all("user", &values(50)),
                all("user", &["alice".to_owned(), "bob".to_owned()]),
            ])
            .await;
        load.go_on(500).await;
        let calls = load.finish();
        unaffected("other keys, meanwhile", &calls.of(0));
        assert_eq!(calls.of(1).summary().admitted, 0);
    })
    .await;
}
