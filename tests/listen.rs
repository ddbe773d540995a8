//! The listeners for gRPC, and the maximum age of connections.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use hyper_util::client::legacy::Client as Pooled;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::Signal;
use tempfile::TempDir;
use tollgate::grpc::proto::rate_limit_service_client::RateLimitServiceClient;

use crate::support::http2::{GOAWAY, Http2};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, command_at, serve_at};

// Waiting for the process to end blocks a thread, and the client's connection has to close
// meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_unix_socket_is_served_and_removed_at_the_end() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("tollgate.sock");
    let mut service = serve_at(&socket);
    service.wait_for_line("its address", |line| {
        line.contains(&format!("\"unix:{}\"", socket.display())).then_some(())
    });
    assert!(Client::connect_unix(&socket).await.hit("user", "ann").await);
    service.signal(Signal::TERM);
    assert_eq!(service.wait_for_end().code(), Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_socket_that_a_killed_process_left_is_replaced() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("tollgate.sock");
    let mut killed = serve_at(&socket);
    killed.signal(Signal::KILL);
    killed.wait_for_end();
    assert!(socket.exists());
    let _service = serve_at(&socket);
    assert!(Client::connect_unix(&socket).await.hit("user", "ann").await);
}

#[test]
fn a_socket_in_use_and_a_regular_file_are_not_replaced() {
    let folder = TempDir::new().unwrap();
    let used = folder.path().join("used.sock");
    let file = folder.path().join("notes.txt");
    let listener = UnixListener::bind(&used).unwrap();
    std::fs::write(&file, "words").unwrap();
    for (path, problem) in
        [(&used, "another process listens on this path"), (&file, "is not a socket")]
    {
        let error = start_error(path);
        assert!(error.contains("--grpc-listen") && error.contains(problem), "{error}");
    }
    listener.accept().unwrap();
    assert!(UnixStream::connect(&used).unwrap().write_all(b"x").is_ok());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "words");
}

#[tokio::test]
async fn the_address_of_ipv6_takes_ipv4_as_well() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // a machine without IPv6
    }
    let service =
        Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &["--grpc-listen", "[::]:0"]);
    for address in ["127.0.0.1", "::1"] {
        assert!(
            Client::connect(
                (address.parse::<std::net::IpAddr>().unwrap(), service.grpc.port()).into()
            )
            .await
            .hit("user", address)
            .await
        );
    }
}

#[tokio::test]
async fn an_old_connection_gets_goaway() {
    let service = serve(&["--max-connection-age", "200ms"]);
    let begun = Instant::now();
    let mut connection = Http2::connect(service.grpc).await;
    assert!(connection.frames_until_the_end().await.contains(&GOAWAY));
    assert!(
        begun.elapsed() >= Duration::from_millis(180),
        "a tenth less at most, {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_connection_is_as_old_as_its_first_frames() {
    let service = serve(&["--max-connection-age", "1s"]);
    let silent = Http2::dial(service.grpc).await;
    // Meanwhile, two other connections in turn reach the maximum age.
    for _ in 0..2 {
        Http2::connect(service.grpc).await.frames_until_the_end().await;
    }
    let mut late = silent.shake_hands().await;
    assert!(late.is_seen().await, "it was kept");
}

#[tokio::test]
async fn a_client_whose_connections_grow_old_loses_no_call() {
    let service = serve(&["--max-connection-age", "1s"]);
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let pooled = Pooled::builder(TokioExecutor::new()).http2_only(true).build(connector);
    let origin = format!("http://{}", service.grpc).parse().unwrap();
    let client = RateLimitServiceClient::with_origin(pooled, origin);
    let until = Instant::now() + Duration::from_secs(1);
    let callers = (0..8).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            while Instant::now() < until {
                client
                    .should_rate_limit(request(vec![descriptor(&[("other", "ann")])]))
                    .await
                    .unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn calls_on_an_old_connection_finish_within_the_grace_period() {
    let service = serve(&["--max-connection-age", "1s"]);
    let call = Client::connect(service.grpc).await.begin().await;
    Http2::connect(service.grpc).await.frames_until_the_end().await;
    call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap();
}

#[tokio::test]
async fn calls_on_an_old_connection_are_aborted_after_the_grace_period() {
    let service = serve(&["--max-connection-age", "1s", "--max-connection-age-grace", "1s"]);
    let call = Client::connect(service.grpc).await.begin().await;
    call.until_cut_off().await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn old_connections_and_the_drain_have_their_own_grace_periods() {
    let mut service = serve(&["--max-connection-age-grace", "0s", "--drain-timeout", "1h"]);
    let call = Client::connect(service.grpc).await.begin().await;
    let mut other = Http2::connect(service.grpc).await;
    service.process.signal(Signal::TERM);
    other.frames_until_the_end().await;
    call.finish(request(vec![descriptor(&[("user", "ann")])])).await.unwrap();
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

fn serve(flags: &[&str]) -> Tollgate {
    Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), flags)
}

fn start_error(socket: &Path) -> String {
    let ended = command_at(socket, &Policies::of(&daily("user", 5))).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    String::from_utf8(ended.stderr).unwrap()
}
