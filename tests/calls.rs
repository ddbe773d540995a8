//! Calls as HTTP/2 streams: split, compressed, repeated, or from a silent client.

use std::net::SocketAddr;

use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate::grpc::proto::RateLimitResponse;

use crate::support::TEST_TIMEOUT;
use crate::support::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, frame, framed, headers,
};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, gzip, request};
use crate::support::tollgate::Tollgate;

const INTERNAL: &str = "13";
const UNIMPLEMENTED: &str = "12";

#[tokio::test]
async fn a_message_that_arrives_byte_by_byte_is_answered() {
    let service = serve();
    let message = message();
    let pieces: Vec<&[u8]> = message.chunks(1).collect();
    let (answer, trailers) = call(service.grpc, &[], &pieces).await;
    let answer = RateLimitResponse::decode(&answer[5..]).unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 4);
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn a_call_without_a_message_or_with_two_or_half_of_one_is_refused() {
    let service = serve();
    let message = message();
    let twice = message.repeat(2);
    let cases: [&[&[u8]]; 5] =
        [&[], &[&message[..3]], &[&message[..9]], &[&twice], &[&message, &message]];
    for pieces in cases {
        let (answer, trailers) = call(service.grpc, &[], pieces).await;
        assert_eq!(
            (answer.len(), &trailers["grpc-status"]),
            (0, &INTERNAL.parse().unwrap()),
            "{pieces:?}"
        );
    }
    let (_, trailers) = call(service.grpc, &[], &[&message]).await;
    assert_eq!(trailers["grpc-status"], "0", "the connection and others are served on");
}

#[tokio::test]
async fn invalid_messages_are_distinguished_from_invalid_requests() {
    let service = serve();
    let (_, trailers) = call(service.grpc, &[], &[&framed(&[0x0a, 9, b'x'])]).await;
    assert_eq!(trailers["grpc-status"], INTERNAL);
    let (_, trailers) = call(service.grpc, &[], &[&framed(&[])]).await;
    assert_eq!(trailers["grpc-status"], "3");
}

#[tokio::test]
async fn gzip_messages_are_read_and_other_encodings_are_refused_by_name() {
    let service = serve();
    let gzipped = gzip(&request(vec![descriptor(&[("user", "ann")])]).encode_to_vec());
    let compressed =
        [&[1], &u32::try_from(gzipped.len()).unwrap().to_be_bytes()[..], &gzipped].concat();
    let (answer, trailers) = call(service.grpc, &[("grpc-encoding", "gzip")], &[&compressed]).await;
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(RateLimitResponse::decode(&answer[5..]).unwrap().statuses[0].limit_remaining, 4);
    let (_, trailers) = call(service.grpc, &[], &[&compressed]).await;
    assert_eq!(trailers["grpc-status"], INTERNAL, "marked as compressed, without an encoding");
    let (_, trailers) = call(service.grpc, &[("grpc-encoding", "snappy")], &[&message()]).await;
    assert_eq!(trailers["grpc-status"], UNIMPLEMENTED);
    assert!(trailers["grpc-accept-encoding"].to_str().unwrap().contains("gzip"), "{trailers:?}");
    let (_, trailers) = call(service.grpc, &[("grpc-encoding", "identity")], &[&message()]).await;
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn a_query_in_the_method_path_is_ignored() {
    let service = serve();
    let mut client = Http2::connect(service.grpc).await;
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit?debug=1";
    let call =
        [frame(HEADERS, END_HEADERS, 1, &headers(path)), frame(DATA, END_STREAM, 1, &message())]
            .concat();
    client.write(&call).await.unwrap();
    assert!(!client.body_of(DATA).await.is_empty());
}

/// A call that is not gRPC is refused with the status codes and messages of grpc-go.
#[tokio::test]
async fn a_call_that_is_not_grpc_is_refused_with_status_and_reason() {
    let service = serve();
    let rls = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let cases = [
        ("POST", rls, "application/json", "1S", (415, "3", "invalid gRPC request content-type")),
        (
            "POST",
            "/grpc.health.v1.Health/Check",
            "text/plain",
            "1S",
            (415, "3", "invalid gRPC request content-type"),
        ),
        ("GET", rls, "application/grpc", "1S", (405, "13", "which should be POST")),
        ("POST", rls, "application/grpc", "soon", (400, "13", "malformed grpc-timeout")),
        (
            "POST",
            "/a.Service/Method",
            "application/grpc",
            "1S",
            (200, "12", "unknown method /a.Service/Method"),
        ),
        (
            "POST",
            "/grpc.health.v1.Health/No",
            "application/grpc",
            "1S",
            (200, "12", "unknown method"),
        ),
        ("POST", rls, "application/grpc+proto", "1S", (200, "0", "")),
    ];
    let mut requests = connect(service.grpc).await;
    for (method, path, content_type, timeout, expected) in cases {
        let request = Request::builder().method(method).uri(format!("http://tollgate{path}"));
        let request = request.header("content-type", content_type).header("grpc-timeout", timeout);
        let (answer, mut body) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        let _ = body.send_data(message().into(), true);
        let mut answer = tokio::time::timeout(TEST_TIMEOUT, answer)
            .await
            .expect("the call is answered")
            .unwrap();
        let status = answer.status().as_u16();
        while let Some(data) = answer.body_mut().data().await {
            data.unwrap();
        }
        let trailers =
            answer.body_mut().trailers().await.unwrap().unwrap_or_else(|| answer.headers().clone());
        let text = trailers.get("grpc-message").map_or("", |text| text.to_str().unwrap());
        let text = text.replace("%20", " ");
        assert_eq!(
            (status, trailers["grpc-status"].to_str().unwrap()),
            (expected.0, expected.1),
            "{path} {text}"
        );
        assert!(text.contains(expected.2), "{path}: {text}");
    }
}

/// A client that stops reading receives all responses as soon as it resumes, without any other
/// event.
#[tokio::test]
async fn a_client_that_pauses_receives_all_responses_afterwards() {
    const CALLS: u32 = 60_000;
    let service = serve();
    let (mut reader, mut writer) = Http2::connect(service.grpc).await.into_split();
    let headers = headers("/no/method");
    let calls: Vec<u8> = (0..CALLS)
        .flat_map(|number| frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &headers))
        .collect();
    let writing = tokio::spawn(async move { writer.write_all(&calls).await });
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let reading = async {
        let mut answered = 0;
        let mut head = [0; 9];
        while answered < CALLS {
            reader.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
            reader.read_exact(&mut payload).await.unwrap();
            answered += u32::from(head[3] == HEADERS);
        }
    };
    tokio::time::timeout(6 * TEST_TIMEOUT, reading).await.expect("all are answered");
    writing.await.unwrap().unwrap();
}

