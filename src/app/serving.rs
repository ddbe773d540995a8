//! The service of one worker. Each worker creates its own on its own runtime, since connections to
//! a store belong to a runtime. HTTP has a service of the same kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::connection_log::ConnectionLog;
use super::parts::ProcessParts;
use crate::grpc::health::Health;
use crate::grpc::request_log::RequestLog;
use crate::grpc::rights::Allowance;
use crate::grpc::server::{GrpcServices, Offered};
use crate::grpc::service::Rls;
use crate::grpc::service::gateway::TrustedGateways;
use crate::grpc::service::quotas::QuotaShared;
use crate::http2::Budget;
use crate::http2::observer::ConnectionObserver;
use crate::http2::server::TransportServer;
use crate::http2::socket::Accepted;
use crate::http2::tls::ServerTls;
use crate::limiter::Limiter;
use crate::operations::workers::{WorkerService, WorkerServices};
use crate::settings::{LimitSettings, ResponseSettings, Settings};
use crate::store::backend::Backend;
use crate::telemetry::spans::Tracer;

/// Timeout for pending charges to be undone when a worker ends. Afterwards they are lost with the
/// runtime.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// A factory for services, with the state that they share.
pub(super) struct Serving<B> {
    shared: ProcessParts<B>,
    limits: LimitSettings,
    tls: Option<ServerTls>,
    allowances: Arc<[Allowance]>,
    gateways: TrustedGateways,
    /// Bound on the memory that gRPC clients can make the process hold.
    pub(super) budget: Arc<Budget>,
    /// Receives the events of gRPC connections.
    pub(super) observer: Arc<dyn ConnectionObserver>,
    tracer: Option<Tracer>,
    request_log: Option<Arc<RequestLog>>,
    quotas: Arc<QuotaShared>,
    answers: ResponseSettings,
    health: Health,
    has_reflection: bool,
    /// One permit for each service that is connected to its store.
    connected: Arc<Semaphore>,
    /// All services created so far.
    pub(super) services: WorkerServices<B>,
}

impl<B: Backend> Serving<B> {
    /// Creates a factory.
    pub(super) fn new(
        settings: &Settings,
        shared: &ProcessParts<B>,
        health: Health,
        tls: Option<ServerTls>,
        tracer: Option<Tracer>,
    ) -> Self {
        Self {
            shared: shared.clone(),
            limits: settings.limits,
            tls,
            allowances: settings.allowances.clone().into(),
            gateways: settings.gateways.clone(),
            budget: Arc::new(Budget::new(settings.memory.clients)),
            observer: Arc::new(ConnectionLog::new(Arc::clone(&shared.metrics.clients))),
            tracer,
            request_log: request_log(),
            quotas: QuotaShared::new(settings.loans.quotas),
            answers: settings.answers.clone(),
            health,
            has_reflection: settings.listen.has_reflection,
            connected: Arc::new(Semaphore::new(0)),
            services: WorkerServices::default(),
        }
    }

    /// Creates a service that starts to connect to its store at once. Must be called within a
    /// runtime.
    pub(super) fn service(&self) -> Arc<WorkerService<B>> {
        let ProcessParts { policies, stores, metrics, observation, loan_keys, .. } = &self.shared;
        let limiter = Limiter::new(Arc::clone(policies), stores.connect(), self.answers.modes);
        let limiter = limiter.with_recorder(observation.journal.recorder());
        let metrics = Arc::clone(metrics);
        let style = self.answers.style.clone();
        let service = Rls::new(limiter, metrics, self.limits.request, style, stores.timeout());
        let service = service.with_tracer(self.tracer.clone()).with_budget(&self.budget);
        let service = service.with_receipt_keys(loan_keys.keys.clone());
        let service = service.with_quotas(Arc::clone(&self.quotas));
        let service = Arc::new(service.with_request_log(self.request_log.clone()));
        self.services.register(&service);
        let asking = Arc::clone(&service);
        let connected = Arc::clone(&self.connected);
        tokio::spawn(async move {
            asking.limiter().store().backend().connected().await;
            connected.add_permits(1);
        });
        service
    }

    /// Serves connections until there are no more; once `drain` is cancelled, they only finish
    /// their pending calls.
    pub(super) async fn serve(
        self: Arc<Self>,
        incoming: mpsc::Receiver<Accepted>,
        drain: CancellationToken,
    ) {
        let service = self.service();
        let metrics = Arc::clone(&self.shared.metrics);
        let bounds = self.limits.message;
        let allowances = Arc::clone(&self.allowances);
        let gateways = self.gateways.clone();
        let offered = Offered { bounds, allowances, gateways, has_reflection: self.has_reflection };
        let services = GrpcServices::new(Arc::clone(&service), &self.health, offered, metrics);
        match services {
            Ok(services) => {
                let lifetime = self.limits.lifetime;
                let budget = Arc::clone(&self.budget);
                let server = TransportServer {
                    lifetime,
                    tls: self.tls.clone(),
                    budget,
                    observer: Arc::clone(&self.observer),
                    drain,
                };
                let for_client = move |client: &_, account| services.for_client(client, account);
                server.serve(incoming, for_client).await;
            }
            Err(error) => error!(%error, "worker failed"),
        }
        settle(&service).await;
    }

    /// Waits until the services of all workers and of HTTP are connected to their stores.
    pub(super) fn all_connected(&self) -> impl Future<Output = ()> + use<B> {
        let connected = Arc::clone(&self.connected);
        let services = self.limits.workers.saturating_add(1);
        async move {
            let _ = connected.acquire_many(u32::try_from(services).unwrap_or(u32::MAX)).await;
        }
    }
}

/// Starts the request log, if enabled.
fn request_log() -> Option<Arc<RequestLog>> {
    let log = RequestLog::begin()
        .inspect_err(|error| error!(%error, "request log disabled: failed to start its thread"));
    log.ok().flatten().map(Arc::new)
}

/// Waits for work that continues after responses, for at most [`SETTLE_TIMEOUT`]. The runtime may
/// end afterwards.
pub(super) async fn settle(service: &WorkerService<impl Backend>) {
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, service.limiter().store().settled()).await;
}
