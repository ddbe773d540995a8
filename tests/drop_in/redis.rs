//! Variables for the connection to Redis: sockets, passwords, and every topology. The flags of
//! certificates and of per-second servers are tested in `redis`.

use std::time::{Duration, Instant};

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{Istio, Ratelimit};
use crate::support::policy::daily;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::sentinels::{MASTER, Sentinels, Watch};
use crate::support::redis::{Redis, Setup, listed};
use crate::support::rls::channel;
use crate::support::{TEST_TIMEOUT, becomes};

/// Returns the number of keys, which need not be text.
async fn keys(redis: &Redis, pattern: &str) -> u64 {
    redis.query(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", pattern]).await.unwrap()
}

/// Serves five hits a day with these variables, which refer to another Redis than Istio's, and
/// takes them.
async fn takes_five(more: &[(&str, &str)]) {
    let istio = Istio::with(&daily("user", 5)).await;
    let mut service = istio.serve(more).await;
    let client = service.client().await;
    for expected in [true, true, true, true, true, false] {
        assert_eq!(client.hit("user", "ann").await, expected);
    }
    assert_eq!(keys(&istio.redis, "*").await, 0, "it gets no command");
}

#[tokio::test]
async fn redis_is_reached_by_unix_socket_password_and_prefix() {
    let redis = Redis::start_as(Setup { password: Some("se:cret"), ..Setup::default() }).await;
    let istio = Istio::with(&daily("user", 5)).await;
    let socket = redis.socket();
    let more = [
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", socket.to_str().unwrap()),
        ("REDIS_AUTH", "default:se:cret"),
        ("CACHE_KEY_PREFIX", "mine:"),
    ];
    let mut service = istio.serve(&more).await;
    assert!(service.client().await.hit("user", "ann").await);
    assert!(keys(&redis, "mine:*").await > 0);
    assert_eq!(keys(&redis, "[^m]*").await, 0);
    let log = service.process.log().join("\n");
    assert!(!log.contains("cret"), "{log}");
}

#[tokio::test]
async fn the_ports_open_when_health_can_be_serving() {
    let istio = Istio::with(&daily("user", 5)).await;
    for _ in 0..5 {
        let mut service = Ratelimit::start(&istio.variables(&[("LOG_LEVEL", "info")]));
        let mut health = HealthClient::new(channel(service.grpc()).await);
        let serving =
            health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
        // On a busy machine, Redis may not be reached within the second that the ports wait.
        let log = service.process.log();
        let line = |words: &str| log.iter().position(|line| line.contains(words));
        let is_reached_first = line("store connected") < line("\"listening\"");
        if line("store connected").is_some() && is_reached_first {
            assert_eq!((serving, service.health().await), (ServingStatus::Serving, 200));
        }
        becomes("it is healthy", TEST_TIMEOUT, || service.health(), |status| *status == 200).await;
        assert!(service.client().await.hit("user", "ann").await);
    }
}

#[tokio::test]
async fn the_ports_open_within_a_second_of_the_start_without_redis() {
    let istio = Istio::with(&daily("user", 5)).await;
    let variables = istio.variables(&[]);
    istio.redis.kill();
    let begun = Instant::now();
    let mut service = Ratelimit::start(&variables);
    assert!(
        begun.elapsed() >= Duration::from_millis(900),
        "they opened after {:?}",
        begun.elapsed()
    );
    let mut health = HealthClient::new(channel(service.grpc()).await);
    let serving = health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
    assert_eq!((serving, service.health().await), (ServingStatus::NotServing, 500));
}

#[tokio::test]
async fn health_follows_redis_if_configured() {
    let istio = Istio::with(&daily("user", 5)).await;
    let service = istio.serve(&[("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")]).await;
    let steady = istio.serve(&[]).await;
    istio.redis.kill();
    becomes("it is not healthy", TEST_TIMEOUT, || service.health(), |status| *status == 500).await;
    assert_eq!(steady.health().await, 200);
}

#[tokio::test]
async fn a_cluster_is_found_by_its_seeds() {
    let layout = Layout { replicas: 0, node_timeout_ms: 15_000, ..Layout::default() };
    let cluster = Cluster::start_as(layout).await;
    let seeds = listed(&cluster.seeds());
    takes_five(&[("REDIS_TYPE", "cluster"), ("REDIS_URL", &seeds)]).await;
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let setup = Setup { password: Some("data"), ..Setup::default() };
    let group =
        Sentinels::start_as(Watch { sentinel_password: Some("watch"), setup, ..Watch::default() })
            .await;
    group.master().await;
    let url = format!("{MASTER},{}", listed(&group.addresses()));
    let own = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", url.as_str())];
    takes_five(&[&own[..], &[("REDIS_AUTH", "data"), ("REDIS_SENTINEL_AUTH", "watch")]].concat())
        .await;
}
