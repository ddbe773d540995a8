//! Attacks over HTTP: `/livez` is answered as fast as without them, and connections are closed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::raise_open_files;
use crate::support::load::no_other_load;
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of times that a probe on a new connection may take in the mean of what one of a control
/// takes at the same time: the same service without an attack.
const MAX_RATIO: u32 = 10;
/// Probes of a round.
const PROBES: u32 = 20;
/// Number of rounds, of which one must succeed: load of other processes passes, the blocking of a
/// service by other clients does not.
const ROUNDS: usize = 5;
/// Number of silent connections, and of those that are kept here; the service, which allows 512,
/// has closed the others.
const SILENT: usize = 4_200;
const KEPT: usize = 700;
/// Number of connections of a burst: fewer than `net.core.somaxconn` of any Linux since 5.4.
const BURST: usize = 3_000;

/// Asserts that probes are answered in time.
async fn are_answered(service: &Tollgate, attack: &str) {
    let control = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let probe = async |service: &Tollgate| {
        let begun = Instant::now();
        assert_eq!(Web::new(service.http).get("/livez").await.status, 200, "{attack}");
        begun.elapsed()
    };
    let mut means = Vec::new();
    for _ in 0..ROUNDS {
        let mut attacked = Duration::ZERO;
        let mut of_control = Duration::ZERO;
        for _ in 0..PROBES {
            attacked += probe(service).await;
            of_control += probe(&control).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        means.push((attacked / PROBES, of_control / PROBES));
        if attacked < of_control * MAX_RATIO {
            println!("{attack}: a probe, and one of the control, took {means:?}");
            return;
        }
    }
    panic!("{attack}: a probe of each round, and one of the control, took {means:?}");
}

/// Repeats a request on a connection of its own, and reads the answers.
async fn send_on(address: SocketAddr, request: Vec<u8>) {
    let mut read = vec![0; 64 << 10];
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        while stream.write_all(&request).await.is_ok()
            && stream.read(&mut read).await.is_ok_and(|count| count > 0)
        {}
    }
}

/// Starts concurrent clients that repeat a request until dropped.
fn senders(count: usize, address: SocketAddr, request: &[u8]) -> JoinSet<()> {
    (0..count).map(|_| send_on(address, request.to_vec())).collect()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// Returns a policy with this many rules.
fn rules(count: usize, begin: &str) -> String {
    let rule = |number| {
        format!("  - {{key: {begin}{number}, rate_limit: {{unit: day, requests_per_unit: 5}}}}\n")
    };
    format!("domain: test\ndescriptors:\n{}", (0..count).map(rule).collect::<String>())
}

/// Returns the number of connections that the kernel queues for a listener at most.
fn kernel_queue() -> usize {
    let bound = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    bound.trim().parse().unwrap()
}

/// Returns the number of connections that met a full queue, of all listeners of this machine.
fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let [names, values] = [(); 2].map(|()| lines.next().unwrap().split(' '));
    let mut counts = names.zip(values);
    counts.find(|(name, _)| *name == "ListenOverflows").unwrap().1.parse().unwrap()
}

/// A client whose connection meets a full queue tries again a second later.
#[test]
fn a_burst_of_connections_waits_in_the_queues_of_a_service_that_is_stopped() {
    raise_open_files();
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    service.process.stop();
    let before = overflows();
    for address in [service.grpc, service.http] {
        let connect = |number| {
            std::net::TcpStream::connect_timeout(&address, TEST_TIMEOUT)
                .unwrap_or_else(|error| panic!("connection {number} of {BURST}: {error}"))
        };
        let mut connections = Vec::new();
        for number in 0..BURST.min(kernel_queue()) {
            connections.push(connect(number));
        }
    }
    assert_eq!(overflows(), before);
    service.process.signal(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_give_way_to_probes() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let _alone = no_other_load().await;
    let mut kept = VecDeque::new();
    for number in 0..SILENT {
        // Connections are accepted in order: this one after all before it, which stay open here
        // until then.
        if number % 100 == 0 {
            assert_eq!(Web::new(service.http).get("/livez").await.status, 200);
        }
        kept.push_back(TcpStream::connect(service.http).await.unwrap());
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
    // Once all are open, no probe would wait, however many there are: they are counted.
    let web = Web::new(service.http);
    assert!(
        web.metric(r#"tollgate_http_connections_cut_total{port="http",kind="idle"}"#).await
            >= 3_000
    );
    assert!(web.metric(r#"tollgate_http_connections{port="http"}"#).await <= 512);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_are_disconnected() {
    let policies = Policies::of(&rules(2_000, "a"));
    let service = Tollgate::serve(policies.path());
    let _alone = no_other_load().await;
    let mut held = Vec::new();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(service.http).await.unwrap();
        stream.write_all(&get("/metrics").repeat(20)).await.unwrap();
        held.push(stream);
    }
    let web = Web::new(service.http);
    let cut =
        || web.metric(r#"tollgate_http_connections_cut_total{port="http",kind="unread_answers"}"#);
    becomes("they are closed", 3 * TEST_TIMEOUT, cut, |cut| *cut > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_of_json_do_not_delay_probes() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let _alone = no_other_load().await;
    let empty = r#"{"entries": [{"key": "a", "value": "b"}]},"#.repeat(1_500);
    let body = format!(r#"{{"domain": "test", "descriptors": [{}]}}"#, empty.trim_end_matches(','));
    let head =
        format!("POST /json HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n", body.len());
    assert!(body.len() < 64 << 10);
    let _clients = senders(32, service.http, &[head.as_bytes(), body.as_bytes()].concat());
    are_answered(&service, "large bodies of /json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_metrics_and_pages_do_not_delay_probes() {
    let policies = Policies::of(&rules(2_000, "a"));
    let service = Tollgate::serve(policies.path());
    let _alone = no_other_load().await;
    let _readers = senders(32, service.http, &get("/metrics"));
    let _stats = senders(8, service.admin, &get("/stats"));
    let _limits = senders(8, service.admin, &get("/rlconfig"));
    are_answered(&service, "readers of metrics and pages").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_candidate_policies_do_not_delay_probes() {
    let policies = Policies::of(&daily("user", 2));
    let candidates = Policies::of(&rules(1, "a"));
    let flags = ["--candidate-policy", candidates.path().to_str().unwrap()];
    let mut service = Tollgate::serve_with(policies.path(), &flags);
    let _alone = no_other_load().await;
    candidates.write("policy.yaml", &rules(5_000, "b"));
    are_answered(&service, "large candidate policies").await;
    let tried = |line: &str| {
        (line.contains("candidate policies loaded") && line.contains("5000")).then_some(())
    };
    service.process.wait_for_line("the attempts", tried);
}
