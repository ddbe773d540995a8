//! One server that is not there, at the start or later.

use std::time::Instant;

use crate::support::faults::{Answer, Service, report};
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn with_the_flag_it_is_ready_without_a_store() {
    let redis = Redis::start().await;
    redis.kill();
    let service = Service::begin(&redis.url(), &["--ready-without-store", "--replicas", "2"]).await;
    assert_eq!(service.readiness().await, 200);
    service.answers_by_on_store_error("ann").await;
    service.ends("never connected, ready all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn it_exits_on_a_signal_in_every_state_of_the_store() {
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), &[]).await;
    redis.pause();
    let _ = service.decide("user", "ann").await;
    service.ends("while the store hangs");
    let service = Service::begin(&redis.url(), &[]).await;
    let _ = service.decide("user", "ann").await;
    service.ends("while the store hangs from the start");
    redis.resume();

    let service = Service::start(&redis.url(), &[]).await;
    redis.kill();
    let _ = service.decide("user", "ann").await;
    service.ends("while the store is away");
    let service = Service::begin(&redis.url(), &[]).await;
    service.ends("before the store was reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_of_two_replicas_enforces_half_of_a_limit_until_the_store_is_back() {
    let redis = Redis::start().await;
    let service = Service::start(&redis.url(), &["--replicas", "2"]).await;
    redis.kill();
    let is_local = || async {
        service.decide("alone", "probe").await;
        service.web.metric("tollgate_local_decisions_total").await
    };
    becomes("it decides alone", TEST_TIMEOUT, is_local, |count| *count > 0).await;
    let before = service.web.metric("tollgate_local_decisions_total").await;
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += usize::from(service.decide("alone", "ann").await == Answer::Ok);
    }
    assert_eq!(admitted, 5);
    // Denials by a local share are not cached.
    assert_eq!(service.web.metric("tollgate_local_decisions_total").await, before + 10);

    redis.restart().await;
    let back = Instant::now();
    becomes(
        "the store decides",
        TEST_TIMEOUT,
        || service.decide("user", "ann"),
        |answer| *answer == Answer::Ok,
    )
    .await;
    assert_eq!(service.decide("alone", "ann").await, Answer::Ok, "the whole limit is there again");
    report("local, the store decides again", format!("after {:.1?}", back.elapsed()));
}
