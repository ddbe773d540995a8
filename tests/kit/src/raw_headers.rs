//! Calls with hand-written header lists, on top of the crate h2.
//!
//! No client library sends a malformed `:authority`, and decoding responses by hand would take an
//! HPACK decoder. So the crate's client talks to the service through a relay that replaces the
//! client's header list with a given one.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use h2::client::SendRequest;
use http::Request;
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinSet;
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};

use super::TEST_TIMEOUT;
use super::http2::{END_HEADERS, END_STREAM, HEADERS, fields, frame};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Length of the client's connection preface.
const PREFACE: usize = 24;
/// Length of a frame header.
const HEAD: usize = 9;

/// A connection to a service.
pub struct RawHeaders {
    requests: SendRequest<Bytes>,
    ping: h2::PingPong,
    header_block: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

/// The split of a call's frames into writes.
#[derive(Clone, Copy, Debug)]
pub enum Writes {
    /// All frames in one write, so that the service may read the call at once.
    One,
    /// The body after the service has read the headers.
    HeadersFirst,
}

impl RawHeaders {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut from_service, to_service) = stream.into_split();
        let (near, far) = tokio::io::duplex(1 << 16);
        let (from_client, mut to_client) = tokio::io::split(far);
        let header_block = Arc::<Mutex<Vec<u8>>>::default();
        let mut tasks = JoinSet::new();
        let block = Arc::clone(&header_block);
        tasks.spawn(async move {
            // Ends with the connection, in an error if it is cut off.
            let _ = relay(from_client, to_service, &block).await;
        });
        tasks.spawn(async move {
            let _ = tokio::io::copy(&mut from_service, &mut to_client).await;
            let _ = to_client.shutdown().await;
        });
        let (requests, mut connection) = h2::client::handshake(near).await.unwrap();
        let ping = connection.ping_pong().unwrap();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Self { requests, ping, header_block, _tasks: tasks }
    }

    /// Sends a call with these headers in place of `:authority`; the other headers are those of a
    /// gRPC client.
    ///
    /// Returns the value of `grpc-status` and the response, or the reason for their absence.
    pub async fn call(
        &mut self,
        authority: &[(&str, &[u8])],
        request: &RateLimitRequest,
        writes: Writes,
    ) -> Result<(String, Option<RateLimitResponse>), h2::Error> {
        *self.header_block.lock().unwrap() = header_block(authority);
        tokio::time::timeout(TEST_TIMEOUT, self.exchange(request, writes))
            .await
            .expect("the call is answered or refused")
    }

    async fn exchange(
        &mut self,
        request: &RateLimitRequest,
        writes: Writes,
    ) -> Result<(String, Option<RateLimitResponse>), h2::Error> {
        let mut requests = self.requests.clone().ready().await?;
        let replaced = Request::post("http://replaced/").body(()).unwrap();
        let (response, mut body) = requests.send_request(replaced, false)?;
        if let Writes::HeadersFirst = writes {
            self.ping.ping(h2::Ping::opaque()).await?;
        }
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        // If sending fails, the response fails too, with a more specific error.
        let _ = body.send_data([&[0], &length[..], &message].concat().into(), true);
        let mut response = response.await?;
        let mut message = Vec::new();
        while let Some(data) = response.body_mut().data().await {
            message.extend(data?);
        }
        let trailers = response.body_mut().trailers().await?;
        let trailers = trailers.unwrap_or_else(|| response.headers().clone());
        let status = trailers.get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        let message = message.get(5..).map(|message| RateLimitResponse::decode(message).unwrap());
        Ok((status.unwrap_or_else(|| format!("none, {}", response.status())), message))
    }
}

fn header_block(authority: &[(&str, &[u8])]) -> Vec<u8> {
    // Pseudo-headers precede all others (RFC 9113, 8.3).
    let (pseudo, regular): (Vec<_>, Vec<_>) =
        authority.iter().copied().partition(|(name, _)| name.starts_with(':'));
    let before: [(&str, &[u8]); 3] =
        [(":method", b"POST"), (":scheme", b"http"), (":path", PATH.as_bytes())];
    let after: [(&str, &[u8]); 2] = [("te", b"trailers"), ("content-type", b"application/grpc")];
    fields(&[&before[..], &pseudo, &regular, &after].concat())
}

/// Forwards the client's frames, and replaces each header list with the given one.
///
/// HEADERS frames are held back and written together with the next frame.
async fn relay(
    mut client: ReadHalf<DuplexStream>,
    mut service: OwnedWriteHalf,
    header_block: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let mut preface = [0; PREFACE];
    client.read_exact(&mut preface).await?;
    service.write_all(&preface).await?;
    let mut waiting = Vec::new();
    loop {
        let mut head = [0; HEAD];
        client.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut body = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        client.read_exact(&mut body).await?;
        let is_headers = kind == HEADERS;
        if is_headers {
            assert_eq!(
                flags & END_HEADERS,
                END_HEADERS,
                "the list that is replaced fits into one frame"
            );
            body = header_block.lock().unwrap().clone();
        }
        let flags = if is_headers { flags & (END_HEADERS | END_STREAM) } else { flags };
        waiting.extend(frame(kind, flags, u32::from_be_bytes(stream), &body));
        if !is_headers {
            service.write_all(&waiting).await?;
            waiting.clear();
        }
    }
}
