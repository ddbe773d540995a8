//! Metrics of Redis, and of the deny cache in front of it.

use super::POLICY;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn connections_remembered_denials_and_failures_are_counted() {
    let redis = Redis::start().await;
    let policies = Policies::of(POLICY);
    let url = redis.url();
    let store =
        ["--store", &url, "--store-timeout", "15s", "--deny-cache-max", "60s", "--replicas", "1"];
    let flags =
        [&store[..], &["--workers", "1", "--stats-prometheus-listen", "127.0.0.1:0"]].concat();
    let mut service = Tollgate::serve_with(policies.path(), &flags);
    let web = Web::new(super::address(&mut service.process));
    let public = Web::new(service.http);
    becomes(
        "the service is ready",
        TEST_TIMEOUT,
        || public.get("/readyz"),
        |reply| reply.status == 200,
    )
    .await;
    let client = Client::connect(service.grpc).await;
    for expected in [true, true, false, false, false] {
        assert_eq!(client.hit("user", "ann").await, expected);
    }
    for (name, expected) in [
        ("ratelimit_service_rate_limit_over_limit{domain=\"test\",key1=\"user\"}", 3),
        ("ratelimit_service_rate_limit_test_user_over_limit_with_local_cache", 2),
        ("ratelimit_localcache_hitCount", 2),
        ("ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"}", 0),
    ] {
        assert_eq!(web.metric(name).await, expected, "{name}");
    }
    // The connection of a worker, that of `/json`, and that of the availability probe, which may
    // already be closed.
    assert!((2..=3).contains(&web.metric("ratelimit_redis_pool_cx_active").await));
    assert_eq!(web.metric("ratelimit_redis_pool_cx_total").await, 3);
    redis.kill();
    let other = || request(vec![descriptor(&[("user", "bob")])]);
    let _ = becomes("a call fails", TEST_TIMEOUT, || client.decide(other()), Result::is_err).await;
    let errors = "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"}";
    becomes("the failure is counted", TEST_TIMEOUT, || web.metric(errors), |count| *count > 0)
        .await;
    let lost = "ratelimit_redis_pool_cx_local_close";
    becomes("the loss is counted", TEST_TIMEOUT, || web.metric(lost), |count| *count == 3).await;
    assert_eq!(web.metric("ratelimit_redis_pool_cx_active").await, 0);
}
