//! The stores of a process: one handle per worker, and the tasks that maintain their shared state.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::algorithm::share::Share;
use crate::algorithm::time::Micros;
use crate::operations::servers::ServerReports;
use crate::operations::workers::WorkerService;
use crate::settings::StoreSettings;
use crate::store::any::AnyStore;
use crate::store::backend::{Backend, BackendError};
use crate::store::clock::SystemClock;
use crate::store::fallback::{Fallback, OwnShare};
use crate::store::layer::Layered;
use crate::store::layer::deny_cache::DenialTable;
use crate::store::memory::MemoryStore;
use crate::store::replicas::ReplicaList;
use crate::store::servers::{ServerList, ServerReport};
use crate::telemetry::metrics::StoreMetrics;

/// Interval at which expired counters are removed and the metrics of the memory store are updated.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Interval at which this process reports to the store that it is alive, and queries the servers.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// The addresses of a master and one of its replicas.
type Followed = (String, String);

/// Creates a handle of the store for the current runtime, which its connections belong to.
pub type OpenStore<B> = Arc<dyn Fn(&StoreParts) -> B + Send + Sync>;

/// The parts of a process that a store may use.
#[derive(Clone)]
pub struct StoreParts {
    /// Counters in this process.
    pub memory: Arc<MemoryStore<SystemClock>>,
    /// Metrics of the store.
    pub metrics: Arc<StoreMetrics>,
}

/// A factory for the stores of all workers, with the state that they share.
#[derive(Clone)]
pub(super) struct Stores<B> {
    settings: StoreSettings,
    open: OpenStore<B>,
    parts: StoreParts,
    /// Unique id of this process among those on the same store.
    id: Arc<str>,
    share: Arc<OwnShare>,
    fallback: Fallback,
    /// The denials cached by all workers, created when it is known that the store is shared.
    denials: Arc<OnceLock<Arc<DenialTable>>>,
    /// The last report of each server, by address.
    reports: ServerReports,
}

/// Returns the store that the settings select.
pub(super) fn selected(settings: &StoreSettings) -> OpenStore<AnyStore<SystemClock>> {
    let place = settings.place.clone();
    Arc::new(move |StoreParts { memory, metrics }| {
        AnyStore::connect(&place, None, metrics)
            .unwrap_or_else(|| AnyStore::Memory(Arc::clone(memory)))
    })
}

impl<B: Backend> Stores<B> {
    /// Creates a factory. Does not connect to any server yet.
    pub(super) fn new(
        settings: StoreSettings,
        open: OpenStore<B>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let memory = Arc::new(MemoryStore::new(settings.memory, SystemClock));
        let share = OwnShare::new(settings.share.unwrap_or(Share::NONE));
        let fallback = Fallback::new(Arc::clone(&memory), Arc::clone(&share), Arc::clone(&metrics));
        Self {
            settings,
            open,
            parts: StoreParts { memory, metrics },
            id: format!("{:032x}", rand::random::<u128>()).into(),
            share,
            fallback,
            denials: Arc::default(),
            reports: ServerReports::default(),
        }
    }

    /// Returns the unique id of this process among those on the same store.
    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns `true` if this process sends heartbeats to a shared store: unless the number of
    /// processes is configured.
    pub(super) fn sends_heartbeats(&self) -> bool {
        self.settings.share.is_none()
    }

    /// Returns the timeout of a decision if the caller sets none.
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns the maximum time for which a process on a shared store may remember a denial.
    pub(super) fn cached_for(&self) -> Micros {
        let length = self.settings.deny_cache_max.as_micros();
        Micros::new(u64::try_from(length).unwrap_or(u64::MAX))
    }

    /// Creates a handle for the current runtime, which its connections belong to, below its layers.
    pub(super) fn connect(&self) -> Layered<B> {
        let backend = (self.open)(&self.parts);
        let metrics = Arc::clone(&self.parts.metrics);
        // Layers would save nothing in memory.
        if !backend.is_shared() {
            return Layered::disabled(backend, metrics);
        }
        let longest = self.settings.deny_cache_max;
        let denials = (!longest.is_zero())
            .then(|| self.denials.get_or_init(|| DenialTable::new(longest, Arc::clone(&metrics))));
        let denials = denials.cloned();
        Layered::new(backend, self.fallback.clone(), denials, metrics)
    }

