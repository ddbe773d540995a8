//! One server that answers, but not with a decision.

use std::time::Duration;

use super::{Answer, Service, all, recovers_within, report, summary_of, unaffected, values};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::tls::{Clients, Tls};
use crate::support::redis::{Redis, Setup};
use crate::support::{TEST_TIMEOUT, becomes};

const NO_ROOM: &str = r#"tollgate_store_errors_total{kind="no_room"}"#;
const UNREADABLE: &str = r#"tollgate_store_errors_total{kind="unreadable"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn flushed_scripts_are_sent_again() {
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), &[]).await;
    let load = service.load(vec![all("user", &values(50))]).await;
    for _ in 0..20 {
        load.go_on(100).await;
        redis.command(&["SCRIPT", "FLUSH"]).await;
    }
    load.go_on(200).await;
    unaffected("SCRIPT FLUSH, 20 times", &load.finish());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn closed_connections_fail_only_the_calls_in_flight() {
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
        let was_in_flight =
            |(begin, end): &(Duration, Duration)| call.at <= *end && call.at + call.took >= *begin;
        assert!(kills.iter().any(was_in_flight), "{call:?} was not in flight at {kills:?}");
    }
    let unknown = service.web.metric("tollgate_unknown_charges_total").await;
    report("CLIENT KILL, charges not known to be written", unknown);
}

/// Returns the number of connections that Redis has, and that of those that the service uses.
async fn connections(redis: &Redis, service: &Service) -> (u64, u64) {
    let list: String = redis.query(&["CLIENT", "LIST", "TYPE", "normal"]).await.unwrap();
    (list.lines().count() as u64, service.web.metric("tollgate_store_connections").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_user_without_the_rights_for_decisions_is_logged_and_waited_for() {
    const WARNING: &str = "Redis denies commands that decisions require";
    // The rights that envoyproxy/ratelimit needs, and no more.
    let may = "+auth +hello +client +select +ping +get +incrby +expire";
    for flavor in Flavor::ALL {
        let lines = vec![format!("user app on >first ~* -@all {may}")];
        let redis = Redis::start_as(Setup { flavor, lines, ..Setup::default() }).await;
        let mut service =
            Service::begin(&format!("redis://app:first@{}", redis.address), &["--replicas", "1"])
                .await;
        let line = service
            .tollgate
            .process
            .wait_for_line(WARNING, |line| line.contains(WARNING).then(|| line.to_owned()));
        assert!(line.contains("ACL SETUSER app +evalsha +eval +time +set +del"), "{line}");
        let unready = service.web.get("/readyz").await;
        assert!(
            unready.status == 503 && unready.body.contains("lacks permissions"),
            "{}",
            unready.body
        );
        assert_eq!(service.web.get("/healthcheck").await.status, 500);
        assert_eq!(service.decide("user", "ann").await, Answer::Unavailable);
        redis
            .command(&["ACL", "SETUSER", "app", "+evalsha", "+eval", "+time", "+set", "+del"])
            .await;
        service.becomes_ready().await;
        assert_eq!(service.decide("user", "ann").await, Answer::Ok);
        assert_eq!(
            service.tollgate.process.log().iter().filter(|line| line.contains(WARNING)).count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_store_rejects_new_counters_and_is_reported() {
    let redis = Redis::start_with(&["maxmemory-policy noeviction"]).await;
    let service = Service::start(&redis.url(), &[]).await;
    assert_eq!(service.decide("user", "old").await, Answer::Ok);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(service.decide("user", "new").await, Answer::Unavailable);
    assert_eq!(service.decide("lenient", "new").await, Answer::Ok);
    assert_eq!(service.decide("strict", "new").await, Answer::Over);
    assert_eq!(service.web.metric(NO_ROOM).await, 3);
    report(
        "out of memory, a counter that is there",
        format!("{:?}", service.decide("user", "old").await),
    );
    assert_eq!(service.decide("none", "anyone").await, Answer::Over, "a ban needs no memory");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(service.decide("user", "new").await, Answer::Ok);
    assert_eq!(service.decide("user", "old").await, Answer::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_became_a_replica_fails_calls_until_it_is_a_master_again() {
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_foreign_value_fails_its_own_counter_only() {
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
        assert_eq!(super::answer_of(&service.client, both).await, Answer::Unavailable);
    }
    assert_eq!(service.web.metric(UNREADABLE).await, before + 4);
    let load = service
        .load(vec![all("user", &values(50)), all("user", &["alice".to_owned(), "bob".to_owned()])])
        .await;
    load.go_on(500).await;
    let calls = load.finish();
    unaffected("other keys, meanwhile", &calls.of(0));
    assert_eq!(calls.of(1).summary().admitted, 0);
}

/// Returns the key that contains a text.
async fn key_of(redis: &Redis, text: &str) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", &format!("*{text}*")]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_wrong_password_is_reported_and_a_corrected_one_is_used() {
    let redis = Redis::start_as(Setup { password: Some("right"), ..Setup::default() }).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "wrong\n").unwrap();
    let url = format!("redis://{}", redis.address);
    let path = file.path().to_str().unwrap();
    let mut service = Service::begin(&url, &["--redis-password-file", path]).await;
    is_logged(&mut service, "uthentication failed").await;
    std::fs::write(file.path(), "right\n").unwrap();
    service.becomes_ready().await;
    becomes(
        "it decides",
        TEST_TIMEOUT,
        || service.decide("user", "ann"),
        |answer| *answer == Answer::Ok,
    )
    .await;
    service.ends("after a wrong password");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_of_an_unknown_authority_is_reported_and_refused() {
    let own = Tls::new(Clients::Anyone);
    let other = Tls::new(Clients::Anyone);
    let redis = Redis::start_as(Setup { tls: Some(own), ..Setup::default() }).await;
    let authority = other.authority();
    let mut service =
        Service::begin(&redis.url(), &["--redis-ca", authority.to_str().unwrap()]).await;
    is_logged(&mut service, "ertificate").await;
    service.ends("with a server that is not trusted");
}

/// Asserts that the service is not ready, logs the reason once, and answers by `on_store_error`.
async fn is_logged(service: &mut Service, why: &str) {
    let has_reason =
        |line: &str| (line.contains("Redis unreachable") && line.contains(why)).then_some(());
    service.tollgate.process.wait_for_line(why, has_reason);
    assert_eq!(service.decide("user", "ann").await, Answer::Unavailable);
    assert_eq!(service.decide("lenient", "ann").await, Answer::Ok);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(service.readiness().await, 503);
    let log = service.tollgate.process.log();
    let complaints: Vec<&String> =
        log.iter().filter(|line| line.contains("Redis unreachable")).collect();
    report(why, format!("{} lines, such as {}", complaints.len(), complaints[0]));
    assert!(complaints.len() <= 8, "{complaints:#?}");
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
}
