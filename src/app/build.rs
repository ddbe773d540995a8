//! The second phase: builds the parts of a service. Its tasks and workers run, and nothing listens
//! yet.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::system::uname;
use tokio::task::JoinHandle;

use super::http::{self, Web};
use super::policies::InitialPolicies;
use super::ports::Listeners;
use super::prepare::Prepared;
use super::running::{Probed, Running};
use super::serve::{Callers, Operators};
use super::serving::Serving;
use super::statistics::StatisticsServices;
use super::stores::OpenStore;
use super::tasks::Tasks;
use super::workers::Workers;
use super::{ProcessParts, candidates, control_plane, policies, readiness, spans, threads};
use crate::grpc::health::Health;
use crate::http2::registry::Registry;
use crate::operations::denial_sync::DenialSync;
use crate::operations::policies::{Installer, PolicyReloader};
use crate::operations::replicas::ReplicaDirectory;
use crate::operations::workers::WorkerService;
use crate::operations::{Backend, Operations};
use crate::policy::source::SourceReading;
use crate::settings::{PolicySettings, Settings};
use crate::xds::ControlPlane;

/// A service that does not listen yet.
pub(super) struct Built<B> {
    /// The ports of operators.
    pub(super) operators: Operators<B>,
    /// The ports of callers.
    pub(super) callers: Callers<B>,
    /// The state that probes see.
    pub(super) probed: Probed,
    /// The parts that run already.
    pub(super) running: Running<B>,
}

/// Builds a service over a store.
///
/// # Errors
/// A thread or a runtime cannot be created.
pub(super) async fn build<B: Backend>(
    open: OpenStore<B>,
    settings: Settings,
    prepared: Prepared,
) -> io::Result<Built<B>> {
    let Prepared { listeners: Listeners { public, admin }, connections, admission, .. } = prepared;
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
    let tracer = spans::begin(settings.tracing.clone(), &shared.metrics.spans, &mut tasks);
    let tls = prepared.certificates.as_ref().map(|certificates| certificates.tls.clone());
    let serving = Arc::new(Serving::new(&settings, &shared, health.clone(), tls, tracer));
    let service = serving.service();
    let (mirroring, is_serving) = readiness::mirror(&shared.process, &health).await;
    let follow_store = readiness::follow_store(&shared, &serving, &service, &settings.readiness);
    tasks.add("store-state", follow_store);
    let denial_sync = DenialSync::new(shared.stores.id(), &shared.observation.journal, &service);
    maintain(&mut tasks, &shared, &service, &denial_sync);
    let operations = operations(&settings, &shared, &serving, &service, &installer, &denial_sync);
    tasks.spawn("replicas", operations.replicas.clone().run());
    let budget = Arc::clone(&serving.budget);
    let registry = Registry::new(connections.grpc, budget, Arc::clone(&serving.observer));
    let workers = Workers::start(settings.limits.workers, move |incoming, drain| {
        Arc::clone(&serving).serve(incoming, drain)
    })?;
    let decisions = http::decisions(&service, &settings, registry.budget())?;
    let are_examples = settings.policy.are_examples;
    tasks.add("policies", follow_policies(settings.policy, settings.xds, read, installer)?);

    let tls = prepared.admin_certificates.as_ref().map(|certificates| certificates.tls.clone());
    let rights = Arc::clone(&admission.rights);
    let web = Web { shared: shared.clone(), operations, rights, connections, tls };
    let certificates = [prepared.certificates, prepared.admin_certificates];
    let operators = Operators {
        web,
        listener: admin,
        admission,
        certificates,
        statistics,
        stats_listener: prepared.stats,
    };
    let process = Arc::clone(&shared.process);
    let probed = Probed { process, health: health.clone(), mirroring };
    let callers =
        Callers { shared, public, is_serving, are_examples, registry, connections, decisions };
    let running = Running { health, workers, tasks, denial_sync, service, sending };
    Ok(Built { operators, callers, probed, running })
}

fn operations<B: Backend>(
    settings: &Settings,
    shared: &ProcessParts<B>,
    serving: &Serving<B>,
    service: &Arc<WorkerService<B>>,
    installer: &Installer,
    denial_sync: &DenialSync<B>,
) -> Operations<B> {
    Operations {
        service: Arc::clone(service),
        services: serving.services.clone(),
        reports: shared.stores.reports().clone(),
        cached_for: shared.stores.cached_for(),
        bounds: settings.limits.request,
        reloads: settings.xds.is_none().then(|| reloader(&settings.policy)),
        installer: installer.clone(),
        denial_sync: denial_sync.clone(),
        replicas: ReplicaDirectory {
            id: Arc::clone(shared.stores.id()),
            name: uname().nodename().to_string_lossy().into(),
            begun: Timestamp::now(),
            process: Arc::clone(&shared.process),
            service: Arc::clone(service),
            rates: Arc::clone(&shared.observation.rates),
            fetched: Arc::default(),
            is_registered: shared.stores.sends_heartbeats(),
        },
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
) -> io::Result<JoinHandle<()>> {
    match plane {
        None => Ok(tokio::spawn(policies::follow(settings, installer))),
        Some(plane) => threads::spawn("control-plane", move || {
            control_plane::follow(plane, settings, read, installer)
        }),
    }
}
