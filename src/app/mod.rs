//! The composition root: the only room that names every concrete type.
//!
//! Settings in, a running service out: listeners are bound and policies loaded first, with everything that is wrong said at
//! once; then the service runs until it is told to stop, and drains.

mod control_plane;
mod serving;
mod stores;
pub mod workers;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::serving::Serving;
use self::stores::Stores;
use self::workers::Workers;
use crate::admin::{self, Facts, PolicyFacts};
use crate::grpc::health::Health;
use crate::limiter::InForce;
use crate::policy::source::{files, watch};
use crate::policy::{self, Options, Source};
use crate::settings::{ListenSettings, PolicySettings, Settings, ShutdownSettings};
use crate::telemetry::metrics::Metrics;

/// What has to be there before the service can run.
pub struct Prepared {
    listeners: Listeners,
    sources: Vec<Source>,
    /// `None`: a control plane is yet to say them.
    policies: Option<policy::Loaded>,
}

struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
    admin: TcpListener,
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

/// Binds the listeners and loads the policies.
///
/// # Errors
/// All that failed, not only the first.
pub async fn prepare(settings: &Settings) -> Result<Prepared, CannotStart> {
    let mut problems = CannotStart::default();
    let policies = load_first(settings, &mut problems);
    let listeners = bind(&settings.listen, &mut problems).await;
    match (policies, listeners) {
        (Some((sources, policies)), Some(listeners)) => Ok(Prepared { listeners, sources, policies }),
        (_, _) => Err(problems),
    }
}

fn load_first(settings: &Settings, problems: &mut CannotStart) -> Option<(Vec<Source>, Option<policy::Loaded>)> {
    let (settings, is_remote) = (&settings.policy, settings.xds.is_some());
    if settings.paths.is_empty() && !is_remote {
        problems
            .0
            .push("error: no policy is given and there is no config/policies; try --policy FILE_OR_DIRECTORY".into());
        return None;
    }
    let loaded = files::read(&settings.paths, &settings.overlays).and_then(|sources| {
        let loaded = policy::load(&sources, &options(settings))?;
        Ok((sources, (!is_remote).then_some(loaded)))
    });
    loaded.map_err(|report| problems.0.push(report.to_string())).ok()
}

async fn bind(settings: &ListenSettings, problems: &mut CannotStart) -> Option<Listeners> {
    let mut bound = Vec::new();
    let wanted =
        [("--grpc-listen", settings.grpc), ("--http-listen", settings.http), ("--admin-listen", settings.admin)];
    for (flag, address) in wanted {
        match TcpListener::bind(address).await {
            Ok(listener) => bound.push(listener),
            Err(error) => problems.0.push(format!("error: {flag} {address}: {error}")),
        }
    }
    let [grpc, http, admin] = <[TcpListener; 3]>::try_from(bound).ok()?;
    Some(Listeners { grpc, http, admin })
}

/// Serves until `shutdown`, then drains.
///
/// # Errors
/// Where threads or runtimes cannot be had.
pub async fn run(settings: Settings, prepared: Prepared, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
    let metrics = Metrics::new();
    let stores = Stores::new(settings.store.clone(), Arc::clone(&metrics));
    let policies = InForce::new(Arc::clone(&metrics));
    let (facts, health) = (Arc::<Facts>::default(), Health::new().await);

    let has_policy = CancellationToken::new();
    let installer = Installer::new(&policies, &facts, &metrics, &has_policy);
    if let Some(policies) = prepared.policies {
        installer.install(&prepared.sources, policies);
    }
    if stores.are_ready_at_once() {
        facts.store_is_ready();
        health.set(has_policy.is_cancelled()).await;
    }
    let connected = Arc::new(Semaphore::new(0));
    let all_connected = Serving::connected(Arc::clone(&connected), settings.limits.workers);
    let ready = become_ready(stores.clone(), all_connected, has_policy, health.clone(), Arc::clone(&facts));
    let ready = tokio::spawn(ready);

    let serving = Arc::new(Serving {
        policies,
        stores: stores.clone(),
        metrics: Arc::clone(&metrics),
        limits: settings.limits,
        health: health.clone(),
        connected,
    });
    let workers =
        Workers::start(settings.limits.workers, move |incoming, drain| Arc::clone(&serving).serve(incoming, drain))?;
    let Listeners { grpc, http, admin } = prepared.listeners;
    announce(&[("grpc", grpc.local_addr()), ("http", http.local_addr()), ("admin", admin.local_addr())]);
    if let (true, Ok(address)) = (settings.policy.are_examples, grpc.local_addr()) {
        announce_examples(address.port());
    }

    let ended = CancellationToken::new();
    let end = || ended.clone().cancelled_owned();
    let background = [
        tokio::spawn(log_end("http", admin::serve_public(http, Arc::clone(&facts), Arc::clone(&metrics), end()))),
        tokio::spawn(log_end("admin", admin::serve_admin(admin, Arc::clone(&facts), end()))),
    ];
    let reload = match settings.xds {
        None => tokio::spawn(reload(settings.policy, prepared.sources, installer)),
        Some(plane) => tokio::spawn(control_plane::follow(plane, settings.policy, prepared.sources, installer)),
    };
    let tend = tokio::spawn(stores.tend());

    tokio::select! {
        () = workers.accept(&grpc) => {}
        () = stopping(shutdown, ready.abort_handle(), &facts, &health, &settings.shutdown) => {}
    }
    drop(grpc);
    health.end_watches().await;
    let all_finished = workers.stop(settings.shutdown.timeout).await;
    [reload, tend, ready].iter().for_each(tokio::task::JoinHandle::abort);
    ended.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), futures_all(background)).await;
    info!(all_finished, "stopped");
    Ok(())
}

