//! Clients that flood, hoard, stall or do not read: they are bounded or cut off, and other clients
//! are still served.

mod address_space;

use std::net::SocketAddr;

use h2::client::SendRequest;
use http::Request;
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::net::TcpStream;
use tonic::Code;

use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, PATH, PING, PRIORITY,
    RESET, SETTINGS, WINDOW_UPDATE, frame, framed, headers, opened,
};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

#[tokio::test]
async fn a_connection_with_endless_stream_errors_ends_after_its_other_calls_are_answered() {
    let service = serve(&[]);
    let other = Client::connect(service.grpc).await;
    let mut client = Http2::connect(service.grpc).await;
    client.write(&opened(&[1])).await.unwrap();
    let malformed = headers("no slash");
    let mut stream = 3;
    while client.is_seen().await {
        assert!(stream < 200_000, "it goes on for ever");
        let streams = (0..1_000).map(|number| stream + 2 * number);
        let calls = streams.flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &malformed));
        client.write(&calls.collect::<Vec<_>>()).await.unwrap();
        stream += 2_000;
        assert!(other.hit("other", "ann").await);
    }
    // The client heeds GOAWAY.
    client.frame(GOAWAY).await;
    let message = framed(&request(vec![descriptor(&[("user", "ann")])]).encode_to_vec());
    client.write(&frame(DATA, END_STREAM, 1, &message)).await.unwrap();
    assert!(client.data().await.is_some(), "the call that waited is answered");
    client.frames_until_the_end().await;
    assert_eq!(service.connections_cut("flood").await, 1);
    assert!(other.hit("other", "ann").await);
}

/// Callers with short deadlines share a connection with others. A flood of resets, which no
/// machine that runs tests is sure to process fast enough, is that of the unit tests.
#[tokio::test]
async fn a_real_client_that_resets_most_of_its_calls_keeps_its_connection() {
    const RESETS: usize = 10_000;
    let service = serve(&[]);
    let (requests, connection) = connect(service.grpc).await;
    tokio::spawn(connection);
    let (answer, mut patient) = requests.clone().send_request(call(), false).unwrap();
    for _ in 0..RESETS {
        let mut ready = requests.clone().ready().await.unwrap();
        let (_, mut body) = ready.send_request(call(), false).unwrap();
        tokio::task::yield_now().await;
        body.send_reset(h2::Reason::CANCEL);
    }
    let message = framed(&request(vec![descriptor(&[("user", "ann")])]).encode_to_vec());
    patient.send_data(message.into(), true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    assert_eq!(service.connections_cut("given_up_calls").await, 0);
}

#[tokio::test]
async fn streams_beyond_the_bound_are_refused_and_a_flood_of_them_disconnects() {
    let service = serve(&["--max-streams", "10"]);
    let mut client = Http2::connect(service.grpc).await;
    client.write(&opened(&(0..11).map(|number| 1 + 2 * number).collect::<Vec<_>>())).await.unwrap();
    assert_eq!(client.body_of(RESET).await, REFUSED_STREAM);
    assert!(client.is_seen().await);
    let flood = opened(&(11..60_000).map(|number| 1 + 2 * number).collect::<Vec<_>>());
    client.gets_enhance_your_calm(&flood).await;
    service.cuts_connections("flood", 1).await;
}

#[tokio::test]
async fn endless_headers_and_empty_data_frames_are_floods() {
    let service = serve(&[]);
    let other = Client::connect(service.grpc).await;
    let continued: Vec<u8> = (0..300).flat_map(|_| frame(CONTINUATION, 0, 1, &[])).collect();
    let without_end = [frame(HEADERS, 0, 1, &headers(PATH)), continued].concat();
    let empty: Vec<u8> = (0..300).flat_map(|_| frame(DATA, 0, 1, &[])).collect();
    let empty_frames = [opened(&[1]), empty].concat();
    for flood in [without_end, empty_frames] {
        let mut client = Http2::connect(service.grpc).await;
        client.gets_enhance_your_calm(&flood).await;
        assert!(other.hit("other", "ann").await);
    }
    service.cuts_connections("flood", 2).await;
}

#[tokio::test]
async fn a_client_of_another_protocol_is_refused_and_counted() {
    let service = serve(&[]);
    let mut client = Http2::dial(service.grpc).await;
    client.write(b"GET /healthcheck HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(client.goaway().await, PROTOCOL_ERROR);
    service.cuts_connections("protocol_error", 1).await;
}

#[tokio::test]
async fn a_call_with_too_many_headers_is_refused_alone() {
    let service = serve(&[]);
    let (mut requests, connection) = connect(service.grpc).await;
    tokio::spawn(connection);
    let mut large = call();
    // Each fits into a frame; together they exceed the bound of 64 KiB.
    for number in 0..17 {
        large.headers_mut().insert(
            http::HeaderName::try_from(format!("x-{number}")).unwrap(),
            "v".repeat(4_000).parse().unwrap(),
        );
    }
    let answer = requests.send_request(large, true).unwrap().0;
    assert_eq!(answer.await.unwrap().status(), 431);
    let answer = requests.ready().await.unwrap().send_request(call(), true).unwrap().0;
    assert_eq!(answer.await.unwrap().status(), 200, "the connection is kept");
}

#[tokio::test]
async fn control_frames_are_answered_and_a_flood_of_them_disconnects() {
    let service = serve(&["--workers", "1"]);
    let other = Client::connect(service.grpc).await;
    let floods = [
        (frame(PING, 0, 0, b"8 octets"), 1_000),
        (frame(SETTINGS, 0, 0, &[]), 10),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]), 1_000),
        (frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), 1_000),
        (frame(0x77, 0, 0, b"of no known kind"), 1_000),
    ];
    for (kind, (one, some)) in floods.into_iter().enumerate() {
        let mut client = Http2::connect(service.grpc).await;
        client.write(&one.repeat(some)).await.unwrap();
        assert!(client.is_seen().await, "{kind}");
        assert!(other.hit("other", "ann").await);
        client.gets_enhance_your_calm(&one.repeat(40 * some)).await;
        assert!(other.hit("other", "ann").await);
    }
    service.cuts_connections("flood", 5).await;
}

