//! The store selected by the settings.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::Either;

use super::clock::Clock;
use super::deny_cache::DenyCache;
use super::lease::Leases;
use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::hold::HoldList;
use crate::algorithm::tallies::EntryTally;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::Prior;
use crate::descriptor::CounterKey;

/// Any of the stores.
pub enum AnyStore<C> {
    /// Counters in this process.
    Memory(Arc<MemoryStore<C>>),
    /// Counters in Redis.
    Redis(RedisStore),
    /// Counters in Redis, with leases.
    Leasing(Leases<RedisStore>),
    /// Counters in Redis, with leases and a cache of denials.
    Remembering(Leases<DenyCache<RedisStore>>),
}

impl<C: Clock> Store for AnyStore<C> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        match self {
            Self::Memory(store) => {
                Either::Left(Either::Left(store.decide(checks, prior, deadline)))
            }
            Self::Redis(store) => {
                Either::Left(Either::Right(store.decide(checks, prior, deadline)))
            }
            Self::Leasing(store) => {
                Either::Right(Either::Left(store.decide(checks, prior, deadline)))
            }
            Self::Remembering(store) => {
                Either::Right(Either::Right(store.decide(checks, prior, deadline)))
            }
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
            Self::Leasing(store) => store.amend(check, amendment, deadline).await,
            Self::Remembering(store) => store.amend(check, amendment, deadline).await,
        }
    }
}

impl<C: Clock> AnyStore<C> {
    /// Waits until the store is ready for calls.
    pub async fn connected(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(store) => store.connected().await,
            Self::Leasing(store) => store.store().connected().await,
            Self::Remembering(store) => store.store().store().connected().await,
        }
    }

    /// Returns `true` if a connection is open, or none is needed.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => store.is_connected(),
            Self::Leasing(store) => store.store().is_connected(),
            Self::Remembering(store) => store.store().store().is_connected(),
        }
    }

    /// Returns the Redis store, if counters are in Redis.
    pub fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store),
            Self::Leasing(store) => Some(store.store()),
            Self::Remembering(store) => Some(store.store().store()),
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
            Self::Redis(store) => store.tallies(key).await,
            Self::Leasing(store) => store.store().tallies(key).await,
            Self::Remembering(store) => store.store().store().tallies(key).await,
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
            Self::Redis(store) => store.open_holds(key, now).await,
            Self::Leasing(store) => store.store().open_holds(key, now).await,
            Self::Remembering(store) => store.store().store().open_holds(key, now).await,
        }
    }

    /// Waits until pending take-backs are done and leased hits are returned. Nothing is leased
    /// afterwards.
    pub async fn settled(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(store) => store.settled().await,
            Self::Leasing(store) => {
                store.settled().await;
                store.store().settled().await;
            }
            Self::Remembering(store) => {
                store.settled().await;
                store.store().settled().await;
                store.store().store().settled().await;
            }
        }
    }
}
