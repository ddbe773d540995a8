//! The order of DATA and PING at Envoy: after the acknowledgement of a PING, the response before it
//! has been read. A server learns in this way that its response has arrived.

use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tollgate::grpc::proto::quota::RateLimitQuotaResponse;

use crate::support::TEST_TIMEOUT;
use crate::support::envoy::Envoy;
use crate::support::http2::{DATA, END_HEADERS, HEADERS, PING, SETTINGS, fields, frame, framed};
use crate::support::quotas::loan;
use crate::support::root;

const ACK: u8 = 1;
const PREFACE: usize = 24;
/// Number of responses, each of which is followed by a PING.
const ROUNDS: u8 = 20;
/// Time from the acknowledgement until all workers have applied the response.
const APPLIED: Duration = Duration::from_millis(100);

/// A connection of Envoy, read and written frame by frame.
struct RawServer(TcpStream);

impl RawServer {
    /// Accepts a connection, and reads up to the headers of its first stream. Returns its ID.
    async fn accept(listener: &TcpListener) -> (Self, u32) {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut server = Self(socket);
        let mut preface = [0; PREFACE];
        server.0.read_exact(&mut preface).await.unwrap();
        server.0.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        loop {
            let (kind, flags, stream, _) = server.read().await;
            match kind {
                SETTINGS if flags & ACK == 0 => {
                    server.0.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
                }
                HEADERS => {
                    let list =
                        fields(&[(":status", b"200"), ("content-type", b"application/grpc")]);
                    let answer = frame(HEADERS, END_HEADERS, stream, &list);
                    server.0.write_all(&answer).await.unwrap();
                    return (server, stream);
                }
                _ => {}
            }
        }
    }

    async fn read(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut body).await.unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        (head[3], head[4], stream, body)
    }

    /// Reads until the acknowledgement of a PING, whose payload is returned.
    async fn acknowledged(&mut self) -> Vec<u8> {
        loop {
            match self.read().await {
                (PING, flags, _, body) if flags & ACK != 0 => return body,
                (PING, _, _, body) => {
                    self.0.write_all(&frame(PING, ACK, 0, &body)).await.unwrap();
                }
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_ping_is_acknowledged_after_the_response_before_it_was_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
    let envoy = Envoy::start_by(&template, &[("TOLLGATE", port.as_str())]).await;
    let web = envoy.edge.clone();
    let passes = async || web.get_with("/", &[("x-bucket", b"a")]).await.status == 200;
    assert!(!passes().await, "denied before the first assignment");
    let (mut server, stream) = timeout(TEST_TIMEOUT, RawServer::accept(&listener)).await.unwrap();
    for round in 0..ROUNDS {
        let bucket_action = loan("a", 60, 1);
        let message = framed(&RateLimitQuotaResponse { bucket_action }.encode_to_vec());
        let payload = [round; 8];
        // The response arrives in two parts: the PING follows the second one.
        let data = frame(DATA, 0, stream, &message);
        let (first, rest) = data.split_at(data.len() / 2);
        server.0.write_all(first).await.unwrap();
        assert!(!passes().await, "round {round}: half of a response is not applied");
        let sent = Instant::now();
        let rest = [rest, &frame(PING, 0, 0, &payload)].concat();
        server.0.write_all(&rest).await.unwrap();
        let acknowledged = timeout(TEST_TIMEOUT, server.acknowledged()).await.unwrap();
        assert_eq!(acknowledged, payload);
        assert!(sent.elapsed() < Duration::from_secs(2), "within the guard");
        sleep(APPLIED).await;
        assert_eq!((passes().await, passes().await), (true, false), "round {round}");
    }
}