/// Waits to be told to stop, says so to everybody who asks, and gives them time to go elsewhere.
async fn stopping(
    shutdown: impl Future<Output = ()>,
    becoming_ready: tokio::task::AbortHandle,
    facts: &Facts,
    health: &Health,
    settings: &ShutdownSettings,
) {
    shutdown.await;
    becoming_ready.abort();
    info!(delay = ?settings.delay, "draining");
    facts.drain();
    health.set(false).await;
    tokio::time::sleep(settings.delay).await;
}

async fn futures_all(tasks: impl IntoIterator<Item = tokio::task::JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}

async fn log_end(protocol: &'static str, server: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = server.await {
        error!(protocol, %error, "a server failed");
    }
}

fn announce(addresses: &[(&str, std::io::Result<SocketAddr>)]) {
    for (protocol, address) in addresses {
        if let Ok(address) = address {
            info!(protocol, %address, "listening");
        }
    }
}

fn announce_examples(port: u16) {
    info!(
        "these are the examples of config/policies; try: tollgate hit 127.0.0.1:{port} gateway remote_address=203.0.113.7"
    );
}

/// Says that the service is ready once its store is, every worker can ask it, and there is a policy, where that has not been
/// said.
async fn become_ready(
    stores: Stores,
    all_connected: impl Future<Output = ()>,
    has_policy: CancellationToken,
    health: Health,
    facts: Arc<Facts>,
) {
    stores.ready().await;
    all_connected.await;
    facts.store_is_ready();
    has_policy.cancelled().await;
    health.set(true).await;
}

async fn reload(settings: PolicySettings, known: Vec<Source>, installer: Installer) {
    let options = options(&settings);
    watch::watch(settings.paths, settings.overlays, known, |read| {
        let loaded = read.and_then(|sources| policy::load(&sources, &options).map(|loaded| (sources, loaded)));
        match loaded {
            Ok((sources, loaded)) => installer.install(&sources, loaded),
            Err(report) => installer.refuse(&report),
        }
    })
    .await;
}

fn options(settings: &PolicySettings) -> Options {
    Options { merge_domains: settings.merge_domains }
}

/// Puts policies in force and tells of it.
struct Installer {
    policies: Arc<InForce>,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
    /// Cancelled when the first are in force.
    has_policy: CancellationToken,
}

impl Installer {
    fn new(
        policies: &Arc<InForce>,
        facts: &Arc<Facts>,
        metrics: &Arc<Metrics>,
        has_policy: &CancellationToken,
    ) -> Self {
        let (policies, facts, metrics) = (Arc::clone(policies), Arc::clone(facts), Arc::clone(metrics));
        Self { policies, facts, metrics, has_policy: has_policy.clone() }
    }

    fn install(&self, sources: &[Source], loaded: policy::Loaded) {
        let policies = loaded.policies;
        let facts = PolicyFacts {
            version: policies.version().to_owned(),
            loaded_at: jiff::Timestamp::now().to_string(),
            files: sources.iter().map(|source| source.name.clone()).collect(),
            domains: policies.policies().map(|policy| policy.domain().to_owned()).collect(),
            rules: policies.rules().count(),
            last_error: None,
        };
        if !loaded.warnings.is_empty() {
            warn!("policy warnings:\n{}", loaded.warnings);
        }
        info!(version = facts.version, domains = facts.domains.len(), rules = facts.rules, "policies in force");
        self.policies.install(policies);
        self.metrics.policy_load(true);
        self.facts.loaded(facts);
        self.has_policy.cancel();
    }

    fn refuse(&self, report: &impl fmt::Display) {
        error!("a change of the policies is refused, the running ones stay in force:\n{report}");
        self.metrics.policy_load(false);
        self.facts.refused(report.to_string());
    }
}