#[tokio::test]
async fn a_client_that_sends_and_never_reads_is_disconnected() {
    // A call whose answer repeats the 15 KB of its request.
    let long = "v".repeat(15_000);
    let message = framed(&request(vec![descriptor(&[("other", &long)])]).encode_to_vec());
    let service = serve(&["--keepalive", "200ms", "--dynamic-metadata"]);
    let mut client = Http2::connect(service.grpc).await;
    let wide = [[0, 4, 0x7f, 0xff, 0xff, 0xff].as_slice()].concat();
    client.write(&frame(SETTINGS, 0, 0, &wide)).await.unwrap();
    client.write(&frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0])).await.unwrap();
    let call = |stream| {
        [
            frame(HEADERS, END_HEADERS, stream, &headers(PATH)),
            frame(DATA, END_STREAM, stream, &message),
        ]
        .concat()
    };
    let cut_off = async {
        // When pending answers exceed their bound, the service also stops reading, so that a write
        // may block until the end.
        let mut number = 0;
        while client.write(&call(1 + 2 * number)).await.is_ok() {
            number += 1;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, cut_off).await.expect("it is cut off");
    service.cuts_connections("unread_answers", 1).await;
    assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
}

#[tokio::test]
async fn a_missing_message_times_out_its_call_only() {
    let service = serve(&["--message-timeout", "200ms"]);
    let client = Client::connect(service.grpc).await;
    let ended = client.begin().await.until_cut_off().await.unwrap_err();
    assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
    assert!(ended.message().contains("200ms"), "{ended}");
    assert!(client.hit("user", "ann").await);
    assert_eq!(Web::new(service.http).metric("tollgate_slow_calls_total").await, 1);
}

