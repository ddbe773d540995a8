//! Several Envoys with the module, and plain callers, on one limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{InsideEnvoy, TENANT, policy};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Limit of a window of a second: less than what all callers send.
const LIMIT: u64 = 300;
/// Time for which they send.
const FOR: Duration = Duration::from_secs(8);

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

/// Returns the number of requests that were certainly admitted within each window.
fn by_window(admitted: &Admitted) -> BTreeMap<u64, u64> {
    let window = |time: &SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut windows = BTreeMap::new();
    for (sent, answered) in admitted.lock().iter() {
        if window(sent) == window(answered) {
            *windows.entry(window(sent)).or_default() += 1;
        }
    }
    windows
}

#[tokio::test]
async fn two_envoys_and_plain_callers_never_exceed_the_limit_of_a_window() {
    let policies = policy(u32::try_from(LIMIT).unwrap(), "second", "300ms");
    let service = Tollgate::serve(policies.path());
    let envoys = [
        InsideEnvoy::start(service.grpc, TENANT).await,
        InsideEnvoy::start(service.grpc, TENANT).await,
    ];
    let admitted = Admitted::default();
    let mut callers = JoinSet::new();
    for envoy in &envoys {
        for _ in 0..2 {
            callers.spawn(send(envoy.0.edge.afresh(), Arc::clone(&admitted)));
        }
    }
    callers.spawn(call(Client::connect(service.grpc).await, Arc::clone(&admitted)));
    sleep(FOR).await;
    callers.abort_all();
    while callers.join_next().await.is_some() {}
    let windows = by_window(&admitted);
    assert!(windows.values().all(|hits| *hits <= LIMIT), "{windows:?}");
    let used = windows.values().filter(|hits| **hits >= LIMIT / 2).count();
    assert!(used >= 4, "{windows:?}");
    let mut stats = Vec::new();
    for envoy in &envoys {
        stats.push((envoy.stat("decided").await, envoy.stat("passed_on").await));
        assert!(envoy.stat("decided").await > 100, "{stats:?}, {windows:?}");
    }
    println!("{windows:?}, {stats:?}");
}
