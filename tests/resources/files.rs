//! Attacks on file descriptors: a client that takes all connections leaves enough for probes,
//! administration and the store.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::support::policy::{Policies, daily};
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, command, quiet};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Limit of the service's open files: fewer than there are connections.
const FILES: usize = 320;
/// Number of connections to each listener.
const CONNECTIONS: usize = 400;

/// Returns the number of files that a process has open.
fn open_files(service: &Tollgate) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", service.process.id())).unwrap().count()
}

/// Opens connections that send nothing. Those that are closed at once are kept too.
async fn silent(address: SocketAddr) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    connections
}

#[tokio::test]
async fn probes_admin_and_store_have_file_descriptors_when_all_connections_are_in_use() {
    let redis = Redis::start().await;
    let policies = Policies::of(&daily("user", 100));
    let url = redis.url();
    let policy = policies.path().to_str().unwrap().to_owned();
    let store = ["--store", &url, "--store-timeout", "15s"];
    let bounds = ["--policy", &policy, "--workers", "2", "--keepalive", "60s"];
    let flags = [&store[..], &bounds].concat();
    // A soft limit that is too low even to start.
    let limits = format!("ulimit -S -n 32 && ulimit -H -n {FILES}");
    let mut service = Tollgate::serve_within(&limits, &flags);
    let warned = |line: &str| {
        line.contains("--max-connections 16384 exceeds the limit of open files (RLIMIT_NOFILE 320)")
            .then_some(())
    };
    service.process.wait_for_line("how many fit", warned);
    let web = Web::new(service.http);
    let admin = Web::new(service.admin);
    becomes("it is ready", TEST_TIMEOUT, || web.get("/readyz"), |reply| reply.status == 200).await;
    let client = Client::connect(service.grpc).await;
    assert!(client.hit("user", "ann").await);

    let mut held = silent(service.grpc).await;
    becomes(
        "all connections of gRPC are in use",
        TEST_TIMEOUT,
        || service.connections_cut("evicted"),
        |cut| *cut > 0,
    )
    .await;
    held.extend(silent(service.http).await);
    held.extend(silent(service.admin).await);
    let web = web.afresh();
    let admin = admin.afresh();
    assert_eq!(web.get("/livez").await.status, 200);
    assert_eq!(web.get("/metrics").await.status, 200);
    assert_eq!(admin.get("/api/v1/status").await.status, 200);
    assert!(
        web.metric("tollgate_http_connections_cut_total{port=\"http\",kind=\"idle\"}").await > 0
    );
    let decided = || client.decide(request(vec![descriptor(&[("user", "ann")])]));
    let _ =
        becomes("an idle connection is closed for it", TEST_TIMEOUT, decided, Result::is_ok).await;

    redis.kill();
    redis.restart().await;
    let decided = || client.decide(request(vec![descriptor(&[("user", "bob")])]));
    let _ = becomes("Redis is reached again", TEST_TIMEOUT, decided, Result::is_ok).await;
    assert!(open_files(&service) <= FILES);
    let failed = |line: &String| {
        line.contains("failed to accept a connection") || line.contains("Too many open files")
    };
    assert!(!service.process.log().iter().any(failed), "files ran out");
    drop(held);
}

#[test]
fn too_few_file_descriptors_are_reported_at_startup() {
    let policies = Policies::of(&daily("user", 100));
    let serve = command(["serve", "--policy", policies.path().to_str().unwrap()]);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -n 60; exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args());
    let ended = limited.args(quiet(&[])).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("open files (RLIMIT_NOFILE) is 60, and --workers"), "{error}");
}
