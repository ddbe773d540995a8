//! Operations on one counter: at every topology, and together with what replicas cache and lease of
//! it.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{cluster, last_write, metric, only_counter, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::sentinels::Sentinels;
use crate::support::redis::{Redis, Setup};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const YEARLY: &str = "algorithm: sliding_window, requests_per_unit: 2, unit: year";

#[tokio::test]
async fn amendments_work_on_a_server_a_cluster_and_a_master_of_sentinels() {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    let group = Sentinels::start().await;
    for url in [redis.url(), cluster.url(), group.url()] {
        for limit in [
            YEARLY,
            "requests_per_unit: 2, unit: year, charge: admitted",
            "algorithm: gcra, requests_per_unit: 2, unit: year",
        ] {
            let policies = Policies::of(&policy(&[("user", limit)]));
            let (service, client) = serve(&policies, &url, &[]).await;
            // In several slots of the cluster.
            for user in ["ann", "bob", "cy", "dora", "{x}1"] {
                goes_through_all(&service, &client, user).await;
            }
        }
    }
}

#[tokio::test]
async fn a_reset_frees_a_counter_that_was_written_while_the_clock_was_ahead() {
    const DAY_US: u64 = 86_400_000_000;
    let redis = Redis::start().await;
    for limit in [
        "requests_per_unit: 2, unit: hour, charge: admitted",
        "requests_per_unit: 2, unit: day, calendar: true, charge: admitted",
        "algorithm: sliding_window, requests_per_unit: 2, unit: hour",
        "algorithm: sliding_log, requests_per_unit: 2, unit: hour",
        "algorithm: concurrency, in_flight: 2, hold: { ttl: 1h }",
    ] {
        redis.command(&["FLUSHALL"]).await;
        let policies = Policies::of(&policy(&[("user", limit)]));
        let (service, client) = serve(&policies, &redis.url(), &[]).await;
        assert!(client.hit("user", "ann").await);
        let (key, value) = only_counter(&redis, "*").await;
        let ahead = (last_write(&value) + DAY_US).to_be_bytes();
        redis.query_bytes::<()>(&[b"SETRANGE", &key, b"1", &ahead[1..]]).await.unwrap();

        let admin = format!("http://{}", service.admin);
        let ended = output(["reset", "--admin", &admin, "test", "user=ann"]);
        let text = String::from_utf8(ended.stdout).unwrap();
        // Rounded up, and less the time since the hit.
        assert!(text.contains("clock was 23") || text.contains("clock was 24"), "{limit}: {text}");
        for admitted in [true, true, false] {
            assert_eq!(client.hit("user", "ann").await, admitted, "{limit}");
        }
        let again = amend(&service, "reset", "ann", json!({})).await;
        assert_eq!(again["after"]["windows"][0]["used"], 0, "{limit}: {again}");
        let text = |state: &str| again[state]["at"].as_str().unwrap().to_owned();
        assert!(text("before") <= text("after"), "{limit}: {again}");
    }
}

/// The counter was written when the server's clock was as this process's. The process has not
/// learnt yet that the server's is days behind now.
#[tokio::test]
async fn a_reset_reads_the_calendar_at_the_time_of_a_server_days_behind() {
    const DAYS: i32 = 3;
    let redis = Redis::start_as(Setup { clock_offset: -DAYS * 86_400, ..Setup::default() }).await;
    let limit = "requests_per_unit: 2, unit: day, calendar: true, charge: admitted";
    let policies = Policies::of(&policy(&[("user", limit)]));
    let (_other, client) = serve(&policies, &redis.url(), &[]).await;
    assert!(client.hit("user", "ann").await);
    let (key, value) = only_counter(&redis, "*").await;
    let ahead = last_write(&value) + u64::from(DAYS.unsigned_abs()) * 86_400_000_000;
    redis.query_bytes::<()>(&[b"SETRANGE", &key, b"1", &ahead.to_be_bytes()[1..]]).await.unwrap();
    let (service, _) = serve(&policies, &redis.url(), &[]).await;
    let reset = amend(&service, "reset", "ann", json!({})).await;
    assert_eq!(reset["after"]["windows"][0]["used"], 0, "{reset}");
}

