//! The holder's side of loans: blocks of hits that a service has charged and lent to this process.
//!
//! [`HeldLeases`] are the keys in demand with their blocks: requests take hits from them on any
//! thread, without a lock. An [`Exchanger`], on one thread, wants blocks for keys that are hot and
//! returns those that have ended. Callers send each [`LoanExchange`] in their own way, pass the
//! answers, and give the time: by [`clock::now`], or another clock that does not stand still while
//! the machine is suspended.
//!
//! | file | contents |
//! |---|---|
//! | `key` | a key with its blocks, and the denial of the service |
//! | `demand` | the demand for keys: those that are in use, and those that may become so |
//! | `exchange` | wants and returns, and the answers to them |
//! | `clock` | a clock that counts suspensions |

pub mod clock;
mod demand;
mod exchange;
mod key;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use foldhash::fast::RandomState;
pub use hashbrown::Equivalent;
use hashbrown::HashTable;
use tollgate_core::descriptor::hold::RESERVED;

use self::demand::ColdTable;
pub use self::exchange::{Exchanger, HeldReturn, LeaseAnswer, LoanExchange, Want, WantAnswer};
use self::key::Key;
pub use self::key::{LeasedCounter, TakenLease};

/// Maximum number of keys in use.
pub const MAX_KEYS: usize = 1 << 13;
/// Minimum time between two exchanges.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum bytes of a key that may be leased, of which each entry counts as [`ENTRY_BYTES`] more
/// than its text.
pub const MAX_KEY_BYTES: usize = 1 << 10;
/// Bytes of an entry beside its text.
pub const ENTRY_BYTES: usize = 32;
/// Maximum number of keys that wait for the next exchange.
const MAX_WAITING: usize = 1 << 10;

/// A key of a loan: a descriptor, in the form of its wire.
pub trait LeaseKey {
    /// Returns the domain of the descriptor.
    fn domain(&self) -> &str;

    /// Returns its size in an exchange, in bytes.
    fn size(&self) -> usize;
}

/// Returns `true` if a descriptor whose last entry has this key operates on a hold: the service
/// refuses a whole exchange for one.
pub fn is_on_hold(last_key: &[u8]) -> bool {
    RESERVED.iter().any(|reserved| reserved.as_bytes() == last_key)
}

/// All keys in use. `S` hashes them.
#[derive(Debug)]
pub struct HeldLeases<K, S = RandomState> {
    hasher: S,
    cold: ColdTable,
    keys: ArcSwap<HashTable<Arc<Key<K>>>>,
    /// Keys that became hot, to be added.
    fresh: ArrayQueue<Arc<Key<K>>>,
    /// Keys that want a block.
    wanting: ArrayQueue<Arc<Key<K>>>,
}

/// Result of [`HeldLeases::take`].
#[derive(Debug)]
pub struct Look {
    /// Hits that were taken, or the denial of the service.
    pub kind: LookKind,
    /// `true` if an exchange is to be made that was not needed before.
    pub wants: bool,
}

/// The decision of a key in this process.
#[derive(Debug)]
pub enum LookKind {
    /// The hits were taken from a block.
    Taken(TakenLease, LeasedCounter),
    /// The service denies requests of one hit.
    Denied(LeasedCounter),
    /// Only the service can decide.
    Unknown,
}

impl<K: LeaseKey> HeldLeases<K> {
    /// Creates an empty table. Its hashes are random, so that clients cannot choose keys that meet.
    pub fn new(now: Instant) -> Self {
        Self::with_hasher(now, RandomState::default())
    }
}

impl<K: LeaseKey, S: BuildHasher> HeldLeases<K, S> {
    /// Creates an empty table with hashes of another kind, such as the same in each run of a
    /// simulation.
    pub fn with_hasher(now: Instant, hasher: S) -> Self {
        Self {
            hasher,
            cold: ColdTable::new(now),
            keys: ArcSwap::default(),
            fresh: ArrayQueue::new(MAX_WAITING),
            wanting: ArrayQueue::new(MAX_WAITING),
        }
    }

    /// Counts a request for a key, and takes its hits from a block if one has enough.
    ///
    /// `to_key` returns the key of `name`. It is called once for a key that becomes hot.
    pub fn take<Q: Hash + Equivalent<K>>(
        &self,
        name: &Q,
        to_key: impl FnOnce() -> K,
        hits: u32,
        now: Instant,
    ) -> Look {
        let hash = self.hasher.hash_one(name);
        let keys = self.keys.load();
        if let Some(key) = keys.find(hash, |key| name.equivalent(&key.name)) {
            let (kind, wants) = key.take(hits, now);
            return Look { kind, wants: wants && self.want(key) };
        }
        let wants = self.cold.count(hash, now)
            && keys.len() < MAX_KEYS
            && self.fresh.push(Arc::new(Key::new(to_key(), hash, hits, now))).is_ok();
        Look { kind: LookKind::Unknown, wants }
    }

    fn want(&self, key: &Arc<Key<K>>) -> bool {
        let is_queued = self.wanting.push(Arc::clone(key)).is_ok();
        if !is_queued {
            key.answered();
        }
        is_queued
    }

    /// Adds the keys that became hot, which then want a block, and removes idle ones if `sweeps` is
    /// set.
    fn update(&self, sweeps: bool, now: Instant) {
        let fresh: Vec<_> = std::iter::from_fn(|| self.fresh.pop()).take(MAX_WAITING).collect();
        let current = self.keys.load();
        let has_idle = sweeps && current.iter().any(|key| key.is_idle(now));
        if fresh.is_empty() && !has_idle {
            return;
        }
        let mut keys = HashTable::clone(&current);
        if has_idle {
            keys.retain(|key| !key.is_idle(now));
        }
        for key in fresh {
            // Two threads do not make a key hot at once, but a key may be hot again before it is
            // added.
            let is_new = keys.find(key.hash, |other| other.hash == key.hash).is_none();
            if keys.len() < MAX_KEYS && is_new {
                key.wanted();
                self.want(&key);
                keys.insert_unique(key.hash, key, |key| key.hash);
            }
        }
        self.keys.store(Arc::new(keys));
    }

    /// Returns `true` if an exchange has something to want.
    pub fn has_wants(&self) -> bool {
        !self.wanting.is_empty() || !self.fresh.is_empty()
    }

    /// Returns the number of keys in use.
    pub fn count(&self) -> usize {
        self.keys.load().len()
    }
}

#[cfg(test)]
mod tests;
