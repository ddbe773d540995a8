//! The same Envoys with a server that gives each of them the whole limit, as those without loans
//! do.
//!
//! By default, two Envoys for half a minute. With `TOLLGATE_RLQS_WINDOWS`, the eight of the long
//! run for so many windows, with its `TOLLGATE_RLQS_COUNTERS` and `TOLLGATE_RLQS_LIMIT`:
//!
//! ```text
//! TOLLGATE_RLQS_WINDOWS=4 cargo test --locked --test long long_run::whole_limit -- --nocapture
//! ```

use std::time::Duration;

use super::{CounterLoad, DEMAND, setting};
use crate::support::fleet::{Answered, EnvoyLoad, LoadedEnvoy, PERIOD, by_window, next_window};
use crate::support::quotas::{QuotaServer, whole_limit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gives_each_envoy_the_whole_limit_admits_it_more_than_once() {
    let windows = setting("WINDOWS").map(|windows| windows.parse().unwrap());
    let (load, envoys) = match windows {
        Some(_) => (CounterLoad::of_settings(), DEMAND.len()),
        None => (CounterLoad { counters: 1, limit: 60 }, 2),
    };
    let of_envoy = |number| match windows {
        Some(_) => load.of_envoy(number, 0),
        None => EnvoyLoad { every: Duration::from_millis(200), buckets: 1 },
    };
    let period = i64::try_from(PERIOD).unwrap();
    let server = QuotaServer::that_assigns(period, whole_limit(load.limit, period)).await;
    let answered = Answered::default();
    let mut loaded = Vec::new();
    for number in 0..envoys {
        let envoy = LoadedEnvoy::start(server.address, of_envoy(number), &answered).await;
        loaded.push(envoy);
    }
    for _ in 0..=windows.unwrap_or(1) {
        next_window().await;
    }
    drop(loaded);
    let limit = u64::from(load.limit);
    let all = by_window(&answered).into_values();
    let all: Vec<u64> = all.map(|requests| requests.admitted).collect();
    let over = all.iter().filter(|hits| **hits > limit).count();
    let most = all.iter().max().unwrap() * 100 / limit;
    let mean = all.iter().sum::<u64>() * 100 / limit / u64::try_from(all.len()).unwrap();
    eprintln!("{over} of {} windows over, {mean} % of the limit, at most {most} %", all.len());
    assert!(over > 0, "{all:?}");
}
