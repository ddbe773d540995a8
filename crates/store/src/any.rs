//! The list of stores: the one that the settings select.
//!
//! To add a store, add its location and its variant, and then the arms that are compile errors.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::Either;
use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::hold::HoldList;
use tollgate_core::algorithm::tallies::EntryTally;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::descriptor::CounterKey;
use tollgate_telemetry::metrics::StoreMetrics;

use super::backend::{Backend, BackendError, BackendState, PublishedDenials};
use super::clock::{Clock, ManualClock};
use super::fallback::Fallback;
use super::loan::{LoanReturn, Returned};
use super::memory::MemoryStore;
use super::redis::{RedisOptions, RedisStore, Time};
use super::replicas::{Registered, RegisteredReplica, ReplicaInfo};
use super::scan::{ScanError, ScanPosition, ScannedKeys};
use super::servers::{CheckUp, ServerList, ServerReport, StoreFinding};
use super::{CertainDenials, Check, Lender, Lent, Outcomes, Store, StoreError};

/// Connections of one handle to a single server and to a Cluster. Old and new connections overlap
/// while a server changes.
const CONNECTIONS_TO_SERVER: usize = 8;
const CONNECTIONS_TO_CLUSTER: usize = 64;

/// The location of the counters.
#[derive(Clone, Debug, Default)]
pub enum StoreLocation {
    /// Memory of this process.
    #[default]
    Memory,
    /// Redis.
    Redis(Box<RedisOptions>),
}

/// Any of the stores.
#[derive(Clone)]
pub enum AnyStore<C> {
    /// Counters in this process.
    Memory(Arc<MemoryStore<C>>),
    /// Counters in Redis.
    Redis(RedisStore),
}

/// Evaluates an expression for the store of any kind.
macro_rules! with_store {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call,
            AnyStore::Redis($store) => $call,
        }
    };
}

fn connections_to(options: &RedisOptions) -> usize {
    if options.is_cluster() { CONNECTIONS_TO_CLUSTER } else { CONNECTIONS_TO_SERVER }
}

impl StoreLocation {
    /// Returns the maximum number of connections of one handle. Clusters of more than 32 masters
    /// may exceed it.
    pub fn connections(&self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Redis(options) => {
                let stores = std::iter::once(&**options).chain(options.per_second.as_deref());
                stores.map(connections_to).sum()
            }
        }
    }

    /// Returns the location with names of its own for all that is stored, for counters that are
    /// deleted afterwards.
    pub fn with_prefix(self, prefix: Vec<u8>) -> Self {
        match self {
            Self::Memory => Self::Memory,
            Self::Redis(options) => Self::Redis(Box::new(RedisOptions { prefix, ..*options })),
        }
    }
}

impl<C: Clock> AnyStore<C> {
    /// Creates the store at a location, which starts to connect at once; `None` for memory, which
    /// the caller has. Counters are judged by the clock of their server, or by `given`. Must be
    /// called within a runtime.
    pub fn connect(
        location: &StoreLocation,
        given: Option<&Arc<ManualClock>>,
        metrics: &Arc<StoreMetrics>,
    ) -> Option<Self> {
        let time = given.map_or(Time::Server, |clock| Time::Given(Arc::clone(clock)));
        match location {
            StoreLocation::Memory => None,
            StoreLocation::Redis(options) => {
                let options = RedisOptions::clone(options);
                Some(Self::Redis(RedisStore::connect(options, time, Arc::clone(metrics))))
            }
        }
    }
}

impl<C: Clock> Store for AnyStore<C> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        match self {
            Self::Memory(store) => Either::Left(store.decide(checks, prior, deadline)),
            Self::Redis(store) => Either::Right(store.decide(checks, prior, deadline)),
        }
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        with_store!(self, store => store.amend(check, amendment, deadline).await)
    }

    fn now(&self) -> Timestamp {
        with_store!(self, store => Store::now(store))
    }

    fn certain_denials(&self) -> CertainDenials {
        with_store!(self, store => store.certain_denials())
    }
}

impl<C: Clock> Lender for AnyStore<C> {
    async fn lend(&self, check: &Check<'_>, deadline: Instant) -> Result<Lent, StoreError> {
        with_store!(self, store => store.lend(check, deadline).await)
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        with_store!(self, store => store.take_back(check, receipt, deadline).await)
    }
}

impl<C: Clock + Clone> Backend for AnyStore<C> {
    fn is_shared(&self) -> bool {
        with_store!(self, store => store.is_shared())
    }

    async fn connected(&self) {
        with_store!(self, store => store.connected().await)
    }

    async fn settled(&self) {
        with_store!(self, store => store.settled().await)
    }

    fn state(&self) -> BackendState {
        with_store!(self, store => store.state())
    }

    fn decide_or_leave(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
        fallback: &Fallback,
    ) -> impl Future<Output = Outcomes> + Send {
        match self {
            Self::Memory(store) => {
                Either::Left(store.decide_or_leave(checks, prior, deadline, fallback))
            }
            Self::Redis(store) => {
                Either::Right(store.decide_or_leave(checks, prior, deadline, fallback))
            }
        }
    }

    async fn return_loan(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
        deadline: Instant,
    ) -> Result<Returned, StoreError> {
        with_store!(self, store => store.return_loan(check, returned, deadline).await)
    }

    async fn check_up(&self) -> CheckUp {
        with_store!(self, store => store.check_up().await)
    }

    async fn examine(&self) -> Result<Vec<StoreFinding>, BackendError> {
        with_store!(self, store => store.examine().await)
    }

    fn servers(&self) -> ServerList {
        with_store!(self, store => store.servers())
    }

    async fn server_reports(&self) -> Vec<ServerReport> {
        with_store!(self, store => store.server_reports().await)
    }

    async fn tallies(&self, key: &CounterKey<'_>) -> Result<Vec<EntryTally>, BackendError> {
        with_store!(self, store => store.tallies(key).await)
    }

    async fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> Result<HoldList, BackendError> {
        with_store!(self, store => store.open_holds(key, now).await)
    }

    async fn scan(&self, at: Option<ScanPosition>) -> Result<ScannedKeys, ScanError> {
        with_store!(self, store => store.scan(at).await)
    }

    async fn time_at(&self, at: &ScanPosition) -> Result<Timestamp, ScanError> {
        with_store!(self, store => store.time_at(at).await)
    }

    async fn clear(&self) -> Result<(), BackendError> {
        with_store!(self, store => store.clear().await)
    }

    async fn publish_denials(&self, by: &str, minute: u64, text: &str) -> Result<(), BackendError> {
        with_store!(self, store => store.publish_denials(by, minute, text).await)
    }

    async fn fetch_denials(&self, minutes: &[u64]) -> Result<Vec<PublishedDenials>, BackendError> {
        with_store!(self, store => store.fetch_denials(minutes).await)
    }

    async fn heartbeat(&self, id: &str) -> Result<Registered, BackendError> {
        with_store!(self, store => store.heartbeat(id).await)
    }

    async fn announce(&self, id: &str, info: &ReplicaInfo) -> Result<(), BackendError> {
        with_store!(self, store => store.announce(id, info).await)
    }

    async fn replicas(&self) -> Result<Vec<RegisteredReplica>, BackendError> {
        with_store!(self, store => store.replicas().await)
    }
}

#[cfg(test)]
mod tests;
