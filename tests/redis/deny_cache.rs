//! Known denials are answered without Redis. Which denials are known, and for how long, is tested
//! in the crate `tollgate-store`.

use super::{calls, cluster, metric, nodes_of, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;

const YEARLY: &str = "algorithm: sliding_window, requests_per_unit: 1, unit: year";
const LONG: [&str; 2] = ["--deny-cache-max", "60s"];

/// A server, a service, and a client whose `user=ann` has been denied once.
struct Denied {
    redis: Redis,
    service: Tollgate,
    client: Client,
}

impl Denied {
    async fn by(flags: &[&str]) -> Self {
        let redis = Redis::start().await;
        let policies = Policies::of(&policy(&[("user", YEARLY)]));
        let (service, client) = serve(&policies, &redis.url(), flags).await;
        assert!(client.hit("user", "ann").await);
        assert!(!client.hit("user", "ann").await);
        Self { redis, service, client }
    }

    /// Returns the number of script calls so far.
    async fn calls(&self) -> u64 {
        calls(&[&self.redis], "evalsha").await
    }
}

#[tokio::test]
async fn a_cached_denial_makes_no_store_call_on_any_connection() {
    let denied = Denied::by(&LONG).await;
    let before = denied.calls().await;
    for _ in 0..20 {
        assert!(!denied.client.hit("user", "ann").await);
    }
    for _ in 0..4 {
        assert!(!Client::connect(denied.service.grpc).await.hit("user", "ann").await);
    }
    assert_eq!(denied.calls().await, before);
    assert_eq!(metric(&denied.service, "tollgate_deny_cache_hits_total").await, 24);
}

#[tokio::test]
async fn without_the_cache_every_denial_makes_a_store_call() {
    let denied = Denied::by(&["--deny-cache-max", "0s"]).await;
    let before = denied.calls().await;
    for _ in 0..20 {
        assert!(!denied.client.hit("user", "ann").await);
    }
    assert_eq!(denied.calls().await, before + 20);
}

#[tokio::test]
async fn a_cluster_is_called_if_the_denial_may_come_from_a_charge_that_is_taken_back() {
    let cluster = cluster().await;
    let rules = [("user", YEARLY), ("always", "requests_per_unit: 1, unit: year")];
    let policies = Policies::of(&policy(&rules));
    let (_service, client) = serve(&policies, &cluster.url(), &LONG).await;
    for (key, calls_of_three) in [("user", 3), ("always", 0)] {
        assert!(client.hit(key, "ann").await);
        assert!(!client.hit(key, "ann").await);
        let before = calls(&nodes_of(&cluster), "evalsha").await;
        for _ in 0..3 {
            assert!(!client.hit(key, "ann").await);
        }
        assert_eq!(calls(&nodes_of(&cluster), "evalsha").await - before, calls_of_three, "{key}");
    }
}
