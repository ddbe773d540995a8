//! Readiness that follows the store.

use crate::support::policy::{Policies, daily};
use crate::support::probes::Probes;
use crate::support::redis::Redis;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

/// Waits until the probes report this readiness, and returns the reason.
async fn follows(probes: &Probes, expected: bool) -> String {
    let is_expected = |(is_ready, _): &(bool, String)| *is_ready == expected;
    becomes("readiness follows", TEST_TIMEOUT, || probes.agree(), is_expected).await.1
}

#[tokio::test]
async fn with_the_flag_readiness_follows_the_store() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let [url, other_url] = [redis.url(), other.url()];
    let flags = ["--store", &url, "--per-second-store", &other_url, "--ready-while-store"];
    let service = Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &flags);
    let probes = Probes::of(&service).await;
    let ready = async |expected| follows(&probes, expected).await;
    ready(true).await;
    redis.kill();
    assert_eq!(ready(false).await, "store disconnected\n");
    redis.restart().await;
    ready(true).await;
    redis.pause();
    ready(false).await;
    redis.resume();
    ready(true).await;
    other.kill();
    assert_eq!(ready(false).await, "store disconnected\n");
}

#[tokio::test]
async fn every_probe_fails_while_the_store_is_a_replica() {
    let redis = Redis::start().await;
    let service =
        Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &["--store", &redis.url()]);
    let probes = Probes::of(&service).await;
    let ready = async |expected| follows(&probes, expected).await;
    ready(true).await;
    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(ready(false).await, "store is a read-only replica\n");
    redis.command(&["REPLICAOF", "NO", "ONE"]).await;
    ready(true).await;
}
