//! One server that is not there, at the start or later.

use std::time::Duration;

use crate::support::faults::{
    AT_ONCE, Answer, Service, all, is_fast, measured, recovers_within, report, summary_of, values,
};
use crate::support::redis::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_store_error_applies_until_the_store_is_first_available() {
    measured(async || {
        let redis = Redis::start().await;
        redis.kill();
        let service = Service::begin(&redis.url(), &["--replicas", "2"]).await;
        service.answers_by_on_store_error("ann").await;
        assert_eq!(service.readiness().await, 503);

        let load = service
            .load(vec![
                all("user", &values(50)),
                all("lenient", &values(50)),
                all("strict", &values(50)),
            ])
            .await;
        load.go_on(1_000).await;
        redis.restart().await;
        let came = load.now();
        service.becomes_ready().await;
        report("came to be, ready", format!("{:?} after the server answered", load.now() - came));
        load.until_calm(0).await;
        let calls = load.finish();
        let before = summary_of(
            "not there yet",
            &calls.between(Duration::ZERO, came - Duration::from_millis(200)),
        );
        is_fast(before.median < AT_ONCE, || before.to_string());
        recovers_within("came to be", &calls.of(0), came, Duration::from_millis(1_500));

        for _ in 0..10 {
            assert_eq!(
                service.decide("alone", "ann").await,
                Answer::Ok,
                "the whole limit, and not what was left of a half"
            );
        }
        assert_eq!(service.decide("alone", "ann").await, Answer::Over);
        service.ends("connected");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn on_store_error_applies_at_once_until_a_lost_store_is_back() {
    measured(async || {
        let redis = Redis::start().await;
        let service =
            Service::start(&redis.url(), &["--replicas", "2", "--deny-cache-max", "60s"]).await;
        let load = service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
        load.go_on(500).await;
        let gone = load.now();
        redis.kill();
        load.go_on(500).await;
        service.answers_by_on_store_error("ann").await;
        assert_eq!(service.readiness().await, 200, "readiness reports that it was reached once");
        load.go_on(500).await;
        redis.restart().await;
        let back = load.now();
        load.until_calm(0).await;
        let calls = load.finish();
        let away = summary_of(
            "killed, while away",
            &calls.between(gone + Duration::from_millis(100), back - Duration::from_millis(300)),
        );
        is_fast(away.median < AT_ONCE, || away.to_string());
        let lenient = summary_of("killed, on_store_error: allow", &calls.of(1));
        is_fast(lenient.percent_failed() <= crate::support::faults::NOISE, || lenient.to_string());
        recovers_within(
            "killed and started again",
            &calls.of(0),
            back,
            Duration::from_millis(1_500),
        );
    })
    .await;
}
