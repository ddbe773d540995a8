//! The composition root: the only room that names every concrete type.
//!
//! Settings in, a running service out: listeners are bound and policies loaded first, with everything that is wrong said at
//! once; then the service runs until it is told to stop, and drains.

mod candidates;
mod certificates;
mod control_plane;
mod counters;
mod desk;
mod json;
pub mod listener;
mod observation;
mod pages;
mod policies;
mod prepare;
mod readiness;
mod rights;
mod serving;
mod spans;
mod statistics;
mod stores;
mod telling;
mod threads;
mod web;
pub mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::certificates::Certificates;
use self::desk::Everybody;
use self::observation::Observation;
use self::policies::Installer;
use self::prepare::Listeners;
pub use self::prepare::{CannotStart, Prepared, prepare};
use self::serving::Serving;
use self::statistics::Statistics;
use self::stores::Stores;
use self::telling::Telling;
use self::web::Web;
use self::workers::Workers;
use crate::admin::Facts;
use crate::grpc::health::Health;
use crate::limiter::InForce;
use crate::policy::source::watch;
use crate::settings::{PolicySettings, Settings, ShutdownSettings};
use crate::telemetry::metrics::Metrics;
use crate::transport::permits::ConnectionPermits;
use crate::xds::ControlPlane;

/// Time to tell other processes what was denied last.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What all parts of the process share.
#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    policies: Arc<InForce>,
    facts: Arc<Facts>,
    stores: Stores,
    observation: Observation,
}

impl Shared {
    /// Nothing is loaded, connected to or known yet.
    fn new(settings: &Settings, metrics: Arc<Metrics>) -> Self {
        let stores = Stores::new(settings.store.clone(), Arc::clone(&metrics));
        // HTTP has a service as each worker has.
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

/// Serves until `shutdown`, then drains.
///
/// # Errors
/// Where threads or runtimes cannot be had.
pub async fn run(settings: Settings, prepared: Prepared, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
    let statistics = Statistics::new(settings.stats.clone());
    let metrics = statistics.metrics(settings.observation.max_rules);
    let sending = statistics.send(&metrics)?;
    let (shared, health) = (Shared::new(&settings, metrics), Health::new().await);
    let (installer, facts) = (Installer::new(&shared), Arc::clone(&shared.facts));
    let read = installer.begin(prepared.policies);
    let try_out = candidates::begin(&settings.policy, &shared.policies)?;
    let (telling, ended) = (readiness::tell(&facts, &health).await, CancellationToken::new());
    let (tracer, sending_spans) = spans::begin(settings.tracing.clone(), &shared.metrics, &ended);
    let tls = prepared.certificates.as_ref().map(|certificates| certificates.tls.clone());
    let serving = Arc::new(Serving::new(&settings, &shared, health.clone(), tls, tracer));
    let service = serving.service();
    let while_store = settings.readiness.ready_while_store;
    let follow_store = readiness::follow_store(&shared, serving.all_connected(), Arc::clone(&service), while_store);
    let telling_others = Telling::new(shared.stores.id(), &shared.observation.journal, &service);
    let desk = Everybody::new(&settings, &service, &serving, installer.clone(), telling_others.clone());
    let workers =
        Workers::start(settings.limits.workers, move |incoming, drain| Arc::clone(&serving).serve(incoming, drain))?;
    prepared.listeners.announce(settings.policy.are_examples);
    let Listeners { grpc, http, admin } = prepared.listeners;
    let end = || ended.clone().cancelled_owned();
    let decide = json::decide(&service, &settings.limits, !settings.allowances.is_empty());
    let tls = prepared.admin_certificates.as_ref().map(|certificates| certificates.tls.clone());
    let web = Web { shared: shared.clone(), desk, rights: Arc::clone(&prepared.admission.rights), tls };
    let mut background = vec![web.serve_public(http, decide, end())?, web.serve_admin(admin, end())];
    background.extend(statistics.serve(prepared.stats, &shared.metrics, end()).into_iter().chain(sending_spans));
    let permits = ConnectionPermits::new(settings.limits.max_connections, Arc::clone(&shared.metrics));
    let tasks = [
        follow_store,
        try_out,
        follow_policies(settings.policy, settings.xds, read, installer)?,
        tokio::spawn(shared.stores.clone().tend()),
        tokio::spawn(telling_others.clone().tell()),
        tokio::spawn(shared.stores.clone().listen(Arc::clone(&service))),
        tokio::spawn(shared.observation.clone().follow(Arc::clone(&shared.policies), Arc::clone(&shared.metrics))),
        tokio::spawn(follow(prepared.certificates, Arc::clone(&shared.metrics))),
        tokio::spawn(follow(prepared.admin_certificates, Arc::clone(&shared.metrics))),
        tokio::spawn(prepared.admission.follow()),
    ];

    tokio::select! {
        () = workers.accept(&grpc, &permits) => {}
        () = stopping(shutdown, telling, &facts, &health, &settings.shutdown) => {}
    }
    drop(grpc);
    health.end_watches().await;
    let all_finished = workers.stop(settings.shutdown.timeout).await;
    tasks.iter().for_each(JoinHandle::abort);
    let _ = tokio::time::timeout(LAST_WORDS, telling_others.tell_now()).await;
    ended.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), futures_all(background)).await;
    serving::settle(&service).await;
    Statistics::end(sending);
    info!(all_finished, "stopped");
    Ok(())
}

/// Follows what brings policies: files, or a control plane.
fn follow_policies(
    settings: PolicySettings,
    plane: Option<ControlPlane>,
    read: watch::Reading,
    installer: Installer,
) -> std::io::Result<JoinHandle<()>> {
    match plane {
        None => Ok(tokio::spawn(policies::follow(settings, read, installer))),
        Some(plane) => threads::spawn("control-plane", move || control_plane::follow(plane, settings, read, installer)),
    }
}

/// Waits to be told to stop, says so to everybody who asks, and gives them time to go elsewhere.
async fn stopping(
    shutdown: impl Future<Output = ()>,
    telling: JoinHandle<()>,
    facts: &Facts,
    health: &Health,
    settings: &ShutdownSettings,
) {
    shutdown.await;
    info!(delay = ?settings.delay, "draining");
    facts.drain();
    // Told from here, so that it is before this goes on; who else tells has to have ended.
    telling.abort();
    let _ = telling.await;
    health.set(false).await;
    tokio::time::sleep(settings.delay).await;
}

async fn futures_all(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

async fn follow(certificates: Option<Certificates>, metrics: Arc<Metrics>) {
    if let Some(certificates) = certificates {
        certificates.follow(metrics).await;
    }
}
