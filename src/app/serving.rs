//! What one worker serves: a service of its own, made on its own runtime, since connections to a store belong to that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::stores::Stores;
use super::workers::Incoming;
use crate::grpc::health::Health;
use crate::grpc::server;
use crate::grpc::service::Rls;
use crate::limiter::{InForce, Limiter};
use crate::settings::LimitSettings;
use crate::telemetry::metrics::Metrics;

/// How long the end of a worker waits for charges that have to be undone: the runtime takes them with it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// What all workers make their services of.
pub(super) struct Serving {
    pub(super) policies: Arc<InForce>,
    pub(super) stores: Stores,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: LimitSettings,
    pub(super) health: Health,
    /// A permit for each worker that can ask its store.
    pub(super) connected: Arc<Semaphore>,
}

impl Serving {
    /// Serves connections until `drain`, then finishes what is under way.
    pub(super) async fn serve(self: Arc<Self>, incoming: Incoming, drain: CancellationToken) {
        let limiter = Limiter::new(Arc::clone(&self.policies), self.stores.connect(), self.limits.shadow_mode);
        let (metrics, limits) = (Arc::clone(&self.metrics), &self.limits);
        let rls = Arc::new(Rls::new(limiter, metrics, limits.request, limits.style, self.stores.timeout()));
        let (asking, connected) = (Arc::clone(&rls), Arc::clone(&self.connected));
        tokio::spawn(async move {
            asking.limiter().store().connected().await;
            connected.add_permits(1);
        });
        let (stats, shutdown) = (self.metrics.stats(), drain.cancelled_owned());
        let served = server::serve(incoming, Arc::clone(&rls), &self.health, stats, self.limits.connections, shutdown);
        served.await.unwrap_or_else(|error| error!(%error, "a worker failed"));
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, rls.limiter().store().settled()).await;
    }

    /// Waits until every worker can ask its store.
    pub(super) async fn connected(connected: Arc<Semaphore>, workers: usize) {
        let _ = connected.acquire_many(u32::try_from(workers).unwrap_or(u32::MAX)).await;
    }
}
