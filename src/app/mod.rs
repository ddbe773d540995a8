//! The composition root: the only room that names every concrete type.
//!
//! Settings in, a running service out: listeners are bound and policies loaded first, with everything that is wrong said at
//! once; then the service runs until it is told to stop, and drains.

mod certificates;
mod control_plane;
mod json;
pub mod listener;
mod pages;
mod policies;
mod readiness;
mod serving;
mod spans;
mod statistics;
mod stores;
pub mod workers;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use self::certificates::Certificates;
use self::listener::Listener;
use self::policies::{First, Installer};
use self::serving::Serving;
use self::statistics::Statistics;
use self::stores::Stores;
use self::workers::Workers;
use crate::admin::{self, Facts};
use crate::grpc::health::Health;
use crate::grpc::places::Places;
use crate::limiter::InForce;
use crate::policy::source::watch;
use crate::settings::{Endpoint, ListenSettings, PolicySettings, Settings, ShutdownSettings};
use crate::telemetry::metrics::Metrics;
use crate::xds::ControlPlane;

/// What has to be there before the service can run.
pub struct Prepared {
    listeners: Listeners,
    policies: First,
    certificates: Option<Certificates>,
    /// Where Prometheus reads the statistics of envoyproxy/ratelimit, if anywhere.
    stats: Option<TcpListener>,
}

struct Listeners {
    grpc: Listener,
    http: TcpListener,
    admin: TcpListener,
}

impl Listeners {
    /// Logs where they listen, and what to try where they serve examples.
    fn announce(&self, are_examples: bool) {
        announce("grpc", self.grpc.endpoint());
        announce("http", self.http.local_addr());
        announce("admin", self.admin.local_addr());
        if let (true, Ok(Endpoint::Tcp(address))) = (are_examples, self.grpc.endpoint()) {
            let port = address.port();
            info!(
                "these are the examples of config/policies; try: tollgate hit 127.0.0.1:{port} gateway remote_address=203.0.113.7"
            );
        }
    }
}

/// Everything that keeps the service from starting.
#[derive(Debug, Default)]
pub struct CannotStart(Vec<String>);

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{}", problem.trim_end()))
    }
}

impl std::error::Error for CannotStart {}

/// Binds the listeners, loads the policies and the certificates.
///
/// # Errors
/// All that failed, not only the first.
pub async fn prepare(settings: &Settings) -> Result<Prepared, CannotStart> {
    let mut problems = CannotStart::default();
    let policies = First::load(settings);
    if let (Some(problem), false) = (policies.problem(), settings.readiness.start_without_policy) {
        problems.0.push(problem.to_owned());
    }
    let listeners = bind(&settings.listen, &mut problems).await;
    let stats = statistics::bind(&settings.stats, &mut problems).await;
    let certificates = settings.tls.clone().map(Certificates::load).transpose();
    let certificates =
        certificates.map_err(|found| problems.0.extend(found.iter().map(|what| format!("error: {what}"))));
    match (listeners, certificates, problems.0.as_slice()) {
        (Some(listeners), Ok(certificates), []) => Ok(Prepared { listeners, policies, certificates, stats }),
        (_, _, _) => Err(problems),
    }
}

async fn bind(settings: &ListenSettings, problems: &mut CannotStart) -> Option<Listeners> {
    let mut cannot = |flag: &str, endpoint: &dyn fmt::Display, error: std::io::Error| {
        problems.0.push(format!("error: {flag} {endpoint}: {error}"));
    };
    let grpc = Listener::bind(&settings.grpc).await;
    let grpc = grpc.map_err(|error| cannot("--grpc-listen", &settings.grpc, error));
    let http = TcpListener::bind(settings.http).await;
    let http = http.map_err(|error| cannot("--http-listen", &settings.http, error));
    let admin = TcpListener::bind(settings.admin).await;
    let admin = admin.map_err(|error| cannot("--admin-listen", &settings.admin, error));
    Some(Listeners { grpc: grpc.ok()?, http: http.ok()?, admin: admin.ok()? })
}