async fn goes_through_all(service: &Tollgate, client: &Client, user: &str) {
    let hits = async |expected: &[bool]| {
        for admitted in expected {
            assert_eq!(client.hit("user", user).await, *admitted, "{user} {expected:?}");
        }
    };
    hits(&[true, true, false]).await;
    let granted = amend(service, "grant", user, json!({"hits": 2, "for": "1h"})).await;
    assert_eq!(
        (&granted["before"]["remaining"], &granted["after"]["remaining"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(remaining(client, "user", user).await, 2);
    hits(&[true, true, false]).await;
    amend(service, "grant", user, json!({"hits": 5, "for": "1h"})).await;
    hits(&[true]).await;
    let reset = amend(service, "reset", user, json!({})).await;
    assert_eq!((&reset["after"]["remaining"], &reset["after"]["grant"]), (&json!(2), &Value::Null));
    hits(&[true, true, false]).await;
    let refunded = amend(service, "refund", user, json!({"hits": 1})).await;
    assert_eq!(refunded["after"]["windows"][0]["used"], 1);
    hits(&[true, false]).await;
    amend(service, "reset", user, json!({})).await;
}

#[tokio::test]
async fn amendments_reach_other_replicas_when_reported() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("user", YEARLY)]));
    let (here, one) = serve(&policies, &redis.url(), &["--deny-cache-max", "500ms"]).await;
    let (_there, other) = serve(&policies, &redis.url(), &["--deny-cache-max", "500ms"]).await;
    for change in ["reset", "grant", "refund"] {
        while one.hit("user", "ann").await {}
        assert!(!other.hit("user", "ann").await);
        let with = match change {
            "reset" => json!({}),
            "grant" => json!({"hits": 2, "for": "1h"}),
            _ => json!({"hits": 2}),
        };
        let changed = amend(&here, change, "ann", with).await;
        assert_eq!(changed["elsewhere_within_us"], 500_000);
        assert!(changed["elsewhere"].as_str().unwrap().contains("within 500ms"), "{changed}");
        assert!(one.hit("user", "ann").await, "{change}: this process has no cached denial");
        becomes(
            "the other process sees it",
            TEST_TIMEOUT,
            || other.hit("user", "ann"),
            |admitted| *admitted,
        )
        .await;
    }
}

#[tokio::test]
async fn blocks_that_a_grant_paid_go_back_to_it() {
    let redis = Redis::start().await;
    let limit =
        "requests_per_unit: 5, unit: year, charge: admitted, lease: { size: 50, ttl: 100ms }";
    let policies = Policies::of(&policy(&[("user", limit)]));
    let (service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    while client.hit("user", "ann").await {}
    let granted = amend(&service, "grant", "ann", json!({"hits": 100_000, "for": "1h"})).await;
    let elsewhere = granted["elsewhere"].as_str().unwrap();
    assert!(
        elsewhere.starts_with(
            "other replicas see the change at once; hits leased before by any replica"
        ),
        "{elsewhere}"
    );
    assert!(
        elsewhere.contains("for up to 100ms") && granted["elsewhere_within_us"] == 100_000,
        "{granted}"
    );
    for _ in 0..200 {
        assert!(client.hit("user", "ann").await);
    }
    assert!(metric(&service, "tollgate_lease_blocks_total").await > 0);
    let state = || async { inspect(&service, "user=ann").await["state"].clone() };
    let is_whole = |state: &Value| {
        state["grant"]["remaining"] == 100_000 - 200 && state["windows"][0]["used"] == 5
    };
    becomes("the unused hits are returned", TEST_TIMEOUT, state, is_whole).await;
}

#[tokio::test]
async fn exactly_the_limit_and_the_grant_are_admitted_by_several_processes_with_leases() {
    let redis = Redis::start().await;
    let limit =
        "requests_per_unit: 2000, unit: year, charge: admitted, lease: { size: 2%, ttl: 200ms }";
    let policies = Policies::of(&policy(&[("user", limit)]));
    let (here, one) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    let (_there, other) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    let granted = amend(&here, "grant", "ann", json!({"hits": 500, "for": "1h"})).await;
    assert_eq!(granted["elsewhere_within_us"], 200_000);
    let hit = |client: Client| async move {
        let mut admitted = 0;
        for _ in 0..400 {
            admitted += u32::from(client.hit("user", "ann").await);
        }
        admitted
    };
    let clients = [&one, &other, &one, &other, &one, &other, &one, &other];
    let admitted: u32 = join_all(clients.map(|client| hit(client.clone()))).await.iter().sum();
    assert!(admitted <= 2_500, "{admitted}");
    // Hits left in blocks return to the limit or the grant; then all have been admitted.
    let mut total = admitted;
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    while total < 2_500 && std::time::Instant::now() < deadline {
        total += u32::from(one.hit("user", "ann").await);
    }
    assert_eq!(total, 2_500);
    assert!(!one.hit("user", "ann").await && !other.hit("user", "ann").await);
}

#[tokio::test]
async fn an_unavailable_store_is_reported() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("user", YEARLY)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    assert!(client.hit("user", "ann").await);
    redis.kill();
    let body = json!({"domain": "test", "descriptor": "user=ann"}).to_string();
    let headers = [("content-type", "application/json")];
    let refused =
        Web::new(service.admin).send_with("POST", "/api/v1/counter/reset", &headers, body).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(
        Web::new(service.admin).get("/api/v1/counter?domain=test&descriptor=user=ann").await.status,
        503
    );
}

/// Returns the state of a counter.
pub(super) async fn inspect(service: &Tollgate, descriptor: &str) -> Value {
    let reply = Web::new(service.admin)
        .get(&format!("/api/v1/counter?domain=test&descriptor={descriptor}"))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

/// Amends a user's counter, and returns the reply.
async fn amend(service: &Tollgate, what: &str, user: &str, with: Value) -> Value {
    let mut body = json!({"domain": "test", "descriptor": format!("user={user}")});
    body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    post(service, what, &body).await
}

async fn post(service: &Tollgate, what: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let path = format!("/api/v1/counter/{what}");
    let reply = Web::new(service.admin).send_with("POST", &path, &headers, body.to_string()).await;
    assert_eq!(reply.status, 200, "{what} {body}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}
