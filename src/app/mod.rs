//! The composition root: the only module that names every concrete type.
//!
//! Builds a running service from the settings. Listeners are bound and policies loaded first, and
//! all errors are reported together; then the service runs until shutdown, and drains.
//!
//! | file | subject |
//! |---|---|
//! | `prepare`, `cannot_start`, `listener`, `certificates`, `files` | before the service starts |
//! | `workers`, `serving`, `connections` | the gRPC service, one per core; its connections |
//! | `http`, `plain_pages`, `rights` | HTTP: its servers, pages, tokens |
//! | `decisions`, `json`, `forward_auth`, `openapi` | decisions over HTTP |
//! | `policies`, `policy_watch`, `control_plane`, `candidates` | sources of policies |
//! | `stores`, `statistics`, `observation`, `spans` | what a service uses |
//! | `readiness` | when the process is ready |
//! | `loan_keys` | keys that sign receipts of loans |
//! | `tasks`, `threads` | background tasks, and their end |

mod candidates;
mod cannot_start;
mod certificates;
mod connections;
mod control_plane;
mod decisions;
mod files;
mod forward_auth;
mod http;
mod json;
pub mod listener;
mod loan_keys;
mod observation;
mod openapi;
mod plain_pages;
mod policies;
mod policy_watch;
mod prepare;
mod readiness;
mod rights;
mod serving;
mod spans;
mod statistics;
mod stores;
mod tasks;
mod threads;
pub mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::task::JoinHandle;
use tracing::info;

pub use self::cannot_start::CannotStart;
use self::certificates::Certificates;
use self::http::Web;
use self::loan_keys::LoanKeys;
use self::observation::Observation;
use self::policies::InitialPolicies;
use self::prepare::Listeners;
pub use self::prepare::{Prepared, prepare};
use self::rights::Admission;
use self::serving::Serving;
use self::statistics::StatisticsServices;
use self::stores::Stores;
pub use self::stores::{OpenStore, StoreParts};
use self::tasks::Tasks;
use self::workers::Workers;
use crate::grpc::health::Health;
use crate::http2::registry::Registry;
use crate::limiter::InForce;
use crate::operations::denial_sync::DenialSync;
use crate::operations::policies::{Installer, PolicyReloader};
use crate::operations::process_state::ProcessState;
use crate::operations::workers::WorkerService;
use crate::operations::{Backend, Operations};
use crate::policy::CompileOptions;
use crate::policy::source::SourceReading;
use crate::settings::{PolicySettings, Settings, ShutdownSettings};
use crate::statistics::statsd::StatsdExporter;
use crate::telemetry::metrics::Metrics;
use crate::xds::ControlPlane;

/// Timeout for publishing the last denials to other replicas.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

/// State shared by all parts of the process.
#[derive(Clone)]
struct ProcessParts<B> {
    metrics: Arc<Metrics>,
    policies: Arc<InForce>,
    process: Arc<ProcessState>,
    stores: Stores<B>,
    observation: Observation,
    loan_keys: LoanKeys,
}

impl<B: Backend> ProcessParts<B> {
    /// Creates the state before policies are loaded or stores are connected.
    fn new(settings: &Settings, open: OpenStore<B>, metrics: Arc<Metrics>) -> Self {
        let stores = Stores::new(settings.store.clone(), open, Arc::clone(&metrics));
        // HTTP has a service of its own, like each worker.
        let services = settings.limits.workers.saturating_add(1);
        Self {
            policies: InForce::new(Arc::clone(&metrics)),
            process: readiness::begin(&settings.readiness, &stores),
            observation: Observation::new(settings.observation.journal_bytes, services),
            loan_keys: LoanKeys::new(&settings.loans),
            stores,
            metrics,
        }
    }

    /// Creates the installer of policies.
    fn installer(&self, options: &CompileOptions) -> Installer {
        let policies = Arc::clone(&self.policies);
        Installer::new(policies, Arc::clone(&self.process), Arc::clone(&self.metrics), options)
    }
}

/// Serves with the store that the settings select until `shutdown` completes, then drains.
///
/// # Errors
/// A thread or a runtime cannot be created, or a listener fails to listen.
pub async fn run(
    settings: Settings,
    prepared: Prepared,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let open = stores::selected(&settings.store);
    run_over(open, settings, prepared, shutdown).await
}

