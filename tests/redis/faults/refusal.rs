//! One server that answers, but not with a decision.

use std::time::Duration;

use crate::support::faults::{Answer, Service, report};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::tls::{Clients, Tls};
use crate::support::redis::{Redis, Setup};
use crate::support::{TEST_TIMEOUT, becomes};

const NO_ROOM: &str = r#"tollgate_store_errors_total{kind="no_room"}"#;

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
        assert!(unready.status == 503 && unready.body.contains("lacks permissions"), "{unready:?}");
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