#[tokio::test]
async fn descriptors_that_repeat_the_longest_header_are_answered() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let header = "v".repeat(58 << 10);
    // As an Envoy with eighteen actions on one header sends them.
    let repeated = (0..18).map(|_| descriptor(&[("user", "ann"), ("header", &header)]));
    let all = repeated.chain([descriptor(&[("user", "ann")])]).collect();
    let answer = client.decide(request(all)).await.unwrap();
    assert_eq!(answer.statuses.last().unwrap().limit_remaining, 4);
}

#[tokio::test]
async fn metadata_within_the_bound_of_header_lists_is_answered() {
    let baggage = "v".repeat(60 << 10);
    let long = [("baggage", baggage.as_str())];
    let (_, trailers) = call(serve().grpc, &long, &[&message()]).await;
    assert_eq!(trailers["grpc-status"], "0");
    let policies = Policies::of(&daily("user", 5));
    let longer = Tollgate::serve_with(policies.path(), &["--max-header-list", "1MiB"]);
    let baggage = "v".repeat(900_000);
    let (_, trailers) = call(longer.grpc, &[("baggage", &baggage)], &[&message()]).await;
    assert_eq!(trailers["grpc-status"], "0");
    let shorter = Tollgate::serve_with(policies.path(), &["--max-header-list", "32KiB"]);
    let mut requests = connect(shorter.grpc).await;
    let long = Request::post("http://tollgate/x").header("baggage", "v".repeat(33 << 10));
    let (answer, _) = requests.send_request(long.body(()).unwrap(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 431);
}

#[tokio::test]
async fn a_message_is_within_its_bound_before_and_after_inflating() {
    let service =
        Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &["--max-message", "64KiB"]);
    let compressed = |bytes: &[u8]| {
        let gzipped = gzip(bytes);
        [&[1], &u32::try_from(gzipped.len()).unwrap().to_be_bytes()[..], &gzipped].concat()
    };
    // Inflates to a thousand times its size.
    let bomb = compressed(&vec![0; 16 << 20]);
    assert!(bomb.len() < 64 << 10);
    let (_, trailers) = call(service.grpc, &[("grpc-encoding", "gzip")], &[&bomb]).await;
    assert_eq!(trailers["grpc-status"], "8", "as grpc-go answers, {trailers:?}");
    let service = Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &[]);
    // Both are within the message size limit; the second inflates to more than 32 times its
    // compressed size and more than 64 KiB.
    for (bytes, status) in [(60 << 10, "3"), (100 << 10, "8")] {
        let bomb = compressed(&[0x12, 0].repeat(bytes / 2));
        let (_, trailers) = call(service.grpc, &[("grpc-encoding", "gzip")], &[&bomb]).await;
        assert_eq!(
            trailers["grpc-status"],
            status,
            "{bytes} of {} bytes: {trailers:?}",
            bomb.len()
        );
    }
    let long = framed(&vec![0; 1 + (4 << 20)]);
    let (_, trailers) = call(service.grpc, &[], &[&long]).await;
    assert_eq!(trailers["grpc-status"], "11", "{trailers:?}");
}

#[tokio::test]
async fn a_silent_client_is_pinged_and_kept_while_it_acknowledges() {
    let service =
        Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &["--keepalive", "50ms"]);
    let mut client = Http2::connect(service.grpc).await;
    for _ in 0..3 {
        client.frame(PING).await;
    }
}

/// Sends a call with additional headers and a body in these pieces. Returns the response message
/// with its prefix, and the headers or trailers that contain the status.
async fn call(
    address: SocketAddr,
    headers: &[(&str, &str)],
    pieces: &[&[u8]],
) -> (Vec<u8>, HeaderMap) {
    let calling = async {
        let mut request = Request::post(
            "http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        )
        .header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (answer, mut body) =
            connect(address).await.send_request(request.body(()).unwrap(), false).unwrap();
        for piece in pieces {
            // The call may already have been refused and its stream closed.
            let _ = body.send_data(Bytes::copy_from_slice(piece), false);
            tokio::task::yield_now().await;
        }
        let _ = body.send_data(Bytes::new(), true);
        let mut answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut message = Vec::new();
        while let Some(data) = answer.body_mut().data().await {
            message.extend(data.unwrap());
        }
        let trailers = answer.body_mut().trailers().await.unwrap();
        (message, trailers.unwrap_or_else(|| answer.headers().clone()))
    };
    tokio::time::timeout(TEST_TIMEOUT, calling).await.expect("the call is answered")
}

async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    requests.ready().await.unwrap()
}

fn message() -> Vec<u8> {
    framed(&request(vec![descriptor(&[("user", "ann")])]).encode_to_vec())
}

fn serve() -> Tollgate {
    Tollgate::serve(Policies::of(&daily("user", 5)).path())
}
