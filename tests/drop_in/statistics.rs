//! Hits of one request that cross a limit, as `base_limiter.go` splits them between `near_limit`
//! and `over_limit`.

use tollgate::grpc::proto::RateLimitDescriptor;

use super::variables::policy;
use super::{Istio, Ratelimit};
use crate::support::rls::{Client, descriptor, request};

const RULES: [(&str, &str); 3] = [
    ("one", "unit: year, requests_per_unit: 10"),
    ("other", "unit: year, requests_per_unit: 10"),
    ("third", "unit: year, requests_per_unit: 100"),
];

/// Variables that expose statistics.
const COUNTING: [(&str, &str); 2] =
    [("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", "127.0.0.1:0")];

fn taking(hits: u64, key: &str) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, "")]) }
}

async fn take(client: &Client, descriptors: Vec<RateLimitDescriptor>) {
    client.decide(request(descriptors)).await.unwrap();
}

/// Returns the hits of a rule: total, within, near and over the limit.
async fn counts(service: &Ratelimit, rule: &str) -> [u64; 4] {
    let page = service.admin.get("/stats").await.body;
    ["total_hits", "within_limit", "near_limit", "over_limit"].map(|name| {
        let name = format!("ratelimit.service.rate_limit.test.{rule}.{name}: ");
        page.lines()
            .find_map(|line| line.strip_prefix(&name))
            .map_or(0, |count| count.trim().parse().unwrap())
    })
}

#[tokio::test]
async fn hits_that_cross_a_limit_are_split_as_in_envoyproxy_ratelimit() {
    let istio = Istio::with(&policy(&RULES)).await;
    let mut service = istio.serve(&COUNTING).await;
    let client = service.client().await;
    for hits in [7, 5, 3] {
        take(&client, vec![taking(hits, "one")]).await;
    }
    // 7 within; of the next 5, two near the limit, two over it, and the one before in neither; then
    // all over.
    assert_eq!(counts(&service, "one").await, [15, 7, 2, 5]);
    // In one request with another: hits 10 and 11 to 13; the other goes from 80 to 85 of 100.
    take(&client, vec![taking(9, "other"), taking(80, "third")]).await;
    take(&client, vec![taking(4, "other"), taking(5, "third")]).await;
    assert_eq!(counts(&service, "other").await, [13, 9, 1 + 1, 3]);
    assert_eq!(counts(&service, "third").await, [85, 85, 5, 0]);
}

#[tokio::test]
async fn hits_that_cross_a_limit_are_split_as_in_envoyproxy_ratelimit_if_denials_stop_the_others() {
    let istio = Istio::with(&policy(&RULES)).await;
    let mut service = istio
        .serve(
            &[COUNTING.as_slice(), &[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")]].concat(),
        )
        .await;
    let client = service.client().await;
    take(&client, vec![taking(9, "other"), taking(90, "third")]).await;
    take(&client, vec![taking(4, "other"), taking(5, "third")]).await;
    assert_eq!(counts(&service, "other").await, [13, 9, 1 + 1, 3]);
    // Hits that were not written count as if they had been there before.
    assert_eq!(counts(&service, "third").await, [95, 95, 10 + 5, 0]);
}

/// Its own integration tests read these counters in the process, for any sinks.
#[tokio::test]
async fn the_page_has_the_counters_without_a_sink_unless_they_are_disabled() {
    let istio = Istio::with(&policy(&RULES)).await;
    for (disabled, expected) in [("false", [7, 7, 0, 0]), ("true", [0; 4])] {
        let mut service =
            istio.serve(&[("DISABLE_STATS", disabled), ("CACHE_KEY_PREFIX", disabled)]).await;
        take(&service.client().await, vec![taking(7, "one")]).await;
        assert_eq!(counts(&service, "one").await, expected, "DISABLE_STATS={disabled}");
    }
}
