//! The stores of a process: one handle per worker, and the tasks that maintain their shared state.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::algorithm::share::Share;
use crate::algorithm::time::Micros;
use crate::operations::servers::ServerReports;
use crate::operations::workers::WorkerService;
use crate::settings::{StoreLocation, StoreSettings};
use crate::store::any::AnyStore;
use crate::store::clock::SystemClock;
use crate::store::deny_cache::DenialTable;
use crate::store::fallback::{Fallback, OwnShare};
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisOptions, RedisStore, ReplicaList, ServerReport, Time};
use crate::telemetry::metrics::Metrics;

/// Interval at which expired counters are removed and the metrics of the memory store are updated.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Interval at which this process reports to the store that it is alive, and queries the servers.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// The addresses of a master and one of its replicas.
type Followed = (String, String);

/// A factory for the stores of all workers, with the state that they share.
#[derive(Clone)]
pub(super) struct Stores {
    settings: StoreSettings,
    /// Unique id of this process among those on the same store.
    id: Arc<str>,
    memory: Arc<MemoryStore<SystemClock>>,
    share: Arc<OwnShare>,
    /// The denials cached by all workers; `None` if the cache is disabled.
    denials: Option<Arc<DenialTable>>,
    metrics: Arc<Metrics>,
    /// The last report of each server, by address.
    reports: ServerReports,
}

impl Stores {
    /// Creates a factory. Does not connect to any server yet.
    pub(super) fn new(settings: StoreSettings, metrics: Arc<Metrics>) -> Self {
        let memory = Arc::new(MemoryStore::new(settings.memory, SystemClock));
        let share = OwnShare::new(settings.share.unwrap_or(Share::NONE));
        let denials = match &settings.place {
            StoreLocation::Redis(_) if !settings.deny_cache_max.is_zero() => {
                Some(DenialTable::new(settings.deny_cache_max, Arc::clone(&metrics)))
            }
            StoreLocation::Redis(_) | StoreLocation::Memory => None,
        };
        let id = format!("{:032x}", rand::random::<u128>()).into();
        Self { settings, id, memory, share, denials, metrics, reports: ServerReports::default() }
    }

    /// Returns the unique id of this process among those on the same store.
    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the timeout of a decision if the caller sets none.
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns the maximum time for which a process on the same store may remember a denial, or
    /// `None` if counters are not shared.
    pub(super) fn cached_for(&self) -> Option<Micros> {
        let micros = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        match self.settings.place {
            StoreLocation::Redis(_) => Some(Micros::new(micros(self.settings.deny_cache_max))),
            StoreLocation::Memory => None,
        }
    }

    /// Creates a handle for the current runtime, which its connections belong to.
    pub(super) fn connect(&self) -> AnyStore<SystemClock> {
        match &self.settings.place {
            // Leases would save nothing here.
            StoreLocation::Memory => AnyStore::Memory(Arc::clone(&self.memory)),
            StoreLocation::Redis(options) => {
                let store = self.connect_redis(options);
                AnyStore::over_redis(store, self.denials.clone(), Arc::clone(&self.metrics))
            }
        }
    }

    fn connect_redis(&self, options: &RedisOptions) -> RedisStore {
        let metrics = || Arc::clone(&self.metrics);
        let fallback = Fallback::new(Arc::clone(&self.memory), Arc::clone(&self.share), metrics());
        RedisStore::connect(options.clone(), Time::Server, metrics()).with_fallback(fallback)
    }

    /// Returns `true` if readiness does not depend on a store.
    pub(super) fn are_ready_at_once(&self) -> bool {
        self.settings.ready_without || matches!(self.settings.place, StoreLocation::Memory)
    }

    /// Waits until the store can decide, and logs problems with the configuration of the servers.
    pub(super) async fn ready(&self) {
        let StoreLocation::Redis(options) = &self.settings.place else { return };
        let store = self.connect_redis(options);
        store.connected().await;
        let found = store.check_up().await;
        found.errors.iter().for_each(|problem| error!("{problem}"));
        found.warnings.iter().for_each(|problem| warn!("{problem}"));
        info!("store connected");
    }

    /// Maintains the state shared by the workers, forever.
    pub(super) async fn maintain(self) {
        tokio::join!(self.sweep(), self.count_replicas());
    }

    async fn sweep(&self) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.memory.sweep();
            self.metrics.memory_counters.set(i64::try_from(self.memory.len()).unwrap_or(i64::MAX));
            self.metrics
                .memory_bytes
                .set(i64::try_from(self.memory.used_bytes()).unwrap_or(i64::MAX));
        }
    }

    /// Returns the last reports of the servers.
    pub(super) fn reports(&self) -> &ServerReports {
        &self.reports
    }

    /// Polls the servers through the store of a service, forever. Records their reports, and warns
    /// of restarts, which may lose counters.
    pub(super) async fn poll_servers(self, service: Arc<WorkerService>) {
        let Some(store) = service.limiter().store().redis() else { return };
        let mut runs = HashMap::<String, String>::new();
        let mut replicas = HashSet::new();
        let mut ticks = interval(HEARTBEAT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let servers = store.server_reports().await;
            for server in &servers {
                self.metrics.servers.set(
                    &server.address,
                    server.evicted_keys,
                    seconds(server.clock_offset_us),
                );
                let before = runs.insert(server.address.clone(), server.run.clone());
                if before.is_some_and(|before| before != server.run) {
                    warn!(address = server.address, "store server restarted");
                    self.metrics.exceptions.store_restarts.inc();
                }
            }
            replicas = self.report_replicas(&servers, replicas);
            let gone: Vec<_> = {
                let masters = store.health();
                let is_gone =
                    |address: &&String| masters.iter().all(|node| node.address != **address);
                runs.keys().filter(is_gone).cloned().collect()
            };
            for address in gone {
                runs.remove(&address);
                self.metrics.servers.forget(&address);
                self.reports.remove(&address);
            }
            self.reports.record(servers);
        }
    }

    /// Exports the clock offsets of replicas, and removes those of replicas that are no longer
    /// known. Returns the known replicas.
    fn report_replicas(
        &self,
        servers: &[ServerReport],
        before: HashSet<Followed>,
    ) -> HashSet<Followed> {
        let mut known = HashSet::new();
        for server in servers {
            for replica in &server.replicas {
                self.metrics.servers.set_replica(
                    &server.address,
                    &replica.address,
                    seconds(replica.offset_us),
                );
                known.insert((server.address.clone(), replica.address.clone()));
            }
        }
        for (master, replica) in before.difference(&known) {
            self.metrics.servers.forget_replica(master, replica);
        }
        known
    }

    /// Counts the processes on the same store, unless their number is configured.
    async fn count_replicas(&self) {
        let StoreLocation::Redis(options) = &self.settings.place else { return };
        if self.settings.share.is_some() {
            return;
        }
        let store = self.connect_redis(options);
        let mut ticks = interval(HEARTBEAT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut list = ReplicaList::default();
        loop {
            ticks.tick().await;
            list.report(store.heartbeat(&self.id).await, Instant::now());
            self.share.set(list.share());
            self.metrics.replicas.set(i64::from(list.count()));
        }
    }
}

fn seconds(micros: i64) -> f64 {
    let length = Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { -length } else { length }
}
