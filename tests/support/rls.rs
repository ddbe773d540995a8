//! A client of the rate limit service, and requests in a few words.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use prost::bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt as _};
use tollgate::grpc::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::grpc::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// One connection to a service.
#[derive(Clone)]
pub(crate) struct Client(Channel);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(channel(address).await)
    }

    /// Asks over a connection made elsewhere.
    pub(crate) fn over(channel: Channel) -> Self {
        Self(channel)
    }

    pub(crate) async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(RateLimitServiceClient::new(self.0.clone()).should_rate_limit(request).await?.into_inner())
    }

    /// The same by a caller who says how long it waits; Envoy does.
    pub(crate) async fn ask_within(
        &self,
        request: RateLimitRequest,
        timeout: Option<Duration>,
    ) -> Result<RateLimitResponse, Status> {
        let mut request = tonic::Request::new(request);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        Ok(RateLimitServiceClient::new(self.0.clone()).should_rate_limit(request).await?.into_inner())
    }

    /// Begins a call without saying what it asks; it is under way at the service when this returns.
    pub(crate) async fn begin(&self) -> UnderWay {
        let ((question, asked), (opened, is_open)) = (oneshot::channel(), oneshot::channel());
        // The connection takes the first message when it has opened a stream for the call.
        let messages = tokio_stream::once((opened, asked)).then(|(opened, asked)| async move {
            let _ = opened.send(());
            asked.await.unwrap()
        });
        let answer = tokio::spawn(call(self.0.clone(), messages));
        is_open.await.unwrap();
        // Answered after the other has arrived, since both come one after the other on one connection.
        self.limit("none", "").await;
        UnderWay { question, answer }
    }

    /// The status of a request that has one descriptor.
    pub(crate) async fn status(&self, descriptor: RateLimitDescriptor) -> DescriptorStatus {
        let mut answer = self.ask(request(vec![descriptor])).await.unwrap();
        assert_eq!(answer.statuses.len(), 1);
        answer.statuses.remove(0)
    }

    /// Takes one hit, and says whether there was room.
    pub(crate) async fn hit(&self, key: &str, value: &str) -> bool {
        self.status(descriptor(&[(key, value)])).await.code() == Code::Ok
    }

    /// The amount of the limit that a descriptor comes to, without a hit; none where no limit applies.
    pub(crate) async fn limit(&self, key: &str, value: &str) -> Option<u32> {
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[(key, value)]) };
        Some(self.status(peek).await.current_limit?.requests_per_unit)
    }
}

/// A call of which the service has not seen the question yet.
pub(crate) struct UnderWay {
    question: oneshot::Sender<RateLimitRequest>,
    answer: JoinHandle<Result<RateLimitResponse, Status>>,
}

impl UnderWay {
    /// Asks nothing, and waits for whatever comes.
    pub(crate) async fn until_cut_off(self) -> Result<RateLimitResponse, Status> {
        let ended = self.answer.await.unwrap();
        drop(self.question);
        ended
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn finish(self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let _ = self.question.send(request);
        self.answer.await.unwrap()
    }
}

async fn call(
    channel: Channel,
    messages: impl Stream<Item = RateLimitRequest> + Send + 'static,
) -> Result<RateLimitResponse, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    Ok(grpc.client_streaming(tonic::Request::new(messages), path, codec).await?.into_inner())
}

/// A connection, for other services of the same address.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A request for domain `test`.
pub(crate) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "test".to_owned(), descriptors, hits_addend: 0 }
}

/// A descriptor that takes what the request does.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| entry(key.as_bytes(), value.as_bytes());
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

/// An entry of any bytes.
pub(crate) fn entry(key: &[u8], value: &[u8]) -> Entry {
    Entry { key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value) }
}

/// A limit that a descriptor brings along; `unit` is the protocol's number.
pub(crate) fn limit(requests_per_unit: u32, unit: i32) -> Option<RateLimitOverride> {
    Some(RateLimitOverride { requests_per_unit, unit, unit_multiplier: None })
}