/// Serves until `shutdown`, then drains.
///
/// # Errors
/// Where threads or runtimes cannot be had.
pub async fn run(settings: Settings, prepared: Prepared, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
    let statistics = Statistics::new(settings.stats);
    let metrics = Metrics::with_stats(statistics.stats());
    let sending = statistics.send(&metrics)?;
    let stores = Stores::new(settings.store.clone(), Arc::clone(&metrics));
    let policies = InForce::new(Arc::clone(&metrics));
    let (facts, health) = (Arc::new(Facts::new(readiness::needs(&settings.readiness))), Health::new().await);

    let installer =
        Installer { policies: Arc::clone(&policies), facts: Arc::clone(&facts), metrics: Arc::clone(&metrics) };
    let read = installer.begin(prepared.policies);
    if stores.are_ready_at_once() {
        facts.store_is_ready();
    }
    let (telling, ended) = (readiness::tell(&facts, &health).await, CancellationToken::new());
    let (tracer, sending_spans) = spans::begin(settings.tracing, &metrics, &ended);
    let serving = Arc::new(Serving {
        policies: Arc::clone(&policies),
        stores: stores.clone(),
        metrics: Arc::clone(&metrics),
        limits: settings.limits,
        tls: prepared.certificates.as_ref().map(|certificates| certificates.tls.clone()),
        tracer,
        answers: settings.answers,
        health: health.clone(),
        connected: Arc::new(Semaphore::new(0)),
    });
    let service = serving.service();
    let all_connected = Serving::connected(Arc::clone(&serving.connected), settings.limits.workers);
    let watched = settings.readiness.ready_while_store.then(|| Arc::clone(&service));
    let follow_store =
        tokio::spawn(readiness::follow_store(stores.clone(), all_connected, watched, Arc::clone(&facts)));
    let workers =
        Workers::start(settings.limits.workers, move |incoming, drain| Arc::clone(&serving).serve(incoming, drain))?;
    prepared.listeners.announce(settings.policy.are_examples);
    let Listeners { grpc, http, admin } = prepared.listeners;
    let end = || ended.clone().cancelled_owned();
    let decide = json::decide(&service, &settings.limits, settings.tls.as_ref());
    let http = admin::serve_public(http, Arc::clone(&facts), Arc::clone(&metrics), decide, end());
    let admin = admin::serve_admin(admin, Arc::clone(&facts), pages::all(&policies, &metrics), end());
    let mut background = vec![tokio::spawn(log_end("http", http)), tokio::spawn(log_end("admin", admin))];
    background.extend(statistics.serve(prepared.stats, &metrics, end()).into_iter().chain(sending_spans));
    let reload = follow_policies(settings.policy, settings.xds, read, installer);
    let tend = tokio::spawn(stores.tend());
    let places = Places::new(settings.limits.connections.max_connections, Arc::clone(&metrics));
    let follow = tokio::spawn(follow(prepared.certificates, metrics));

    tokio::select! {
        () = workers.accept(&grpc, &places) => {}
        () = stopping(shutdown, telling, &facts, &health, &settings.shutdown) => {}
    }
    drop(grpc);
    health.end_watches().await;
    let all_finished = workers.stop(settings.shutdown.timeout).await;
    [reload, tend, follow_store, follow].iter().for_each(JoinHandle::abort);
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
) -> JoinHandle<()> {
    match plane {
        None => tokio::spawn(policies::follow(settings, read, installer)),
        Some(plane) => tokio::spawn(control_plane::follow(plane, settings, read, installer)),
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

async fn log_end(protocol: &'static str, server: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = server.await {
        error!(protocol, %error, "a server failed");
    }
}

fn announce(protocol: &str, address: std::io::Result<impl fmt::Display>) {
    if let Ok(address) = address {
        info!(protocol, %address, "listening");
    }
}

async fn follow(certificates: Option<Certificates>, metrics: Arc<Metrics>) {
    if let Some(certificates) = certificates {
        certificates.follow(metrics).await;
    }
}
