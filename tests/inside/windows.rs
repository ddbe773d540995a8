//! Several Envoys with the module, of which some are killed, and plain callers, on one limit, of
//! several algorithms.
//! `TOLLGATE_INSIDE_SECONDS` sets the time, of which each window is a second.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{InsideEnvoy, TENANT, policy, policy_by};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Limit of a window of a second: less than what all callers send.
const LIMIT: u64 = 200;
/// Seconds for which they send, and after which an Envoy is killed and replaced.
const SECONDS: u64 = 8;
const KILL_AFTER: u64 = 4;

/// Times at which admitted requests were sent and answered.
type Admitted = Arc<Mutex<Vec<(SystemTime, SystemTime)>>>;

async fn send(web: Web, admitted: Admitted) {
    loop {
        let sent = SystemTime::now();
        if web.get_with("/", &[("x-tenant", b"ann")]).await.status == 200 {
            admitted.lock().push((sent, SystemTime::now()));
        }
    }
}

async fn call(client: Client, admitted: Admitted) {
    loop {
        let sent = SystemTime::now();
        let request = request(vec![descriptor(&[("tenant", "ann")])]);
        if client.decide(request).await.unwrap().overall_code() == Code::Ok {
            admitted.lock().push((sent, SystemTime::now()));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// An Envoy with clients. It is killed when dropped.
struct LoadedInside {
    clients: JoinSet<()>,
    envoy: InsideEnvoy,
}

impl LoadedInside {
    async fn start(service: SocketAddr, admitted: &Admitted) -> Self {
        let envoy = InsideEnvoy::start(service, TENANT).await;
        let mut clients = JoinSet::new();
        for _ in 0..2 {
            clients.spawn(send(envoy.0.edge.afresh(), Arc::clone(admitted)));
        }
        Self { clients, envoy }
    }

    /// Ends the clients, and returns the Envoy.
    async fn stop(mut self) -> InsideEnvoy {
        self.clients.abort_all();
        while self.clients.join_next().await.is_some() {}
        self.envoy
    }
}

/// Returns the number of requests that were certainly admitted within each second of the clock.
fn by_second(admitted: &Admitted) -> BTreeMap<u64, u64> {
    let second = |time: &SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut seconds = BTreeMap::new();
    for (sent, answered) in admitted.lock().iter() {
        if second(sent) == second(answered) {
            *seconds.entry(second(sent)).or_default() += 1;
        }
    }
    seconds
}

/// Returns the most requests that were certainly admitted within a second, whenever it began.
fn most_in_any_second(admitted: &Admitted) -> u64 {
    let mut admitted = admitted.lock().clone();
    admitted.sort_unstable();
    let starts = admitted.iter().enumerate();
    let counts = starts.map(|(index, (start, _))| {
        let end = *start + Duration::from_secs(1);
        let later = admitted[index..].iter().take_while(|(sent, _)| *sent <= end);
        later.filter(|(_, answered)| *answered <= end).count() as u64
    });
    counts.max().unwrap_or_default()
}

/// Sends more than the limit by Envoys, of which one is killed every few seconds, and by a plain
/// caller. Returns what was admitted.
async fn admitted_under(policies: Policies) -> Admitted {
    let service = Tollgate::serve(policies.path());
    let admitted = Admitted::default();
    let mut first = LoadedInside::start(service.grpc, &admitted).await;
    let second = LoadedInside::start(service.grpc, &admitted).await;
    let mut callers = JoinSet::new();
    callers.spawn(call(Client::connect(service.grpc).await, Arc::clone(&admitted)));
    let seconds = std::env::var("TOLLGATE_INSIDE_SECONDS").map(|text| text.parse().unwrap());
    let seconds: u64 = seconds.unwrap_or(SECONDS);
    let mut kills = 0;
    for _ in (KILL_AFTER..seconds).step_by(KILL_AFTER.try_into().unwrap()) {
        sleep(Duration::from_secs(KILL_AFTER)).await;
        // It dies with its blocks, whose hits count until the window ends.
        drop(first);
        kills += 1;
        first = LoadedInside::start(service.grpc, &admitted).await;
    }
    sleep(Duration::from_secs(KILL_AFTER)).await;
    callers.abort_all();
    let envoys = [first.stop().await, second.stop().await];
    let mut stats = Vec::new();
    for envoy in &envoys {
        stats.push((envoy.stat("decided").await, envoy.stat("passed_on").await));
    }
    // Little is lent near a limit.
    assert!(stats.iter().any(|(decided, _)| *decided > 0), "{stats:?}");
    println!("{kills} kills, decided and passed on: {stats:?}");
    admitted
}

#[tokio::test]
async fn two_envoys_and_plain_callers_never_exceed_the_limit_of_a_window() {
    let limit = u32::try_from(LIMIT).unwrap();
    let admitted = admitted_under(policy(limit, "second", "300ms")).await;
    let windows = by_second(&admitted);
    assert!(windows.values().all(|hits| *hits <= LIMIT), "{windows:?}");
    let used = windows.values().filter(|hits| **hits >= LIMIT / 2).count();
    assert!(used >= 2, "{windows:?}");
    let most = windows.values().max();
    println!("{} windows, at most {most:?}", windows.len());
}

/// Checks the bound of a rolling limit: that of the algorithm, and the hits in blocks that Envoys
/// held when the second began, at most the limit.
async fn check_any_second(algorithm: &str, without_blocks: u64) {
    let admitted = admitted_under(policy_by(algorithm, LIMIT, "second", "50ms")).await;
    let most = most_in_any_second(&admitted);
    let seconds = by_second(&admitted).len();
    println!(
        "{algorithm}: {seconds} seconds, at most {most} in any, {without_blocks} without blocks"
    );
    assert!(most <= without_blocks + LIMIT, "{algorithm}: {most}");
    assert!(most >= LIMIT / 2, "{algorithm}: {most}");
}

#[tokio::test]
async fn a_sliding_window_exceeds_its_limit_by_no_more_than_the_blocks_in_hand() {
    check_any_second("sliding_window", LIMIT).await;
}

#[tokio::test]
async fn gcra_exceeds_its_burst_and_rate_by_no_more_than_the_blocks_in_hand() {
    // A burst of the limit, and what comes back in a second.
    check_any_second("gcra", 2 * LIMIT).await;
}
