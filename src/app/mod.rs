//! The composition root: the only module that names every concrete type.
//!
//! Builds a running service from the settings. Listeners are bound and policies loaded first, and
//! all errors are reported together; then the service runs until shutdown, and drains.

mod candidates;
mod certificates;
mod compiler;
mod control_plane;
mod counters;
mod denial_sync;
mod files;
mod json;
pub mod listener;
mod observation;
mod operations;
mod pages;
mod policies;
mod prepare;
mod readiness;
mod rights;
mod serving;
mod spans;
mod statistics;
mod stores;
mod threads;
mod web;
pub mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::certificates::Certificates;
use self::denial_sync::DenialSync;
use self::observation::Observation;
use self::operations::WorkerOperations;
use self::policies::Installer;
use self::prepare::Listeners;
pub use self::prepare::{CannotStart, Prepared, prepare};
use self::rights::Admission;
use self::serving::Serving;
use self::statistics::StatisticsServices;
use self::stores::Stores;
use self::web::Web;
use self::workers::Workers;
use crate::admin::ProcessState;
use crate::grpc::health::Health;
use crate::limiter::InForce;
use crate::policy::source::watch;
use crate::settings::{PolicySettings, Settings, ShutdownSettings};
use crate::telemetry::metrics::Metrics;
use crate::transport::registry::Registry;
use crate::xds::ControlPlane;

/// Timeout for publishing the last denials to other replicas.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

/// State shared by all parts of the process.
#[derive(Clone)]
struct ProcessParts {
    metrics: Arc<Metrics>,
    policies: Arc<InForce>,
    facts: Arc<ProcessState>,
    stores: Stores,
    observation: Observation,
}

impl ProcessParts {
    /// Creates the state before policies are loaded or stores are connected.
    fn new(settings: &Settings, metrics: Arc<Metrics>) -> Self {
        let stores = Stores::new(settings.store.clone(), Arc::clone(&metrics));
        // HTTP has a service of its own, like each worker.
        let services = settings.limits.workers.saturating_add(1);
        Self {
            policies: InForce::new(Arc::clone(&metrics)),
            facts: readiness::begin(&settings.readiness, &stores),
            observation: Observation::new(settings.observation.journal_bytes, services),
            stores,
            metrics,
        }
    }
}

