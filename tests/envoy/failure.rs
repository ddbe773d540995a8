//! Requests during an outage and a rolling restart of tollgate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Edge;
use crate::support::envoy::Envoy;
use crate::support::root;
use crate::support::tollgate::{Tollgate, lasting_address};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn without_tollgate_every_request_passes_if_envoy_fails_open() {
    let mut edge = Edge::start_with("false").await;
    edge.use_up("/user", "ann").await;
    edge.tollgate.terminate();
    assert_eq!(edge.envoy.edge.status("/user", "ann").await, 200);
    assert_eq!(edge.envoy.counter("cluster.upstream.ratelimit.failure_mode_allowed").await, 1);
}

#[tokio::test]
async fn without_tollgate_no_request_passes_if_envoy_fails_closed() {
    let mut edge = Edge::start_with("true").await;
    edge.tollgate.terminate();
    assert_eq!(edge.envoy.edge.status("/user", "ann").await, 500);
}

#[tokio::test]
async fn a_tollgate_that_comes_back_decides_at_once() {
    let mut edge = Edge::start_with("true").await;
    edge.tollgate.terminate();
    assert_eq!(edge.envoy.edge.status("/user", "ann").await, 500);
    edge.tollgate = again(&edge.tollgate);
    assert_eq!(edge.envoy.edge.status("/user", "ann").await, 200);
}

// Waiting for a process to end blocks a thread, which must not be that of the traffic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_request() {
    let mut pair = [(); 2].map(|()| serve_at(&lasting_address()));
    let ports = pair.each_ref().map(|tollgate| tollgate.grpc.port().to_string());
    let envoy =
        Envoy::start("pair.yaml", &[("TOLLGATE", &ports[0]), ("TOLLGATE_2", &ports[1])]).await;
    let traffic = Traffic::start(&envoy.edge, 4);
    traffic.flows("with both").await;
    for tollgate in &mut pair {
        tollgate.process.signal(Signal::TERM);
        traffic.flows("while one drains").await;
        assert_eq!(tollgate.process.wait_for_end().code(), Some(0));
        traffic.flows("while one is away").await;
        *tollgate = again(tollgate);
        becomes(
            "the new one decides",
            TEST_TIMEOUT,
            || decisions(tollgate),
            |decided| *decided > 0,
        )
        .await;
    }
    traffic.flows("with both new ones").await;
    let (answers, failures) = traffic.stop().await;
    assert_eq!(failures, Vec::<u16>::new(), "of {answers} requests");
    assert_eq!(envoy.counter("cluster.upstream.ratelimit.error").await, 0, "of {answers} requests");
}

/// Long enough for several requests.
const DRAIN: [&str; 2] = ["--drain-delay", "300ms"];

/// Starts a new process at the address of the old one.
fn again(old: &Tollgate) -> Tollgate {
    serve_at(&old.grpc.to_string())
}

fn serve_at(address: &str) -> Tollgate {
    Tollgate::serve_with(&policy(), &["--grpc-listen", address, DRAIN[0], DRAIN[1]])
}

fn policy() -> std::path::PathBuf {
    root().join("tests/envoy/policy.yaml")
}

/// Returns the number of descriptors that a tollgate admitted.
async fn decisions(tollgate: &Tollgate) -> u64 {
    let metrics = Web::new(tollgate.http).get("/metrics").await.body;
    let allowed = metrics.lines().filter(|line| {
        line.starts_with("tollgate_decisions_total") && line.contains("\"allowed\"")
    });
    allowed.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Clients that send one request after another.
pub(super) struct Traffic {
    answers: Arc<AtomicUsize>,
    stop: CancellationToken,
    clients: Vec<JoinHandle<Vec<u16>>>,
}

impl Traffic {
    /// Starts clients, each with a connection of its own.
    pub(super) fn start(edge: &Web, clients: usize) -> Self {
        let answers = Arc::<AtomicUsize>::default();
        let stop = CancellationToken::new();
        let client =
            |_| tokio::spawn(send_until(edge.afresh(), Arc::clone(&answers), stop.clone()));
        let clients = (0..clients).map(client).collect();
        Self { answers, stop, clients }
    }

    /// Waits for more responses.
    pub(super) async fn flows(&self, when: &str) {
        let enough = self.answers.load(Ordering::Relaxed) + 200;
        let answers = || async { self.answers.load(Ordering::Relaxed) };
        becomes(&format!("traffic flows {when}"), TEST_TIMEOUT, answers, |answers| {
            *answers >= enough
        })
        .await;
    }

    /// Stops the traffic. Returns the number of responses, and the statuses other than 200.
    pub(super) async fn stop(self) -> (usize, Vec<u16>) {
        self.stop.cancel();
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(client.await.unwrap());
        }
        (self.answers.load(Ordering::Relaxed), failures)
    }
}

async fn send_until(edge: Web, answers: Arc<AtomicUsize>, stop: CancellationToken) -> Vec<u16> {
    let mut failures = Vec::new();
    while !stop.is_cancelled() {
        let status = edge.get("/load").await.status;
        failures.extend((status != 200).then_some(status));
        answers.fetch_add(1, Ordering::Relaxed);
        // Steady, at a rate that a machine with other tests can sustain.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    failures
}
