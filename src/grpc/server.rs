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
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::bodies::Bodies;
use super::call::{Asked, Ends};
use super::caller::Caller;
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
/// Bytes of a question about health, and of one about the services: names of services and types.
const MAX_OTHER_MESSAGE: usize = 4 << 10;

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
    let services = Arc::new(Services::new(rls, health, &connections, &metrics)?);
    let keeper = Arc::new(Keeper::new(connections, tls, metrics, drain));
    let tasks = TaskTracker::new();
    while let Some(accepted) = incoming.recv().await {
        let (keeper, services) = (Arc::clone(&keeper), Arc::clone(&services));
        tasks.spawn(async move { keeper.keep(accepted, &services).await });
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The services of a worker.
pub(super) struct Services<S> {
    rls: Arc<Rls<S>>,
    bodies: Arc<Bodies>,
    others: Routes,
    /// Counts and times calls, where somebody wants that.
    stats: Option<Arc<Stats>>,
}

impl<S: Store> Services<S> {
    fn new(
        rls: Arc<Rls<S>>,
        health: &Health,
        connections: &Connections,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, ServerError> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(PROTOCOL)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let health = HealthServer::new(HealthService::from_health_reporter(health.reporter()));
        let others = Routes::new(health.max_decoding_message_size(MAX_OTHER_MESSAGE))
            .add_service(reflection().build_v1()?.max_decoding_message_size(MAX_OTHER_MESSAGE))
            .add_service(reflection().build_v1alpha()?.max_decoding_message_size(MAX_OTHER_MESSAGE))
            .prepare();
        let bodies = Bodies::new(connections.max_message_bytes, connections.message_timeout, Arc::clone(metrics));
        Ok(Self { rls, bodies: Arc::new(bodies), others, stats: metrics.stats().cloned() })
    }

    /// These services for the calls of one connection.
    pub(super) fn of(&self, caller: Caller) -> Conversation<S> {
        let ends = Ends { rls: Arc::clone(&self.rls), bodies: Arc::clone(&self.bodies), caller };
        Conversation { ends: Arc::new(ends), others: self.others.clone(), stats: self.stats.clone() }
    }
}

/// Finds the service of each call of a connection. The one that nearly all are for is found without the router of the others.
pub(super) struct Conversation<S> {
    ends: Arc<Ends<S>>,
    others: Routes,
    stats: Option<Arc<Stats>>,
}

impl<S: Store> Conversation<S> {
    pub(super) fn caller(&self) -> &Caller {
        &self.ends.caller
    }

    /// Serves the connection until its end, which comes soon after its client wastes calls. May be dropped and called again.
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
                    if self.ends.caller.wastes_calls() {
                        http.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
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
            let asked = Asked::of(request, self.ends.rls.tracer());
            return Some(Box::pin(call::answer(Arc::clone(&self.ends), asked, respond, timer)));
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
