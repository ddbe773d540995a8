//! Several real Envoys on one limit: no window admits more than it, even if processes die.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::support::envoy::Envoy;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Hits per window, and the length of a window in seconds.
const LIMIT: u64 = 300;
const PERIOD: u64 = 30;
/// Requests of the three Envoys per second, ten to one: they use up the limit in 7 s.
const DEMAND: [u64; 3] = [30, 12, 3];
/// Time into a window after which the test ends.
const LAST_WINDOW: Duration = Duration::from_secs(12);

fn policy() -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: bucket\n    rate_limit: {{ unit: {PERIOD}s, requests_per_unit: {LIMIT}, lease: {{ size: 10, ttl: 1s, rlqs: {{ ttl: 10s, size: 60% }} }} }}\n"
    )
}

/// Admitted requests: when they were sent, and when they were answered.
type Admitted = Arc<Mutex<Vec<(SystemTime, SystemTime)>>>;

/// An Envoy under load.
struct LoadedEnvoy {
    load: JoinHandle<()>,
    _envoy: Envoy,
}

impl LoadedEnvoy {
    async fn start(service: SocketAddr, per_second: u64, admitted: &Admitted) -> Self {
        let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
        let port = service.port().to_string();
        let envoy = Envoy::start_by(&template, &[("TOLLGATE", port.as_str())]).await;
        let load = tokio::spawn(load(envoy.edge.clone(), per_second, Arc::clone(admitted)));
        Self { load, _envoy: envoy }
    }
}

impl Drop for LoadedEnvoy {
    fn drop(&mut self) {
        self.load.abort();
    }
}

async fn load(web: Web, per_second: u64, admitted: Admitted) {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(per_second).unwrap());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let sent = SystemTime::now();
        if web.get_with("/", &[("x-bucket", b"a")]).await.status == 200 {
            admitted.lock().push((sent, SystemTime::now()));
        }
    }
}

fn millis(time: SystemTime) -> u64 {
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    time.as_millis().try_into().unwrap()
}

/// Returns the requests that were certainly admitted within each window.
fn by_window(admitted: &Admitted) -> Vec<u64> {
    let mut windows = std::collections::BTreeMap::<u64, u64>::new();
    let window = |time| millis(time) / (PERIOD * 1_000);
    for (sent, answered) in admitted.lock().iter() {
        if window(*sent) == window(*answered) {
            *windows.entry(window(*sent)).or_default() += 1;
        }
    }
    windows.into_values().collect()
}

/// Waits until a window has begun.
async fn next_window() {
    let period = PERIOD * 1_000;
    let rest = period - millis(SystemTime::now()) % period;
    sleep(Duration::from_millis(rest)).await;
}

#[tokio::test]
async fn several_envoys_never_admit_more_than_the_limit_in_memory() {
    let service = Tollgate::serve(Policies::of(&policy()).path());
    let admitted = Admitted::default();
    let begun = Instant::now();
    let mut envoys = Vec::new();
    for per_second in DEMAND {
        envoys.push(LoadedEnvoy::start(service.grpc, per_second, &admitted).await);
    }
    let web = Web::new(service.http);
    let streams = async || web.metric("tollgate_rlqs_streams").await;
    becomes("three streams", TEST_TIMEOUT, streams, |streams| *streams == 3).await;
    // One dies with its hits, and another one takes its place.
    sleep(Duration::from_secs(4)).await;
    drop(envoys.remove(0));
    becomes("two streams", TEST_TIMEOUT, streams, |streams| *streams == 2).await;
    envoys.push(LoadedEnvoy::start(service.grpc, DEMAND[0], &admitted).await);
    next_window().await;
    sleep(LAST_WINDOW).await;
    let windows = by_window(&admitted);
    assert!(windows.iter().all(|hits| *hits <= LIMIT), "{windows:?} in {:?}", begun.elapsed());
    assert!(windows.last() >= Some(&(LIMIT / 2)), "{windows:?}");
    assert_eq!(web.metric("tollgate_rlqs_overrun_hits_total").await, 0);
}

#[tokio::test]
async fn several_envoys_never_admit_more_than_the_limit_on_redis_while_a_service_dies() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy());
    let url = redis.url();
    let flags = ["--policy", policies.path().to_str().unwrap(), "--store", &url];
    let service = Tollgate::serve_by(&flags);
    let other = Tollgate::serve_by(&flags);
    let port = service.grpc.to_string();
    let admitted = Admitted::default();
    let mut envoys = Vec::new();
    for (number, per_second) in DEMAND.into_iter().enumerate() {
        // Two replicas, which do not know of each other's proxies.
        let address = if number == 1 { other.grpc } else { service.grpc };
        envoys.push(LoadedEnvoy::start(address, per_second, &admitted).await);
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
    let windows = by_window(&admitted);
    assert!(windows.iter().all(|hits| *hits <= LIMIT), "{windows:?}");
    assert!(windows.last() >= Some(&(LIMIT / 2)), "{windows:?}");
}
