//! One server that is there and does not answer.

use std::time::Duration;

use crate::support::faults::{Answer, Service, values};
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn charges_of_callers_that_disconnected_early_are_counted() {
    let redis = Redis::start().await;
    let service = Service::begin_within("60s", &redis.url(), &[]).await;
    service.becomes_ready().await;
    becomes(
        "it decides",
        TEST_TIMEOUT,
        || service.decide("user", "a"),
        |answer| *answer == Answer::Ok,
    )
    .await;
    let unknown = || service.web.metric("tollgate_unknown_charges_total");
    assert_eq!(unknown().await, 0);
    redis.pause();
    // By then, the command has been sent.
    let gone = tokio::time::timeout(Duration::from_secs(2), service.decide("user", "a")).await;
    assert!(gone.is_err(), "{gone:?}");
    becomes("it is counted", TEST_TIMEOUT, unknown, |unknown| *unknown == 1).await;
    redis.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_wait_for_long_are_answered_when_the_connection_is_given_up() {
    let redis = Redis::start().await;
    let service = Service::begin_within("60s", &redis.url(), &[]).await.started().await;
    redis.pause();
    let users = values(30);
    let failing = users.iter().map(|value| service.decide("user", value));
    let lenient = users.iter().map(|value| service.decide("lenient", value));
    let answers = futures_util::future::join(
        futures_util::future::join_all(failing),
        futures_util::future::join_all(lenient),
    );
    // Before the timeout of the store.
    let answers = tokio::time::timeout(2 * TEST_TIMEOUT, answers).await;
    let (failed, allowed) = answers.expect("the connection is given up");
    assert!(failed.iter().all(|answer| *answer == Answer::Unavailable), "{failed:?}");
    assert!(allowed.iter().all(|answer| *answer == Answer::Ok), "{allowed:?}");
    redis.resume();
}