/// Serves until `shutdown` completes, then drains.
///
/// # Errors
/// A thread or a runtime cannot be created, or a listener fails to listen.
pub async fn run(settings: Settings, prepared: Prepared, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
    let statistics = StatisticsServices::new(settings.stats.clone());
    let metrics = statistics.metrics(settings.observation.max_rules);
    let sending = statistics.send(&metrics)?;
    let shared = ProcessParts::new(&settings, metrics);
    let health = Health::new().await;
    let installer = Installer::new(&shared, &settings.policy.options);
    let facts = Arc::clone(&shared.facts);
    let read = installer.begin(prepared.policies);
    let try_out = candidates::begin(&settings.policy, &installer)?;
    let (mirroring, is_serving) = readiness::mirror(&facts, &health).await;
    let ended = CancellationToken::new();
    let (tracer, sending_spans) = spans::begin(settings.tracing.clone(), &shared.metrics, &ended);
    let tls = prepared.certificates.as_ref().map(|certificates| certificates.tls.clone());
    let serving = Arc::new(Serving::new(&settings, &shared, health.clone(), tls, tracer));
    let service = serving.service();
    let follow_store = readiness::follow_store(&shared, serving.all_connected(), &service, &settings.readiness);
    let denial_sync = DenialSync::new(shared.stores.id(), &shared.observation.journal, &service);
    let operations = WorkerOperations::new(&settings, &service, &serving, installer.clone(), denial_sync.clone());
    let connections = prepared.connections;
    let registry = Registry::new(connections.grpc, Arc::clone(&serving.budget), Arc::clone(&shared.metrics));
    let workers =
        Workers::start(settings.limits.workers, move |incoming, drain| Arc::clone(&serving).serve(incoming, drain))?;
    connections.announce();
    let Listeners { public, admin } = prepared.listeners;
    let are_examples = settings.policy.are_examples;
    let end = || ended.clone().cancelled_owned();
    let decide = json::decide(&service, &settings.limits, registry.budget(), !settings.allowances.is_empty())?;
    let tls = prepared.admin_certificates.as_ref().map(|certificates| certificates.tls.clone());
    let web =
        Web { shared: shared.clone(), operations, rights: Arc::clone(&prepared.admission.rights), connections, tls };
    let mut background = vec![web.serve_admin(admin, end())];
    let stats = statistics.serve(prepared.stats, connections.stats, &shared.metrics, end());
    background.extend(stats.into_iter().chain(sending_spans));
    let tasks = [
        follow_store,
        try_out,
        follow_policies(settings.policy, settings.xds, read, installer)?,
        tokio::spawn(shared.stores.clone().maintain()),
        tokio::spawn(denial_sync.clone().run()),
        tokio::spawn(shared.stores.clone().poll_servers(Arc::clone(&service))),
        tokio::spawn(shared.observation.clone().follow(Arc::clone(&shared.policies), Arc::clone(&shared.metrics))),
        follow_files([prepared.certificates, prepared.admin_certificates], prepared.admission, &shared.metrics),
    ];

    let serve = async {
        let (grpc, http) = public.open(is_serving, are_examples).await?;
        background.push(web::serve_public(&shared, http, connections.http, decide, end())?);
        let ((), ()) = tokio::join!(workers.accept(&grpc, &registry), registry.relieve());
        std::io::Result::Ok(())
    };
    tokio::select! {
        served = serve => served?,
        () = stopping(shutdown, mirroring, &facts, &health, &settings.shutdown) => {}
    }
    health.end_watches().await;
    let all_finished = workers.stop(settings.shutdown.timeout).await;
    tasks.iter().for_each(JoinHandle::abort);
    let _ = tokio::time::timeout(PUBLISH_TIMEOUT, denial_sync.publish()).await;
    ended.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), join_tasks(background)).await;
    serving::settle(&service).await;
    StatisticsServices::end(sending);
    info!(all_finished, "stopped");
    Ok(())
}

/// Follows the source of policies: files, or a control plane.
fn follow_policies(
    settings: PolicySettings,
    plane: Option<ControlPlane>,
    read: watch::SourceReading,
    installer: Installer,
) -> std::io::Result<JoinHandle<()>> {
    match plane {
        None => Ok(tokio::spawn(policies::follow(settings, read, installer))),
        Some(plane) => threads::spawn("control-plane", move || control_plane::follow(plane, settings, read, installer)),
    }
}

/// Waits for `shutdown`, reports NOT_SERVING to all probes, and gives clients time to move to
/// another replica.
async fn stopping(
    shutdown: impl Future<Output = ()>,
    mirroring: JoinHandle<()>,
    facts: &ProcessState,
    health: &Health,
    settings: &ShutdownSettings,
) {
    shutdown.await;
    info!(delay = ?settings.delay, "draining");
    facts.drain();
    // Set here, so that health is updated before this function continues. The task that also
    // updates it must end first.
    mirroring.abort();
    let _ = mirroring.await;
    health.set(false).await;
    tokio::time::sleep(settings.delay).await;
}

async fn join_tasks(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

/// Reloads certificates and tokens when their files change, forever.
fn follow_files(
    certificates: [Option<Certificates>; 2],
    admission: Admission,
    metrics: &Arc<Metrics>,
) -> JoinHandle<()> {
    let certificates = certificates.map(|certificates| certificates.map(|them| them.follow(Arc::clone(metrics))));
    let all = certificates.into_iter().flatten().map(FutureExt::boxed).chain([admission.follow().boxed()]);
    tokio::spawn(join_all(all.collect::<Vec<_>>()).map(drop))
}
