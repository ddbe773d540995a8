//! One gRPC server on one runtime: the services, their bounds, and how connections are kept.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_stream::Stream;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::health::Health;
use super::proto::PROTOCOL;
use super::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use super::timed::Timed;
use crate::telemetry::stats::Stats;

/// How connections are kept and how large a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Bytes of a request message.
    pub max_message_bytes: usize,
    /// Time without a sign of life after which a connection is asked for one.
    pub keepalive_interval: Duration,
    /// Time to answer, before the connection is closed.
    pub keepalive_timeout: Duration,
    /// Requests that one connection may have under way.
    pub max_streams: u32,
}

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The reflection service refused the protocol's own files.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("gRPC server: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves the connections that `incoming` brings until `shutdown`, then sends GOAWAY and finishes what is under way.
///
/// # Errors
/// [`ServerError`]; a connection that fails ends alone and is none.
pub async fn serve<R: RateLimitService>(
    incoming: impl Stream<Item = std::io::Result<TcpStream>>,
    rls: Arc<R>,
    health: &Health,
    stats: Option<&Arc<Stats>>,
    connections: Connections,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let limit = connections.max_message_bytes;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(PROTOCOL)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Server::builder()
        .http2_keepalive_interval(Some(connections.keepalive_interval))
        .http2_keepalive_timeout(Some(connections.keepalive_timeout))
        .max_concurrent_streams(connections.max_streams)
        .add_service(Timed::new(RateLimitServiceServer::from_arc(rls).max_decoding_message_size(limit), stats))
        .add_service(Timed::new(HealthServer::new(HealthService::from_health_reporter(health.reporter())), stats))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(incoming, shutdown)
        .await?;
    Ok(())
}
