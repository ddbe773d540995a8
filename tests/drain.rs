//! Shutdown of the process.
//!
//! Waiting for its end blocks a thread; clients run on another one, since an unresponsive
//! connection delays the end.

use std::net::SocketAddr;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tonic::Streaming;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::support::http2::{GOAWAY, Http2};
use crate::support::policy::{Policies, daily};
use crate::support::probes::NAMES;
use crate::support::rls::{Client, channel, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Longer than any test, so that a test that waits for it fails.
const NEVER: &str = "1h";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_changes_under_each_of_its_names_before_the_service_exits() {
    let service = serve(&["--drain-delay", NEVER]);
    let health = HealthClient::new(channel(service.grpc).await);
    service.process.signal(Signal::TERM);
    for name in NAMES {
        becomes(
            name,
            TEST_TIMEOUT,
            || check(health.clone(), name),
            |status| *status == ServingStatus::NotServing,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn readiness_changes_before_the_service_exits_and_liveness_does_not() {
    let service = serve(&["--drain-delay", NEVER]);
    let web = Web::new(service.http);
    service.process.signal(Signal::TERM);
    becomes(
        "not ready",
        TEST_TIMEOUT,
        || async { web.get("/readyz").await.status },
        |status| *status == 503,
    )
    .await;
    assert_eq!(web.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_are_answered_while_health_says_not_serving() {
    let mut service = serve(&["--drain-delay", NEVER]);
    let old = Client::connect(service.grpc).await;
    service.process.signal(Signal::TERM);
    service.wait_for_message("draining");
    assert!(old.hit("user", "ann").await);
    let new = Client::connect(service.grpc).await;
    assert!(new.hit("user", "ann").await, "on a connection that came later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_health_watch_is_updated_and_ended() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    let mut watches = Vec::new();
    for name in NAMES {
        let mut watch = watch(service.grpc, name).await;
        assert_eq!(next(&mut watch).await, Some(ServingStatus::Serving), "{name:?}");
        watches.push(watch);
    }
    service.process.signal(Signal::TERM);
    for (name, mut watch) in NAMES.into_iter().zip(watches) {
        assert_eq!(next(&mut watch).await, Some(ServingStatus::NotServing), "{name:?}");
        assert_eq!(next(&mut watch).await, None, "{name:?}");
    }
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_in_flight_are_answered() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    let call = Client::connect(service.grpc).await.begin().await;
    let mut other = Http2::connect(service.grpc).await;
    service.process.signal(Signal::TERM);
    // All connections receive GOAWAY from here on.
    other.frames_until_the_end().await;
    let answer = call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 4);
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn more_signals_lose_no_call() {
    let mut service = serve(&["--drain-delay", "100ms", "--drain-timeout", NEVER]);
    let call = Client::connect(service.grpc).await.begin().await;
    let mut other = Http2::connect(service.grpc).await;
    service.process.signal(Signal::TERM);
    service.wait_for_message("draining");
    service.process.signal(Signal::TERM);
    other.frames_until_the_end().await;
    service.process.signal(Signal::INT);
    call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap();
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_interrupt_exits_at_once() {
    let mut service = serve(&["--drain-delay", NEVER, "--drain-timeout", NEVER]);
    let call = Client::connect(service.grpc).await.begin().await;
    service.process.signal(Signal::INT);
    service.wait_for_message("draining");
    service.process.signal(Signal::INT);
    service.wait_for_message("second SIGINT; exiting without waiting for calls");
    assert_eq!(service.process.wait_for_end().code(), Some(0));
    call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_endless_call_is_aborted_after_the_timeout() {
    let mut service = serve(&["--drain-timeout", "200ms"]);
    let call = Client::connect(service.grpc).await.begin().await;
    assert_eq!(service.terminate().code(), Some(0));
    service.wait_for_message("drain timed out; connections dropped");
    call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_connection_or_half_a_preface_does_not_delay_the_drain() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    let mut silent = TcpStream::connect(service.grpc).await.unwrap();
    let mut stuck = TcpStream::connect(service.grpc).await.unwrap();
    stuck.write_all(b"PRI * HTTP").await.unwrap();
    assert_eq!(service.terminate().code(), Some(0));
    for connection in [&mut silent, &mut stuck] {
        let _ = connection.read_to_end(&mut Vec::new()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_acknowledges_nothing_delays_the_exit_only_briefly() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    // It reads no more frames, like a machine that has vanished.
    let mut gone = Http2::connect(service.grpc).await;
    assert_eq!(service.terminate().code(), Some(0));
    assert!(gone.frames_until_the_end().await.contains(&GOAWAY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_connection_gets_goaway_and_is_closed() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    let mut connection = Http2::connect(service.grpc).await;
    service.process.signal(Signal::TERM);
    assert!(connection.frames_until_the_end().await.contains(&GOAWAY));
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_http_connection_does_not_delay_the_exit() {
    let mut service = serve(&["--drain-timeout", NEVER]);
    let web = Web::new(service.http);
    assert_eq!(web.get("/livez").await.status, 200);
    assert_eq!(service.terminate().code(), Some(0));
}

/// Serves 5 per day for each user.
fn serve(flags: &[&str]) -> Tollgate {
    Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), flags)
}

async fn check(mut health: HealthClient<tonic::transport::Channel>, name: &str) -> ServingStatus {
    health
        .check(HealthCheckRequest { service: name.to_owned() })
        .await
        .unwrap()
        .into_inner()
        .status()
}

async fn watch(address: SocketAddr, name: &str) -> Streaming<HealthCheckResponse> {
    let watched = HealthCheckRequest { service: name.to_owned() };
    HealthClient::new(channel(address).await).watch(watched).await.unwrap().into_inner()
}

/// Returns the next status of a watch; `None` when it has ended.
async fn next(watch: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    let answer =
        tokio::time::timeout(TEST_TIMEOUT, watch.next()).await.expect("a watch gets an answer");
    answer.map(|answer| answer.unwrap().status())
}
