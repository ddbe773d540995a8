//! One gRPC server on one runtime: the services, their bounds, and how connections are kept.
//!
//! h2 speaks HTTP/2. The one method that nearly all calls are of is answered right above it, in `call`; tonic
//! makes the other services (`routed`). Answering through tonic and hyper costs a task, ten allocations and
//! half a dozen readings of the clock a call, which together are more than deciding it; tonic's own loop waits besides for
//! connections that never said anything when it shall end, and has one handshake of TLS wait for another.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::call::Asked;
pub use super::connection::Connections;
use super::connection::Keeper;
use super::health::Health;
use super::proto::PROTOCOL;
use super::service::Rls;
use super::socket::Accepted;
use super::tls::Tls;
use super::{call, routed};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::stats::Stats;

/// Calls of one connection that are begun before their answers are sent, and others get their turn.
const AT_ONCE: usize = 64;

/// The reflection service refused the protocol's own files.
#[derive(Debug, thiserror::Error)]
#[error("reflection: {0}")]
pub struct ServerError(#[from] tonic_reflection::server::Error);

/// Serves the connections that `incoming` brings until it ends and they have; each is told to go when `drain` is cancelled, and
/// finishes what is under way.
///
/// # Errors
/// [`ServerError`]; a connection that fails ends alone and is none.
pub async fn serve<S: Store>(
    mut incoming: mpsc::Receiver<Accepted>,
    rls: Arc<Rls<S>>,
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

/// Finds the service of a call. The one that nearly all are for is found without the router of the others.
pub(super) struct Services<S> {
    rls: Arc<Rls<S>>,
    max_message_bytes: usize,
    others: Routes,
    /// Counts and times calls, where somebody wants that.
    stats: Option<Arc<Stats>>,
}

impl<S> Clone for Services<S> {
    fn clone(&self) -> Self {
        let (rls, others, stats) = (Arc::clone(&self.rls), self.others.clone(), self.stats.clone());
        Self { rls, max_message_bytes: self.max_message_bytes, others, stats }
    }
}

impl<S: Store> Services<S> {
    fn new(
        rls: Arc<Rls<S>>,
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
        Ok(Self { rls, max_message_bytes, others, stats })
    }

    /// Serves a connection until its end. May be dropped and called again.
    ///
    /// # Errors
    /// What ended it, where that was no closing.
    pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        http: &mut Connection<T, Bytes>,
    ) -> Result<(), h2::Error> {
        let mut calls = Vec::new();
        poll_fn(|cx| {
            loop {
                let next = http.poll_accept(cx)?;
                let waits = next.is_pending();
                match next {
                    Poll::Ready(Some((request, respond))) => calls.extend(self.call(request, respond)),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending if calls.is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                }
                // All that came together are begun together, so that their answers go out in one write.
                if waits || calls.len() >= AT_ONCE {
                    calls.drain(..).for_each(|call| begin(call, cx));
                }
            }
        })
        .await
    }

    /// A call that is to be begun; those of other services are, in tasks of their own.
    fn call(
        &self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) -> Option<Pin<Box<impl Future<Output = ()> + Send + use<S>>>> {
        let path = request.uri().path();
        let timer = self.stats.as_ref().and_then(|stats| stats.begin(path));
        if path == call::PATH {
            let rls = Arc::clone(&self.rls);
            return Some(Box::pin(call::answer(rls, self.max_message_bytes, Asked::of(request), respond, timer)));
        }
        tokio::spawn(routed::answer(self.others.clone(), request, respond, timer));
        None
    }
}

/// Begins a call. What need not wait is answered when this returns, without a task of its own.
fn begin(mut call: Pin<Box<impl Future<Output = ()> + Send + 'static>>, cx: &mut Context<'_>) {
    if call.as_mut().poll(cx).is_pending() {
        tokio::spawn(call);
    }
}
