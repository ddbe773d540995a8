//! A client of the rate limit service, and short constructors for requests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt as _};
use tollgate::grpc::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::grpc::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{TEST_TIMEOUT, becomes};

/// Serves gRPC services in this process, and returns their address.
pub async fn serve_grpc(routes: tonic::service::Routes) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
    address
}

/// A connection to a service.
#[derive(Clone)]
pub struct Client(Channel);

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(channel(address).await)
    }

    /// Connects to a Unix socket.
    pub async fn connect_unix(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://tollgate");
        Self::over(endpoint.connect_with_connector(connector).await.unwrap())
    }

    /// Wraps an existing connection.
    pub fn over(channel: Channel) -> Self {
        Self(channel)
    }

    pub async fn decide(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(RateLimitServiceClient::new(self.0.clone())
            .should_rate_limit(request)
            .await?
            .into_inner())
    }

    /// Sends a request with a timeout, as Envoy does.
    pub async fn decide_within(
        &self,
        request: RateLimitRequest,
        timeout: Option<Duration>,
    ) -> Result<RateLimitResponse, Status> {
        let mut request = tonic::Request::new(request);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        Ok(RateLimitServiceClient::new(self.0.clone())
            .should_rate_limit(request)
            .await?
            .into_inner())
    }

    /// Begins a call without sending its message. The call is pending at the service when this
    /// returns.
    pub async fn begin(&self) -> UnderWay {
        let (sender, message) = oneshot::channel();
        let (opened, is_open) = oneshot::channel();
        // The connection takes the first message once it has opened a stream for the call.
        let messages = tokio_stream::once((opened, message)).then(|(opened, message)| async move {
            let _ = opened.send(());
            message.await.unwrap()
        });
        let answer = tokio::spawn(call(self.0.clone(), messages));
        is_open.await.unwrap();
        // Calls on a connection arrive in order, so this one is answered after the other has
        // arrived.
        self.limit("none", "").await;
        UnderWay { sender, answer }
    }

    /// Returns the status of a request with one descriptor.
    pub async fn status(&self, descriptor: RateLimitDescriptor) -> DescriptorStatus {
        let mut answer = self.decide(request(vec![descriptor])).await.unwrap();
        assert_eq!(answer.statuses.len(), 1);
        answer.statuses.remove(0)
    }

    /// Takes one hit, and returns `true` if it is admitted.
    pub async fn hit(&self, key: &str, value: &str) -> bool {
        self.status(descriptor(&[(key, value)])).await.code() == Code::Ok
    }

    /// Peeks at the amount of the limit that applies to a descriptor; `None` if no limit applies.
    pub async fn limit(&self, key: &str, value: &str) -> Option<u32> {
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[(key, value)]) };
        Some(self.status(peek).await.current_limit?.requests_per_unit)
    }

    /// Waits until the limit that applies to a descriptor has the given amount.
    pub async fn limit_becomes(&self, key: &str, value: &str, amount: Option<u32>) {
        let limit = || self.limit(key, value);
        becomes("the change is served", TEST_TIMEOUT, limit, |limit| *limit == amount).await;
    }
}

/// A pending call whose message has not been sent.
pub struct UnderWay {
    sender: oneshot::Sender<RateLimitRequest>,
    answer: JoinHandle<Result<RateLimitResponse, Status>>,
}

impl UnderWay {
    /// Sends no message, and waits for the call to end.
    pub async fn until_cut_off(self) -> Result<RateLimitResponse, Status> {
        let ended = self.answer.await.unwrap();
        drop(self.sender);
        ended
    }

    /// Sends the message, and waits for the response.
    pub async fn finish(self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let _ = self.sender.send(request);
        self.answer.await.unwrap()
    }
}

async fn call(
    channel: Channel,
    messages: impl Stream<Item = RateLimitRequest> + Send + 'static,
) -> Result<RateLimitResponse, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path =
        PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    Ok(grpc.client_streaming(tonic::Request::new(messages), path, codec).await?.into_inner())
}

/// Opens a connection, for other services at the same address.
pub async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Returns a request for domain `test`.
pub fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "test".to_owned(), descriptors, hits_addend: 0 }
}

/// Returns a descriptor with the request's hits.
pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| entry(key.as_bytes(), value.as_bytes());
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

/// Returns an entry of arbitrary bytes.
pub fn entry(key: &[u8], value: &[u8]) -> Entry {
    Entry { key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value) }
}

/// Returns a limit override of a descriptor; `unit` is the enum value of the protocol.
pub fn limit(requests_per_unit: u32, unit: i32) -> Option<RateLimitOverride> {
    Some(RateLimitOverride { requests_per_unit, unit, unit_multiplier: None })
}

/// Compresses a message.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}
