//! One gRPC server on one runtime: the services, their bounds, and how connections are kept.
//!
//! tonic makes the services, hyper speaks HTTP/2; the loop between them is our own. tonic's waits for connections that never
//! said anything when it shall end, has one handshake of TLS wait for another, and costs each request several boxes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use hyper::service::Service;
use hyper::{Request, Response};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

pub use super::connection::Connections;
use super::connection::Keeper;
use super::health::Health;
use super::proto::PROTOCOL;
use super::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer, SERVICE_NAME};
use super::socket::Accepted;
use super::tls::Tls;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::stats::Stats;

/// The reflection service refused the protocol's own files.
#[derive(Debug, thiserror::Error)]
#[error("reflection: {0}")]
pub struct ServerError(#[from] tonic_reflection::server::Error);

/// Serves the connections that `incoming` brings until it ends and they have; each is told to go when `drain` is cancelled, and
/// finishes what is under way.
///
/// # Errors
/// [`ServerError`]; a connection that fails ends alone and is none.
pub async fn serve<R: RateLimitService>(
    mut incoming: mpsc::Receiver<Accepted>,
    rls: Arc<R>,
    health: &Health,
    connections: Connections,
    tls: Option<Tls>,
    metrics: Arc<Metrics>,
    drain: CancellationToken,
) -> Result<(), ServerError> {
    let services = Services::new(rls, health, connections.max_message_bytes, metrics.stats().cloned())?;
    let keeper = Arc::new(Keeper::new(connections, tls, metrics, drain));
    let tasks = TaskTracker::new();
    while let Some(accepted) = incoming.recv().await {
        let (keeper, services) = (Arc::clone(&keeper), services.clone());
        tasks.spawn(async move { keeper.keep(accepted, services).await });
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// Finds the service of a request. The one that nearly all requests are for is found without the router of the others.
struct Services<R> {
    rls: RateLimitServiceServer<R>,
    others: Routes,
    /// Counts and times calls, where somebody wants that.
    stats: Option<Arc<Stats>>,
}

impl<R> Clone for Services<R> {
    fn clone(&self) -> Self {
        Self { rls: self.rls.clone(), others: self.others.clone(), stats: self.stats.clone() }
    }
}

impl<R: RateLimitService> Services<R> {
    fn new(
        rls: Arc<R>,
        health: &Health,
        max_message_bytes: usize,
        stats: Option<Arc<Stats>>,
    ) -> Result<Self, ServerError> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(PROTOCOL)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let others = Routes::new(HealthServer::new(HealthService::from_health_reporter(health.reporter())))
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .prepare();
        let rls = RateLimitServiceServer::from_arc(rls).max_decoding_message_size(max_message_bytes);
        Ok(Self { rls, others, stats })
    }
}

impl<R: RateLimitService> Service<Request<hyper::body::Incoming>> for Services<R> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        let path = request.uri().path();
        let method = self.stats.as_ref().and_then(|stats| stats.of_method(path)).cloned();
        let ours = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME));
        let answer = if ours.is_some_and(|path| path.starts_with('/')) {
            self.rls.clone().call(request)
        } else {
            Box::pin(self.others.clone().call(request))
        };
        let Some(method) = method else { return answer };
        method.total_requests.add(1);
        let begun = Instant::now();
        Box::pin(async move {
            let answer = answer.await;
            method.response_time.record(begun.elapsed());
            answer
        })
    }
}
