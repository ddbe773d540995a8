//! Several real Envoys on one limit: no window admits more than it, even if processes die.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::support::fleet::{Answered, EnvoyLoad, LoadedEnvoy, by_window, next_window, policy};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::tollgate::{Tollgate, lasting_address};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Hits per window.
const LIMIT: u64 = 300;
/// Requests of the three Envoys per second, ten to one: they use up the limit in 7 s.
const DEMAND: [u32; 3] = [30, 12, 3];
/// Time into a window after which the test ends.
const LAST_WINDOW: Duration = Duration::from_secs(12);

async fn start(service: SocketAddr, per_second: u32, answered: &Answered) -> LoadedEnvoy {
    let every = Duration::from_secs(1) / per_second;
    LoadedEnvoy::start(service, EnvoyLoad { every, buckets: 1 }, answered).await
}

/// Returns the requests that were certainly admitted within each window.
fn windows(answered: &Answered) -> Vec<u64> {
    by_window(answered).into_values().map(|requests| requests.admitted).collect()
}

#[tokio::test]
async fn several_envoys_never_admit_more_than_the_limit_in_memory() {
    let service = Tollgate::serve(Policies::of(&policy(LIMIT)).path());
    let answered = Answered::default();
    let begun = Instant::now();
    let mut envoys = Vec::new();
    for per_second in DEMAND {
        envoys.push(start(service.grpc, per_second, &answered).await);
    }
    let web = Web::new(service.http);
    let streams = async || web.metric("tollgate_rlqs_streams").await;
    becomes("three streams", TEST_TIMEOUT, streams, |streams| *streams == 3).await;
    // One dies with its hits, and another one takes its place.
    sleep(Duration::from_secs(4)).await;
    drop(envoys.remove(0));
    becomes("two streams", TEST_TIMEOUT, streams, |streams| *streams == 2).await;
    envoys.push(start(service.grpc, DEMAND[0], &answered).await);
    next_window().await;
    sleep(LAST_WINDOW).await;
    let windows = windows(&answered);
    assert!(windows.iter().all(|hits| *hits <= LIMIT), "{windows:?} in {:?}", begun.elapsed());
    assert!(windows.last() >= Some(&(LIMIT / 2)), "{windows:?}");
    assert_eq!(web.metric("tollgate_rlqs_overrun_hits_total").await, 0);
}

#[tokio::test]
async fn several_envoys_never_admit_more_than_the_limit_on_redis_while_a_service_dies() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(LIMIT));
    let url = redis.url();
    let flags = ["--policy", policies.path().to_str().unwrap(), "--store", &url];
    let port = lasting_address();
    let service = Tollgate::serve_by(&[&flags[..], &["--grpc-listen", &port]].concat());
    let other = Tollgate::serve_by(&flags);
    let answered = Answered::default();
    let mut envoys = Vec::new();
    for (number, per_second) in DEMAND.into_iter().enumerate() {
        // Two replicas, which do not know of each other's proxies.
        let address = if number == 1 { other.grpc } else { service.grpc };
        envoys.push(start(address, per_second, &answered).await);
    }
    sleep(Duration::from_secs(4)).await;
    let mut service = service;
    service.process.signal(rustix::process::Signal::KILL);
    service.process.wait_for_end();
    drop(service);
    sleep(Duration::from_secs(1)).await;
    let again = Tollgate::serve_by(&[&flags[..], &["--grpc-listen", &port]].concat());
    let web = Web::new(again.http);
    let streams = async || web.metric("tollgate_rlqs_streams").await;
    becomes("its proxies have reconnected", TEST_TIMEOUT, streams, |streams| *streams == 2).await;
    next_window().await;
    sleep(LAST_WINDOW).await;
    let windows = windows(&answered);
    assert!(windows.iter().all(|hits| *hits <= LIMIT), "{windows:?}");
    assert!(windows.last() >= Some(&(LIMIT / 2)), "{windows:?}");
}
