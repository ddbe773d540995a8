//! The composition root: the only room that names every concrete type.
//!
//! Settings in, a running service out: listeners are bound and policies loaded first, with everything that is wrong said at
//! once; then the service runs until it is told to stop, and drains.

pub mod workers;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::workers::Workers;
use crate::admin::{self, Facts, PolicyFacts};
use crate::grpc::health::Health;
use crate::grpc::server;
use crate::grpc::service::Rls;
use crate::limiter::{InForce, Limiter};
use crate::policy::source::{files, watch};
use crate::policy::{self, Options, Report, Source};
use crate::settings::{
    LimitSettings, ListenSettings, Place, PolicySettings, Settings, ShutdownSettings, StoreSettings,
};
use crate::store::any::AnyStore;
use crate::store::clock::SystemClock;
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisStore, Time};
use crate::telemetry::metrics::Metrics;

/// How often expired counters are looked for, and the store's metrics brought up to date.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What has to be there before the service can run.
pub struct Prepared {
    listeners: Listeners,
    sources: Vec<Source>,
    policies: policy::Loaded,
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
    let policies = load_first(&settings.policy, &mut problems);
    let listeners = bind(&settings.listen, &mut problems).await;
    match (policies, listeners) {
        (Some((sources, policies)), Some(listeners)) => Ok(Prepared { listeners, sources, policies }),
        (_, _) => Err(problems),
    }
}

fn load_first(settings: &PolicySettings, problems: &mut CannotStart) -> Option<(Vec<Source>, policy::Loaded)> {
    if settings.paths.is_empty() {
        problems
            .0
            .push("error: no policy is given and there is no config/policies; try --policy FILE_OR_DIRECTORY".into());
        return None;
    }
    let loaded = files::read(&settings.paths).and_then(|sources| {
        let loaded = policy::load(&sources, &options(settings))?;
        Ok((sources, loaded))
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
    let store = Arc::new(MemoryStore::new(settings.store.memory, SystemClock));
    let policies = InForce::new(Arc::clone(&metrics));
    let (facts, health) = (Arc::<Facts>::default(), Health::new().await);

    let installer =
        Installer { policies: Arc::clone(&policies), facts: Arc::clone(&facts), metrics: Arc::clone(&metrics) };
    installer.install(&prepared.sources, prepared.policies);
    health.set(true).await;

    let service = WorkerService {
        policies,
        memory: Arc::clone(&store),
        metrics: Arc::clone(&metrics),
        store: settings.store.clone(),
        limits: settings.limits,
    };
    let (service, watched, connections) = (Arc::new(service), health.clone(), settings.limits.connections);
    let workers = Workers::start(settings.limits.workers, move |incoming, drain| {
        let (service, health) = (Arc::clone(&service), watched.clone());
        async move {
            let rls = Arc::new(service.rls());
            let served = server::serve(incoming, rls, &health, connections, drain.cancelled_owned()).await;
            served.unwrap_or_else(|error| error!(%error, "a worker failed"));
        }
    })?;
    let Listeners { grpc, http, admin } = prepared.listeners;
    announce(&[("grpc", grpc.local_addr()), ("http", http.local_addr()), ("admin", admin.local_addr())]);
    if let (true, Ok(address)) = (settings.policy.are_examples, grpc.local_addr()) {
        let port = address.port();
        info!(
            "these are the examples of config/policies; try: tollgate hit 127.0.0.1:{port} gateway remote_address=203.0.113.7"
        );
    }

    let ended = CancellationToken::new();
    let end = || ended.clone().cancelled_owned();
    let background = [
        tokio::spawn(log_end("http", admin::serve_public(http, Arc::clone(&facts), Arc::clone(&metrics), end()))),
        tokio::spawn(log_end("admin", admin::serve_admin(admin, Arc::clone(&facts), end()))),
    ];
    let reload = tokio::spawn(reload(settings.policy, prepared.sources, installer));
    let sweep = tokio::spawn(sweep(store, metrics));

    tokio::select! {
        () = workers.accept(&grpc) => {}
        () = stopping(shutdown, &facts, &health, &settings.shutdown) => {}
    }
    drop(grpc);
    health.end_watches().await;
    let all_finished = workers.stop(settings.shutdown.timeout).await;
    [reload, sweep].iter().for_each(tokio::task::JoinHandle::abort);
    ended.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), futures_all(background)).await;
    info!(all_finished, "stopped");
    Ok(())
}

/// Waits to be told to stop, says so to everybody who asks, and gives them time to go elsewhere.
async fn stopping(shutdown: impl Future<Output = ()>, facts: &Facts, health: &Health, settings: &ShutdownSettings) {
    shutdown.await;
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

async fn sweep(store: Arc<MemoryStore<SystemClock>>, metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        store.sweep();
        metrics.memory_counters.set(i64::try_from(store.len()).unwrap_or(i64::MAX));
        metrics.memory_bytes.set(i64::try_from(store.used_bytes()).unwrap_or(i64::MAX));
    }
}

async fn reload(settings: PolicySettings, known: Vec<Source>, installer: Installer) {
    let options = options(&settings);
    watch::watch(settings.paths, known, |read| {
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

/// What each worker makes its service of; connections to a store belong to the worker that made them.
struct WorkerService {
    policies: Arc<InForce>,
    memory: Arc<MemoryStore<SystemClock>>,
    metrics: Arc<Metrics>,
    store: StoreSettings,
    limits: LimitSettings,
}

impl WorkerService {
    fn rls(&self) -> Rls<AnyStore<SystemClock>> {
        let metrics = || Arc::clone(&self.metrics);
        let store = match &self.store.place {
            Place::Memory => AnyStore::Memory(Arc::clone(&self.memory)),
            Place::Redis(options) => AnyStore::Redis(RedisStore::connect(options.clone(), Time::Server, metrics())),
        };
        let limiter = Limiter::new(Arc::clone(&self.policies), store, self.limits.shadow_mode);
        Rls::new(limiter, metrics(), self.limits.request, self.limits.style, self.store.timeout)
    }
}

/// Puts policies in force and tells of it.
struct Installer {
    policies: Arc<InForce>,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
}

impl Installer {
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
    }

    fn refuse(&self, report: &Report) {
        error!("a change of the policies is refused, the running ones stay in force:\n{report}");
        self.metrics.policy_load(false);
        self.facts.refused(report.to_string());
    }
}
