//! Envoys under load, and their requests within a window.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::envoy::Envoy;
use crate::root;
use crate::web::Web;

/// Length of a window in seconds.
pub const PERIOD: u64 = 30;
/// Least time between two requests of a client, so that it seldom waits for the one before.
const PER_CLIENT: Duration = Duration::from_millis(20);

/// Returns a policy with this limit for each bucket and window.
pub fn policy(limit: u64) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: bucket\n    rate_limit: {{ unit: {PERIOD}s, requests_per_unit: {limit}, lease: {{ size: 10, ttl: 1s, rlqs: {{ ttl: 10s, size: 60% }} }} }}\n"
    )
}

/// Requests that were answered.
pub type Answered = Arc<Mutex<Vec<AnsweredRequest>>>;

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest {
    bucket: usize,
    sent: SystemTime,
    answered: SystemTime,
    is_admitted: bool,
}

/// The time between two requests of an Envoy, which are spread over so many buckets.
#[derive(Clone, Copy, Debug)]
pub struct EnvoyLoad {
    pub every: Duration,
    pub buckets: usize,
}

/// An Envoy under load.
pub struct LoadedEnvoy {
    clients: JoinSet<()>,
    envoy: Envoy,
}

impl LoadedEnvoy {
    pub async fn start(service: SocketAddr, load: EnvoyLoad, answered: &Answered) -> Self {
        let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
        let port = service.port().to_string();
        let envoy = Envoy::start_by(&template, &[("TOLLGATE", port.as_str())]).await;
        let mut loaded = Self { clients: JoinSet::new(), envoy };
        loaded.load(load, answered);
        loaded
    }

    /// Replaces its clients.
    pub fn load(&mut self, load: EnvoyLoad, answered: &Answered) {
        let count = PER_CLIENT.as_micros().div_ceil(load.every.as_micros());
        let count = u32::try_from(count).unwrap();
        let apart = load.buckets / usize::try_from(count).unwrap();
        self.clients = JoinSet::new();
        for number in 0..count {
            let first = apart * usize::try_from(number).unwrap();
            let buckets = (0..load.buckets).cycle().skip(first);
            let time = load.every * count;
            let web = self.envoy.edge.afresh();
            self.clients.spawn(send(web, time, buckets, Arc::clone(answered)));
        }
    }
}

/// Sends a request to the next bucket in each interval.
async fn send(web: Web, time: Duration, buckets: impl Iterator<Item = usize>, requests: Answered) {
    let mut ticks = interval(time);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for bucket in buckets {
        ticks.tick().await;
        let sent = SystemTime::now();
        let name = bucket.to_string();
        let status = web.get_with("/", &[("x-bucket", name.as_bytes())]).await.status;
        let is_admitted = status == 200;
        let answered = SystemTime::now();
        requests.lock().push(AnsweredRequest { bucket, sent, answered, is_admitted });
    }
}

fn millis(time: SystemTime) -> u64 {
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    time.as_millis().try_into().unwrap()
}

/// Returns the number of the window of a time.
pub fn window(time: SystemTime) -> u64 {
    millis(time) / (PERIOD * 1_000)
}

/// Requests of a bucket within a window: those that were certainly sent and answered in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowRequests {
    pub all: u64,
    pub admitted: u64,
}

/// Returns the requests of each bucket and window.
pub fn by_window(answered: &Answered) -> BTreeMap<(usize, u64), WindowRequests> {
    let mut windows = BTreeMap::<_, WindowRequests>::new();
    for request in answered.lock().iter() {
        if window(request.sent) == window(request.answered) {
            let requests = windows.entry((request.bucket, window(request.sent))).or_default();
            requests.all += 1;
            requests.admitted += u64::from(request.is_admitted);
        }
    }
    windows
}

/// Waits until a window has begun.
pub async fn next_window() {
    let period = PERIOD * 1_000;
    let rest = period - millis(SystemTime::now()) % period;
    sleep(Duration::from_millis(rest)).await;
}

/// Waits until this time of the current window.
pub async fn in_window(seconds: u64) {
    let passed = millis(SystemTime::now()) % (PERIOD * 1_000);
    sleep(Duration::from_millis((seconds * 1_000).saturating_sub(passed))).await;
}
