//! The processes that share the store, as they describe themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::process_state::ProcessState;
use super::workers::WorkerService;
use crate::store::backend::Backend;
use crate::store::replicas::{RegisteredReplica, ReplicaInfo};
use crate::telemetry::build_info::BuildInfo;
use crate::telemetry::journal::rates::Rates;
use crate::telemetry::journal::shared_rates::RateSums;

/// Interval at which a change of the policies in force is noticed, and then announced.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of those intervals after which an unchanged description is announced again.
const REPEAT_EVERY: u32 = 5;
/// Time for which fetched rates are kept.
const KEEP_FETCHED: Duration = Duration::from_secs(2);
/// Time that a view of rates waits for those of other processes.
const FETCH_TIMEOUT: Duration = Duration::from_millis(500);

/// The processes that share the store.
#[derive(Debug, Default)]
pub struct ReplicaReport {
    /// `true` if other processes may share the store.
    pub is_shared: bool,
    /// The processes, by name.
    pub replicas: Vec<Replica>,
    /// The reason why processes may be missing.
    pub missing: Option<String>,
}

/// A process on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// ID among the processes on the store.
    pub id: String,
    /// `true` for the process that reports.
    pub is_self: bool,
    /// Time of the last heartbeat, by the clock of this process.
    pub seen_at: Timestamp,
    /// Its description; `None` for releases before 1.0, which publish none.
    pub info: Option<ReplicaInfo>,
}

/// Rates of other processes on the store over the last minute, up to 5 s late.
#[derive(Debug)]
pub struct OtherRates {
    fetched_at: Instant,
    /// Number of these processes.
    pub replicas: usize,
    /// Sums of their rates.
    pub sums: RateSums,
}

/// This process among those on its store.
#[derive(Clone)]
pub struct ReplicaDirectory<B> {
    /// Unique ID of this process on the store.
    pub id: Arc<str>,
    /// Host name.
    pub name: Arc<str>,
    /// Start time of the process.
    pub begun: Timestamp,
    /// The policies in force.
    pub process: Arc<ProcessState>,
    /// The HTTP service, whose store is used.
    pub service: Arc<WorkerService<B>>,
    /// Rates of the rules in force.
    pub rates: Arc<Mutex<Rates>>,
    /// Rates of the other processes, fetched lately.
    pub fetched: Arc<tokio::sync::Mutex<Option<Arc<OtherRates>>>>,
    /// `false` if the number of replicas is configured: processes then send no heartbeats.
    pub is_registered: bool,
}

impl<B: Backend> ReplicaDirectory<B> {
    /// Announces this process, forever. Returns at once if it is not registered on a store.
    pub async fn run(self) {
        let store = self.service.limiter().store().backend();
        if !store.is_shared() || !self.is_registered {
            return;
        }
        let mut ticks = interval(CHANGE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut announced = None;
        let mut unchanged = 0;
        loop {
            ticks.tick().await;
            let info = Some(self.own());
            if announced == info && unchanged < REPEAT_EVERY {
                unchanged += 1;
                continue;
            }
            unchanged = 1;
            // Rates change all the time, and are as old as the latest announcement.
            let rates = self.rates.lock().message();
            let published = ReplicaInfo { rates, ..info.clone().unwrap_or_default() };
            // The reason, a refusal or an unreachable store, is already in the log.
            announced = match store.announce(&self.id, &published).await {
                Ok(()) => info,
                Err(error) => {
                    debug!(%error, "failed to announce this process to other replicas");
                    None
                }
            };
        }
    }

    /// Returns the processes that share the store; only this one if it shares none.
    pub(super) async fn list(&self) -> ReplicaReport {
        let now = Timestamp::now();
        let own = Replica {
            id: self.id.to_string(),
            is_self: true,
            seen_at: now,
            info: Some(self.own()),
        };
        let store = self.service.limiter().store().backend();
        if !store.is_shared() {
            return ReplicaReport { replicas: vec![own], ..ReplicaReport::default() };
        }
        if !self.is_registered {
            let missing = "processes with --replicas do not register on the store".to_owned();
            return ReplicaReport { is_shared: true, replicas: vec![own], missing: Some(missing) };
        }
        let found = store.replicas().await;
        let missing = found.as_ref().err().map(ToString::to_string);
        let others = found.unwrap_or_default().into_iter().filter(|found| *found.id != *self.id);
        let others = others.map(|RegisteredReplica { id, silent_for, info }| Replica {
            id,
            is_self: false,
            seen_at: now.checked_sub(silent_for).unwrap_or(now),
            info,
        });
        let mut replicas: Vec<_> = others.chain([own]).collect();
        replicas.sort_by(|one, other| one.place().cmp(&other.place()));
        ReplicaReport { is_shared: true, replicas, missing }
    }

    /// Returns the rates of the other processes, none while the store does not answer; `None` if no
    /// processes share it.
    pub(super) async fn rates_of_others(&self) -> Option<Arc<OtherRates>> {
        let store = self.service.limiter().store().backend();
        if !store.is_shared() || !self.is_registered {
            return None;
        }
        // Held during the call, so that one reader of several makes it.
        let mut fetched = self.fetched.lock().await;
        if let Some(rates) = &*fetched
            && rates.fetched_at.elapsed() < KEEP_FETCHED
        {
            return Some(Arc::clone(rates));
        }
        // Without an answer, the rates are those of this process, and no reader waits again soon.
        let found = tokio::time::timeout(FETCH_TIMEOUT, store.replicas()).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        let others = found.into_iter().filter(|found| *found.id != *self.id);
        let sums = RateSums::default();
        let mut rates = OtherRates { fetched_at: Instant::now(), replicas: 0, sums };
        for info in others.filter_map(|found| found.info) {
            rates.replicas = rates.replicas.saturating_add(1);
            rates.sums.add(&info.rates);
        }
        let rates = Arc::new(rates);
        *fetched = Some(Arc::clone(&rates));
        Some(rates)
    }

    /// Returns the description of this process, without rates.
    fn own(&self) -> ReplicaInfo {
        let policies = self.process.policies();
        ReplicaInfo {
            name: self.name.to_string(),
            begun_at: self.begun.to_string(),
            release: BuildInfo::OF_PROGRAM.version.to_owned(),
            policies: policies.version,
            loaded_at: policies.loaded_at,
            rates: String::new(),
        }
    }
}

impl Replica {
    /// Returns the place in a list: by name, those without a description last.
    fn place(&self) -> (bool, &str, &str) {
        let name = self.info.as_ref().map(|info| info.name.as_str());
        (name.is_none(), name.unwrap_or_default(), &self.id)
    }
}
