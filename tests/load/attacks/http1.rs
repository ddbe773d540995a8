//! Attacks over HTTP/1, on the ports of probes and of administration.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::client::{CONNECTING, flood, held, hold_unread, run_clients};
use super::harness::Target;

/// Pause between two bytes of a slow client.
const PAUSE: Duration = Duration::from_millis(20);

/// Holds 4,200 connections that send nothing.
pub(super) fn silent(target: Target) -> BoxFuture<'static, ()> {
    held(4_200, move || TcpStream::connect(target.http))
}

/// Sends request heads byte by byte.
pub(super) fn slow_heads(target: Target) -> BoxFuture<'static, ()> {
    slow(target.http, b"GET /livez HTTP/1.1\r\nx: ", 1_000)
}

/// Sends bodies byte by byte, on more connections than the port keeps. None of them takes a slot,
/// which a request does once its body is there.
pub(super) fn slow_bodies(target: Target) -> BoxFuture<'static, ()> {
    slow(target.http, b"POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n", 1_000)
}

fn slow(server: SocketAddr, begin: &'static [u8], clients: usize) -> BoxFuture<'static, ()> {
    let attack = move || async move {
        let mut streams = Vec::new();
        for _ in 0..clients / CONNECTING {
            let mut stream = TcpStream::connect(server).await?;
            stream.write_all(begin).await?;
            streams.push(stream);
        }
        loop {
            for stream in &mut streams {
                // Some were closed to make room for others.
                let _ = stream.write_all(b"a").await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    async move { run_clients(CONNECTING, attack).await }.boxed()
}

/// Requests metrics without reading the answers.
pub(super) fn unread(target: Target) -> BoxFuture<'static, ()> {
    let requests = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
    let attack = move || {
        let requests = requests.clone();
        async move { hold_unread(TcpStream::connect(target.http).await?, &requests).await }
    };
    async move { run_clients(600, attack).await }.boxed()
}

/// Requests metrics repeatedly.
pub(super) fn metrics(target: Target) -> BoxFuture<'static, ()> {
    repeated(target.http, b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), 16)
}

/// Sends JSON of the maximum size, with as many values as possible.
pub(super) fn large_json(target: Target) -> BoxFuture<'static, ()> {
    let descriptors = vec![r#"{"entries":[{"key":"a"}]}"#; 2_500].join(",");
    let body = format!(r#"{{"domain":"test","descriptors":[{descriptors}]}}"#);
    assert!(body.len() > 60_000 && body.len() <= 64 << 10, "{}", body.len());
    repeated(target.http, post("/json", body.len(), &body), 48)
}

/// Sends bodies of 4 MiB.
pub(super) fn oversized_json(target: Target) -> BoxFuture<'static, ()> {
    let body = "[".repeat(4 << 20);
    repeated(target.http, post("/json", body.len(), &body), 16)
}

/// Sends request heads of 300 KB.
pub(super) fn long_heads(target: Target) -> BoxFuture<'static, ()> {
    let head = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", "a".repeat(300_000));
    repeated(target.http, head.into_bytes(), 16)
}

/// Sends writes to administration that are refused, with a host of 15 KB: nearly as long as a head
/// may be.
pub(super) fn refused_writes(target: Target) -> BoxFuture<'static, ()> {
    let host = "a".repeat(15_000);
    let request = format!(
        "POST /api/v1/policies/reload HTTP/1.1\r\nhost: {host}\r\nsec-fetch-site: cross-site\r\n\
         x-tollgate: 1\r\ncontent-length: 0\r\n\r\n"
    );
    repeated(target.admin, request.into_bytes(), 16)
}

/// Closes connections as soon as they are open.
pub(super) fn closed_at_once(target: Target) -> BoxFuture<'static, ()> {
    async move { run_clients(8, || async { TcpStream::connect(target.http).await.map(drop) }).await }
        .boxed()
}

fn post(path: &str, length: usize, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Sends one request after the other without waiting for the answers, but reads them.
fn repeated(server: SocketAddr, request: Vec<u8>, clients: usize) -> BoxFuture<'static, ()> {
    let attack = move || {
        let request = request.clone();
        async move { flood(TcpStream::connect(server).await?, &[], || request.clone()).await }
    };
    async move { run_clients(clients, attack).await }.boxed()
}
