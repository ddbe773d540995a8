//! What one worker serves: a service of its own, made on its own runtime, since connections to a store belong to that. HTTP has
//! one like it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::stores::Stores;
use crate::grpc::health::Health;
use crate::grpc::server;
use crate::grpc::service::Rls;
use crate::grpc::socket::Accepted;
use crate::grpc::tls::Tls;
use crate::limiter::{InForce, Limiter};
use crate::settings::{AnswerSettings, LimitSettings};
use crate::spans::Tracer;
use crate::store::any::AnyStore;
use crate::store::clock::SystemClock;
use crate::telemetry::metrics::Metrics;

/// How long the end of a worker waits for charges that have to be undone: the runtime takes them with it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// What all services are made of.
pub(super) struct Serving {
    pub(super) policies: Arc<InForce>,
    pub(super) stores: Stores,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: LimitSettings,
    pub(super) tls: Option<Tls>,
    pub(super) tracer: Option<Tracer>,
    pub(super) answers: AnswerSettings,
    pub(super) health: Health,
    /// A permit for each service that can ask its store.
    pub(super) connected: Arc<Semaphore>,
}

/// A service, for the runtime that it was made in.
pub(super) type Service = Rls<AnyStore<SystemClock>>;

impl Serving {
    /// A service that begins to connect to its store at once. To be called within a runtime.
    pub(super) fn service(&self) -> Arc<Service> {
        let limiter = Limiter::new(Arc::clone(&self.policies), self.stores.connect(), self.answers.modes);
        let (metrics, style) = (Arc::clone(&self.metrics), self.answers.style.clone());
        let service = Rls::new(limiter, metrics, self.limits.request, style, self.stores.timeout());
        let service = Arc::new(service.with_tracer(self.tracer.clone()));
        let (asking, connected) = (Arc::clone(&service), Arc::clone(&self.connected));
        tokio::spawn(async move {
            asking.limiter().store().connected().await;
            connected.add_permits(1);
        });
        service
    }

    /// Serves connections until there are no more; from `drain` on they finish what is under way.
    pub(super) async fn serve(self: Arc<Self>, incoming: mpsc::Receiver<Accepted>, drain: CancellationToken) {
        let (service, connections) = (self.service(), self.limits.connections);
        let (asked, tls, metrics) = (Arc::clone(&service), self.tls.clone(), Arc::clone(&self.metrics));
        let served = server::serve(incoming, asked, &self.health, connections, tls, metrics, drain).await;
        served.unwrap_or_else(|error| error!(%error, "a worker failed"));
        settle(&service).await;
    }

    /// Waits until the services of all workers, and that of HTTP, can ask their stores.
    pub(super) async fn connected(connected: Arc<Semaphore>, workers: usize) {
        let _ = connected.acquire_many(u32::try_from(workers.saturating_add(1)).unwrap_or(u32::MAX)).await;
    }
}

/// Waits for what goes on after answers; its runtime may end then.
pub(super) async fn settle(service: &Service) {
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, service.limiter().store().settled()).await;
}
