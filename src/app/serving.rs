//! What one worker serves: a service of its own, made on its own runtime, since connections to a store belong to that. HTTP has
//! one like it.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Shared;
use super::stores::Stores;
use crate::grpc::health::Health;
use crate::grpc::rights::Allowance;
use crate::grpc::server::Services as GrpcServices;
use crate::grpc::service::Rls;
use crate::limiter::Limiter;
use crate::settings::{AnswerSettings, LimitSettings, Settings};
use crate::spans::Tracer;
use crate::store::any::AnyStore;
use crate::store::clock::SystemClock;
use crate::telemetry::seldom::Seldom;
use crate::transport::Budget;
use crate::transport::server::Server;
use crate::transport::socket::Accepted;
use crate::transport::tls::Tls;

/// How long the end of a worker waits for charges that have to be undone: the runtime takes them with it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that clients can make the process hold by calls that wait: for the rest of a message, for the store, for a window.
const MAX_HELD: usize = 64 << 20;

/// What all services are made of.
pub(super) struct Serving {
    shared: Shared,
    limits: LimitSettings,
    tls: Option<Tls>,
    allowances: Arc<[Allowance]>,
    /// Memory that clients of gRPC can make the process hold.
    budget: Arc<Budget>,
    tracer: Option<Tracer>,
    answers: AnswerSettings,
    health: Health,
    /// A permit for each service that can ask its store.
    connected: Arc<Semaphore>,
    /// All that were made.
    pub(super) services: Services,
}

/// A service, for the runtime that it was made in.
pub(super) type Service = Rls<AnyStore<SystemClock>>;

/// The services of all workers, for who wants to look at them.
#[derive(Clone, Default)]
pub(super) struct Services(Arc<Mutex<Vec<Weak<Service>>>>);

impl Services {
    /// Those that are there still.
    pub(super) fn all(&self) -> Vec<Arc<Service>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Serving {
    /// No service is made yet.
    pub(super) fn new(
        settings: &Settings,
        shared: &Shared,
        health: Health,
        tls: Option<Tls>,
        tracer: Option<Tracer>,
    ) -> Self {
        Self {
            shared: shared.clone(),
            limits: settings.limits,
            tls,
            allowances: settings.allowances.clone().into(),
            budget: Arc::new(Budget::new(budget_bytes(&settings.limits))),
            tracer,
            answers: settings.answers.clone(),
            health,
            connected: Arc::new(Semaphore::new(0)),
            services: Services::default(),
        }
    }

    /// What services are connected by.
    pub(super) fn stores(&self) -> &Stores {
        &self.shared.stores
    }

    /// A service that begins to connect to its store at once. To be called within a runtime.
    pub(super) fn service(&self) -> Arc<Service> {
        let Shared { policies, stores, metrics, observation, .. } = &self.shared;
        let limiter = Limiter::new(Arc::clone(policies), stores.connect(), self.answers.modes);
        let limiter = limiter.with_pen(observation.journal.pen());
        let (metrics, style) = (Arc::clone(metrics), self.answers.style.clone());
        let service = Rls::new(limiter, metrics, self.limits.request, style, stores.timeout());
        let service = Arc::new(service.with_tracer(self.tracer.clone()));
        self.services.0.lock().push(Arc::downgrade(&service));
        let (asking, connected) = (Arc::clone(&service), Arc::clone(&self.connected));
        tokio::spawn(async move {
            asking.limiter().store().connected().await;
            connected.add_permits(1);
        });
        service
    }

    /// Serves connections until there are no more; from `drain` on they finish what is under way.
    pub(super) async fn serve(self: Arc<Self>, incoming: mpsc::Receiver<Accepted>, drain: CancellationToken) {
        let (service, metrics) = (self.service(), Arc::clone(&self.shared.metrics));
        let (bounds, allowances) = (self.limits.message, Arc::clone(&self.allowances));
        let budget = Arc::clone(&self.budget);
        let services =
            GrpcServices::new(Arc::clone(&service), &self.health, bounds, allowances, budget, Arc::clone(&metrics));
        match services {
            Ok(services) => {
                let (lifetime, budget) = (self.limits.lifetime, Arc::clone(&self.budget));
                let server =
                    Server { lifetime, tls: self.tls.clone(), budget, metrics, drain, warned: Seldom::default() };
                server.serve(incoming, move |client| services.for_client(client)).await;
            }
            Err(error) => error!(%error, "a worker failed"),
        }
        settle(&service).await;
    }

    /// Waits until the services of all workers, and that of HTTP, can ask their stores.
    pub(super) fn all_connected(&self) -> impl Future<Output = ()> + use<> {
        let (connected, services) = (Arc::clone(&self.connected), self.limits.workers.saturating_add(1));
        async move {
            let _ = connected.acquire_many(u32::try_from(services).unwrap_or(u32::MAX)).await;
        }
    }
}

/// Bytes that clients of gRPC can make the process hold. One message of the largest size is never too much.
fn budget_bytes(limits: &LimitSettings) -> usize {
    MAX_HELD.max(limits.message.max_bytes.saturating_mul(4))
}

/// Waits for what goes on after answers; its runtime may end then.
pub(super) async fn settle(service: &Service) {
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, service.limiter().store().settled()).await;
}