/// Serves with any store, of which `open` creates a handle for each runtime.
///
/// # Errors
/// As for [`run`].
pub async fn run_over<B: Backend>(
    open: OpenStore<B>,
    settings: Settings,
    prepared: Prepared,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    // Build.
    let statistics = StatisticsServices::new(settings.stats.clone());
    let metrics = statistics.metrics(settings.observation.max_rules);
    let sending = statistics.send(&metrics)?;
    let shared = ProcessParts::new(&settings, open, metrics);
    let health = Health::new().await;
    let mut tasks = Tasks::default();
    let installer = shared.installer(&settings.policy.options);
    let InitialPolicies { read, loaded } = prepared.policies;
    installer.begin(&read, loaded);
    tasks.add("candidates", candidates::begin(&settings.policy, &installer)?);
    let (mirroring, is_serving) = readiness::mirror(&shared.process, &health).await;
    let tracer = spans::begin(settings.tracing.clone(), &shared.metrics, &mut tasks);
    let tls = prepared.certificates.as_ref().map(|certificates| certificates.tls.clone());
    let serving = Arc::new(Serving::new(&settings, &shared, health.clone(), tls, tracer));
    let service = serving.service();
    let follow_store = readiness::follow_store(&shared, &serving, &service, &settings.readiness);
    tasks.add("store-state", follow_store);
    let denial_sync = DenialSync::new(shared.stores.id(), &shared.observation.journal, &service);
    let operations = Operations {
        service: Arc::clone(&service),
        services: serving.services.clone(),
        reports: shared.stores.reports().clone(),
        cached_for: shared.stores.cached_for(),
        bounds: settings.limits.request,
        reloads: settings.xds.is_none().then(|| reloader(&settings.policy)),
        installer: installer.clone(),
        denial_sync: denial_sync.clone(),
    };
    let budget = Arc::clone(&serving.budget);
    let connections = prepared.connections;
    let registry = Registry::new(connections.grpc, budget, Arc::clone(&serving.observer));
    let serve_worker = move |incoming, drain| Arc::clone(&serving).serve(incoming, drain);
    let workers = Workers::start(settings.limits.workers, serve_worker)?;
    let decisions = http::decisions(&service, &settings, registry.budget())?;
    let are_examples = settings.policy.are_examples;
    tasks.add("policies", follow_policies(settings.policy, settings.xds, read, installer)?);
    maintain(&mut tasks, &shared, &service, &denial_sync);

    // Serve.
    connections.announce();
    prepared.admission.announce();
    let Listeners { public, admin } = prepared.listeners;
    let tls = prepared.admin_certificates.as_ref().map(|certificates| certificates.tls.clone());
    let rights = Arc::clone(&prepared.admission.rights);
    let web = Web { shared: shared.clone(), operations, rights, connections, tls };
    tasks.add_finishing("admin", web.serve_admin(admin, tasks.end()));
    if let Some(stats) =
        statistics.serve(prepared.stats, connections.stats, &shared.metrics, tasks.end())
    {
        tasks.add_finishing("stats", stats);
    }
    let certificates = [prepared.certificates, prepared.admin_certificates];
    tasks.add("files", follow_files(certificates, prepared.admission, &shared));
    let mut running = Running { health, workers, tasks, denial_sync, service, sending };
    let serve = async {
        let (grpc, http) = public.open(is_serving, are_examples).await?;
        let end = running.tasks.end();
        let http = http::serve_public(&shared, http, connections.http, decisions, end)?;
        running.tasks.add_finishing("http", http);
        tokio::join!(running.workers.accept(&grpc, &registry), registry.relieve());
        std::io::Result::Ok(())
    };
    tokio::select! {
        served = serve => served?,
        () = stopping(shutdown, mirroring, &shared.process, &running.health, &settings.shutdown) => {}
    }
    running.stop(settings.shutdown.timeout).await;
    Ok(())
}

/// The parts of a running service that end in order.
struct Running<B> {
    health: Health,
    workers: Workers,
    tasks: Tasks,
    denial_sync: DenialSync<B>,
    service: Arc<WorkerService<B>>,
    sending: Option<StatsdExporter>,
}

impl<B: Backend> Running<B> {
    /// Finishes the calls under way, then publishes and sends what is left.
    async fn stop(mut self, timeout: Duration) {
        self.health.end_watches().await;
        let all_finished = self.workers.stop(timeout).await;
        self.tasks.abort_endless();
        let _ = tokio::time::timeout(PUBLISH_TIMEOUT, self.denial_sync.publish()).await;
        self.tasks.finish().await;
        serving::settle(&self.service).await;
        StatisticsServices::end(self.sending);
        info!(all_finished, "stopped");
    }
}

/// Spawns the tasks that maintain stores, denials and rates.
fn maintain<B: Backend>(
    tasks: &mut Tasks,
    shared: &ProcessParts<B>,
    service: &Arc<WorkerService<B>>,
    denial_sync: &DenialSync<B>,
) {
    let ProcessParts { metrics, policies, stores, observation, .. } = shared.clone();
    tasks.spawn("stores", stores.clone().maintain());
    tasks.spawn("servers", stores.poll_servers(Arc::clone(service)));
    tasks.spawn("denials", denial_sync.clone().run());
    tasks.spawn("observation", observation.follow(policies, metrics));
}

/// Returns the reload of the configured files.
fn reloader(settings: &PolicySettings) -> PolicyReloader {
    PolicyReloader { places: settings.places.clone(), options: settings.options }
}

/// Follows the source of policies: files, or a control plane.
fn follow_policies(
    settings: PolicySettings,
    plane: Option<ControlPlane>,
    read: SourceReading,
    installer: Installer,
) -> std::io::Result<JoinHandle<()>> {
    match plane {
        None => Ok(tokio::spawn(policies::follow(settings, installer))),
        Some(plane) => threads::spawn("control-plane", move || {
            control_plane::follow(plane, settings, read, installer)
        }),
    }
}

/// Waits for `shutdown`, reports NOT_SERVING to all probes, and gives clients time to move to
/// another replica.
async fn stopping(
    shutdown: impl Future<Output = ()>,
    mirroring: JoinHandle<()>,
    process: &ProcessState,
    health: &Health,
    settings: &ShutdownSettings,
) {
    shutdown.await;
    info!(delay = ?settings.delay, "draining");
    process.drain();
    // Set here, so that health is updated before this function continues. The task that also
    // updates it must end first.
    mirroring.abort();
    let _ = mirroring.await;
    health.set(false).await;
    tokio::time::sleep(settings.delay).await;
}

/// Reloads certificates, tokens and keys when their files change, forever.
fn follow_files<B: Backend>(
    certificates: [Option<Certificates>; 2],
    admission: Admission,
    shared: &ProcessParts<B>,
) -> JoinHandle<()> {
    let certificates = certificates
        .map(|certificates| certificates.map(|them| them.follow(Arc::clone(&shared.metrics))));
    let all = certificates
        .into_iter()
        .flatten()
        .map(FutureExt::boxed)
        .chain([admission.follow().boxed(), shared.loan_keys.clone().follow().boxed()]);
    tokio::spawn(join_all(all.collect::<Vec<_>>()).map(drop))
}
