//! A master that sentinels replace.

use std::time::Duration;

use crate::support::faults::{Service, all, measured, recovers_within, values};
use crate::support::redis::sentinels::Sentinels;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_master_that_is_killed_is_followed_by_the_one_that_the_sentinels_name() {
    measured(async || {
        let group = Sentinels::start().await;
        let service = Service::start(&group.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50)), all("lenient", &values(50))]).await;
        load.go_on(500).await;
        let old = group.master().await;
        old.kill();
        group.successor_of(old.address).await;
        let named = load.now();
        load.until_calm(0).await;
        let calls = load.finish();
        crate::support::faults::unaffected("sentinels, on_store_error: allow", &calls.of(1));
        recovers_within(
            "sentinels, master killed",
            &calls.of(0),
            named,
            Duration::from_millis(1_500),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn silent_or_dead_sentinels_do_not_hide_a_new_master() {
    measured(async || {
        let group = Sentinels::start().await;
        let service = Service::start(&group.url(), &[]).await;
        let load = service.load(vec![all("user", &values(50))]).await;
        load.go_on(300).await;
        // Hangs with its old state: the others suffice to agree on another master.
        group.sentinels[0].pause();
        let old = group.master().await;
        old.kill();
        group.successor_of(old.address).await;
        let named = load.now();
        load.until_calm(0).await;
        recovers_within(
            "sentinels, one hangs, master killed",
            &load.finish(),
            named,
            Duration::from_millis(2_000),
        );
    })
    .await;
}
