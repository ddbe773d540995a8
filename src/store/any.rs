//! The store selected by the settings.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::Either;

use super::clock::Clock;
use super::deny_cache::{DenialTable, DenyCache};
use super::lease::Leases;
use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::scan::{ScanError, ScanPosition, ScannedKeys};
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::hold::HoldList;
use crate::algorithm::tallies::EntryTally;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::Prior;
use crate::descriptor::CounterKey;
use crate::telemetry::metrics::Metrics;

/// Any of the stores.
pub enum AnyStore<C> {
    /// Counters in this process.
    Memory(Arc<MemoryStore<C>>),
    /// Counters in Redis, below its layers.
    Redis(Leases<DenyCache<RedisStore>>),
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
        match self {
            Self::Memory(store) => store.amend(check, amendment, deadline).await,
            Self::Redis(store) => store.amend(check, amendment, deadline).await,
        }
    }
}

impl<C: Clock> AnyStore<C> {
    /// Creates a store with counters in Redis, leases, and a cache of denials if `denials` are
    /// given.
    pub fn over_redis(
        store: RedisStore,
        denials: Option<Arc<DenialTable>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self::Redis(Leases::new(DenyCache::new(store, denials), metrics))
    }

    /// Creates a store in which Redis decides every request.
    pub fn redis_alone(store: RedisStore, metrics: Arc<Metrics>) -> Self {
        Self::Redis(Leases::disabled(DenyCache::new(store, None), metrics))
    }

    /// Waits until the store is ready for calls.
    pub async fn connected(&self) {
        if let Some(store) = self.redis() {
            store.connected().await;
        }
    }

    /// Returns `true` if a connection is open, or none is needed.
    pub fn is_connected(&self) -> bool {
        self.redis().is_none_or(RedisStore::is_connected)
    }

    /// Returns the Redis store, if counters are in Redis.
    pub fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(leases) => Some(leases.store().store()),
        }
    }

    /// Returns the tallies of a counter, heaviest user first; empty if the counter does not exist
    /// or records nothing.
    ///
    /// # Errors
    /// If the store is unavailable, or the value cannot be read.
    pub async fn tallies(&self, key: &CounterKey<'_>) -> Result<Vec<EntryTally>, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.tallies(key)),
            Self::Redis(leases) => leases.store().store().tallies(key).await,
        }
    }

    /// Returns the open holds of a counter at `now`, the instant of the counter, oldest first.
    ///
    /// # Errors
    /// If the store is unavailable, or the counter or its holds cannot be read.
    pub async fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> Result<HoldList, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.open_holds(key, now)),
            Self::Redis(leases) => leases.store().store().open_holds(key, now).await,
        }
    }

    /// Returns some of the keys of the store from a position on, or from the first.
    ///
    /// # Errors
    /// A server failed, or the position is that of no master.
    pub async fn scan(&self, at: Option<ScanPosition>) -> Result<ScannedKeys, ScanError> {
        match self {
            Self::Memory(store) => Ok(store.scan(at)),
            Self::Redis(leases) => leases.store().store().scan(at).await,
        }
    }

    /// Returns the time of the clock by which the counters at a position are judged.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub async fn time_at(&self, at: &ScanPosition) -> Result<Timestamp, ScanError> {
        match self {
            Self::Memory(store) => Ok(store.now()),
            Self::Redis(leases) => leases.store().store().time_at(at).await,
        }
    }

    /// Waits until pending take-backs are done and leased hits are returned. Nothing is leased
    /// afterwards.
    pub async fn settled(&self) {
        if let Self::Redis(leases) = self {
            leases.settled().await;
            leases.store().settled().await;
            leases.store().store().settled().await;
        }
    }
}
