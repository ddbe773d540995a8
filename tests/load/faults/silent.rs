//! One server that is there and does not answer.

use std::time::Duration;

use crate::support::faults::{
    AT_ONCE, RATE, Service, TIMEOUT, all, is_fast, measured, recovers_within, report, summary_of,
    unaffected, values,
};
use crate::support::load::{Load, Outcome, Traffic};
use crate::support::redis::Redis;
use crate::support::redis::wire::Wire;

/// Time after which the service knows that a server is silent: the first calls wait for it.
const KNOWN_AFTER: Duration = Duration::from_millis(1_500);
const _: () = assert!(KNOWN_AFTER.as_millis() > TIMEOUT.as_millis());

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hanging_store_times_out_and_is_used_again_when_it_resumes() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        for (what, pause_ms) in [("hung for 3 s", 3_000), ("hung for 6 s", 6_000)] {
            let load =
                service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
            load.go_on(500).await;
            let hung = load.now();
            redis.pause();
            load.go_on(pause_ms).await;
            let back = load.now();
            redis.resume();
            load.until_calm(0).await;
            let calls = load.finish();
            let open = summary_of(
                &format!("{what}, while it hung"),
                &calls.between(hung + KNOWN_AFTER, back - Duration::from_millis(50)),
            );
            is_fast(open.median < AT_ONCE, || open.to_string());
            unaffected(&format!("{what}, on_store_error: allow"), &calls.of(1));
            recovers_within(what, &calls.of(0), back, Duration::from_millis(2_000));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_network_times_out_and_is_used_again_when_it_heals() {
    measured(async || {
        let redis = Redis::start().await;
        let wire = Wire::to(redis.address).await;
        let service = Service::start(&format!("redis://{}", wire.address), &[]).await;
        let load = service.load(vec![all("user", &values(50))]).await;
        load.go_on(500).await;
        let hung = load.now();
        wire.silence();
        load.go_on(3_000).await;
        let back = load.now();
        wire.heal();
        load.until_calm(0).await;
        let calls = load.finish();
        let open = summary_of(
            "a silent wire, while it was",
            &calls.between(hung + KNOWN_AFTER, back - Duration::from_millis(50)),
        );
        is_fast(open.median < AT_ONCE, || open.to_string());
        recovers_within("a silent wire", &calls, back, Duration::from_millis(2_000));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_connection_is_replaced_and_does_not_delay_calls_on_the_next() {
    measured(async || {
        let redis = Redis::start().await;
        let wire = Wire::to(redis.address).await;
        let service = Service::start(&format!("redis://{}", wire.address), &[]).await;
        // Some calls wait so long that their batches never time out before the connection is given
        // up.
        let patient = Traffic {
            rate: RATE / 4,
            groups: vec![all("user", &values(50))],
            timeout: Some(Duration::from_secs(15)),
        };
        let patient = Load::with_another(service.tollgate.grpc, patient);
        let load = service.load(vec![all("user", &values(50))]).await;
        load.go_on(500).await;
        let silenced = load.now();
        wire.silence_for_good();
        load.go_on(2_000).await;
        load.until_calm(0).await;
        let calls = load.finish();
        recovers_within(
            "a connection that stays silent",
            &calls,
            silenced,
            Duration::from_millis(7_000),
        );
        patient.finish();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_with_a_deadline_are_answered_within_it() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        let timeout = Some(Duration::from_millis(200));
        // So few that each occasionally finds out for itself that the store hangs.
        for rate in [20, RATE] {
            let groups = vec![all("user", &values(50)), all("lenient", &values(50))];
            let load = Load::start(service.tollgate.grpc, Traffic { rate, groups, timeout }).await;
            load.go_on(300).await;
            let hung = load.now();
            redis.pause();
            let back = load.go_on(3_000).await;
            redis.resume();
            load.go_on(1_200).await;
            let calls = load.finish().between(hung, back);
            let what = format!("callers that wait 200 ms, {rate} a second, while it hung");
            let summary = summary_of(&what, &calls);
            let unanswered = calls.count(Outcome::Other);
            report(&what, format!("{unanswered} had no answer in time"));
            is_fast(summary.longest < Duration::from_millis(700), || summary.to_string());
            assert!(unanswered * 3 <= summary.calls, "{unanswered} of {summary}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_with_short_deadlines_do_not_affect_others() {
    measured(async || {
        let redis = Redis::start().await;
        let service = Service::start(&redis.url(), &[]).await;
        let groups = vec![all("user", &values(50))];
        let hasty =
            Traffic { rate: 200, groups: groups.clone(), timeout: Some(Duration::from_micros(1)) };
        let load = service.load(groups).await;
        let hasty = Load::with_another(service.tollgate.grpc, hasty);
        load.go_on(2_000).await;
        unaffected("with callers that wait 1 us", &load.finish());
        hasty.finish();
    })
    .await;
}