    /// Returns `true` if readiness does not depend on the store.
    pub(super) fn are_ready_at_once(&self) -> bool {
        self.settings.ready_without
    }

    /// Waits until the store can decide, and logs problems with the configuration of the servers.
    pub(super) async fn ready(&self) {
        let store = (self.open)(&self.parts);
        store.connected().await;
        let found = store.check_up().await;
        found.errors.iter().for_each(|problem| error!("{problem}"));
        found.warnings.iter().for_each(|problem| warn!("{problem}"));
        if store.is_shared() {
            info!("store connected");
        }
    }

    /// Maintains the state shared by the workers, forever.
    pub(super) async fn maintain(self) {
        tokio::join!(self.sweep(), self.count_replicas());
    }

    async fn sweep(&self) {
        let StoreParts { memory, metrics } = &self.parts;
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            memory.sweep();
            metrics.memory_counters.set(i64::try_from(memory.len()).unwrap_or(i64::MAX));
            metrics.memory_bytes.set(i64::try_from(memory.used_bytes()).unwrap_or(i64::MAX));
        }
    }

    /// Returns the last reports of the servers.
    pub(super) fn reports(&self) -> &ServerReports {
        &self.reports
    }

    /// Polls the servers through the store of a service, forever, if it has any. Records their
    /// reports, and warns of restarts, which may lose counters.
    pub(super) async fn poll_servers(self, service: Arc<WorkerService<B>>) {
        let store = service.limiter().store().backend();
        let exported = &self.parts.metrics.servers;
        let mut runs = HashMap::<String, String>::new();
        let mut replicas = HashSet::new();
        let mut ticks = interval(HEARTBEAT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let ServerList::Listed(_) = store.servers() {
            ticks.tick().await;
            let servers = store.server_reports().await;
            for server in &servers {
                exported.set(&server.address, server.evicted_keys, seconds(server.clock_offset_us));
                let before = runs.insert(server.address.clone(), server.run.clone());
                if before.is_some_and(|before| before != server.run) {
                    warn!(address = server.address, "store server restarted");
                    self.parts.metrics.restarts.inc();
                }
            }
            replicas = self.report_replicas(&servers, replicas);
            let ServerList::Listed(masters) = store.servers() else { return };
            runs.retain(|address, _| {
                let is_known = masters.iter().any(|node| node.address == *address);
                if !is_known {
                    exported.forget(address);
                    self.reports.remove(address);
                }
                is_known
            });
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
        let exported = &self.parts.metrics.servers;
        let mut known = HashSet::new();
        for server in servers {
            for replica in &server.replicas {
                exported.set_replica(&server.address, &replica.address, seconds(replica.offset_us));
                known.insert((server.address.clone(), replica.address.clone()));
            }
        }
        for (master, replica) in before.difference(&known) {
            exported.forget_replica(master, replica);
        }
        known
    }

    /// Counts the processes on the same store, unless their number is configured.
    async fn count_replicas(&self) {
        if !self.sends_heartbeats() {
            return;
        }
        let store = (self.open)(&self.parts);
        if !store.is_shared() {
            return;
        }
        let mut ticks = interval(HEARTBEAT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut list = ReplicaList::default();
        loop {
            ticks.tick().await;
            let found = store.heartbeat(&self.id).await;
            if found == Err(BackendError::NotSupported) {
                return warn!(
                    "the store does not count the replicas that share it: on_store_error: local \
                     admits nothing; set --replicas"
                );
            }
            list.report(found.ok(), Instant::now());
            self.share.set(list.share());
            self.parts.metrics.replicas.set(i64::from(list.count()));
        }
    }
}

fn seconds(micros: i64) -> f64 {
    let length = Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { -length } else { length }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_clock_that_is_behind_has_a_negative_offset() {
        assert_eq!([1_500_000, -1_500_000].map(super::seconds), [1.5, -1.5]);
    }
}