#[tokio::test]
async fn memory_of_unfinished_messages_is_bounded_and_released() {
    const MIB: usize = 1 << 20;
    let service =
        serve(&["--workers", "1", "--max-message", "4MiB", "--client-memory-max", "64MiB"]);
    let (mut requests, connection) = connect(service.grpc).await;
    let connection = tokio::spawn(connection);
    let (sender, mut statuses) = tokio::sync::mpsc::unbounded_channel();
    // 20 calls of 4 MiB, each without its last byte; one connection may hold 16 MiB of incomplete
    // messages.
    for _ in 0..20 {
        requests = requests.ready().await.unwrap();
        let (answer, mut body) = requests.send_request(call(), false).unwrap();
        let length = u32::try_from(4 * MIB - 1).unwrap();
        body.send_data(
            [&[0], &length.to_be_bytes()[..], &vec![0; 4 * MIB - 2]].concat().into(),
            false,
        )
        .unwrap();
        let sender = sender.clone();
        tokio::spawn(async move {
            let answer = answer.await;
            let _ = sender.send(answer.map(|answer| answer.headers()["grpc-status"].clone()));
            drop(body);
        });
    }
    for _ in 0..17 {
        let status = tokio::time::timeout(TEST_TIMEOUT, statuses.recv())
            .await
            .expect("it is refused")
            .unwrap();
        assert_eq!(status.unwrap(), "8");
    }
    connection.abort();
    // The memory that the connection held is released; a message of many pieces is accepted.
    let client = Client::connect(service.grpc).await;
    let long = "v".repeat(60 << 10);
    let many: Vec<_> = (0..50).map(|_| descriptor(&[("other", &long)])).collect();
    let _ = becomes(
        "there is room",
        TEST_TIMEOUT,
        || client.decide(request(many.clone())),
        Result::is_ok,
    )
    .await;
}

#[tokio::test]
async fn a_connection_beyond_the_bound_evicts_the_longest_idle_one() {
    let service = serve(&["--max-connections", "2"]);
    let mut first = Http2::connect(service.grpc).await;
    let second = Client::connect(service.grpc).await;
    assert!(second.hit("user", "ann").await);
    // Pings do not count as use.
    assert!(first.is_seen().await);
    let third = Client::connect(service.grpc).await;
    assert!(third.hit("user", "ann").await && second.hit("user", "ann").await);
    assert_eq!(first.goaway().await, NO_ERROR);
    assert_eq!(
        (service.connections_cut("evicted").await, service.connections_cut("full").await),
        (1, 0)
    );
}

#[tokio::test]
async fn connections_that_only_handshake_do_not_lock_out_clients() {
    let service = serve(&["--max-connections", "20", "--max-connections-per-address", "20"]);
    for dial in [true, false] {
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(if dial {
                Http2::dial(service.grpc).await
            } else {
                Http2::connect(service.grpc).await
            });
        }
        assert!(Client::connect(service.grpc).await.hit("other", "ann").await);
    }
    assert_eq!(
        service.connections_cut("full").await + service.connections_cut("full_address").await,
        0
    );
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_if_none_is_idle_and_permits_are_released() {
    let service = serve(&["--max-connections", "2"]);
    let mut first = Http2::connect(service.grpc).await;
    let mut second = Http2::connect(service.grpc).await;
    for busy in [&mut first, &mut second] {
        busy.write(&opened(&[1])).await.unwrap();
        assert!(busy.is_seen().await);
    }
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_grpc_connections").await, 2);
    let third = TcpStream::connect(service.grpc).await.unwrap();
    let closed = async { third.readable().await.map(|()| third.try_read(&mut [0; 1])) };
    let read = tokio::time::timeout(TEST_TIMEOUT, closed).await.expect("it is closed").unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert_eq!(service.connections_cut("full").await, 1);
    drop(first);
    let places = || web.metric("tollgate_grpc_connections");
    becomes("a connection is available", TEST_TIMEOUT, places, |taken| *taken == 1).await;
    assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
}

fn call() -> Request<()> {
    let call =
        Request::post(format!("http://tollgate{PATH}")).header("content-type", "application/grpc");
    call.body(()).unwrap()
}

async fn connect(
    address: SocketAddr,
) -> (SendRequest<Bytes>, h2::client::Connection<TcpStream, Bytes>) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    h2::client::Builder::new().max_send_buffer_size(16 << 20).handshake(stream).await.unwrap()
}

/// Returns the number of connections cut off for this reason.
fn serve(flags: &[&str]) -> Tollgate {
    Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), flags)
}
