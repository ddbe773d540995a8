//! The number of processes that a process assumes, for its share under `on_store_error: local`.

use super::{is_ready, metric};
use crate::support::policy::{Policies, yearly};
use crate::support::redis::Redis;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn replicas_are_counted_again_after_the_store_lost_its_data() {
    let redis = Redis::start().await;
    let policies = Policies::of(&yearly("user", 10));
    let start = || {
        Tollgate::serve_with(policies.path(), &["--store", &redis.url(), "--store-timeout", "15s"])
    };
    let services = [start(), start()];
    for service in &services {
        becomes("it is ready", TEST_TIMEOUT, || is_ready(service), |ready| *ready).await;
        becomes(
            "both processes are counted",
            TEST_TIMEOUT,
            || metric(service, "tollgate_replicas"),
            |count| *count == 2,
        )
        .await;
    }
    redis.command(&["FLUSHALL"]).await;
    let state = async || {
        let reported: u64 = redis.query(&["ZCARD", "tollgate:replicas"]).await.unwrap();
        let [one, other] = &services;
        let known =
            [metric(one, "tollgate_replicas").await, metric(other, "tollgate_replicas").await];
        assert_eq!(known, [2, 2], "{reported} have reported again");
        reported
    };
    // The first process to report is alone in the store until the other reports.
    becomes("both have reported again", TEST_TIMEOUT, state, |reported| *reported == 2).await;
    state().await;
}
