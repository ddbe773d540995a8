//! Series by name: those that a policy names, and a bounded number of those that requests name.
//!
//! Divided into shards, each behind a lock that readers share: who looks up an existing series waits for nobody but the one who
//! is making another in the same shard.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::RwLock;

/// Shards, a power of two.
const SHARDS: usize = 64;

type Shard<T> = RwLock<HashMap<Arc<str>, Arc<T>, RandomState>>;

/// Series of one kind by name.
#[derive(Debug)]
pub(super) struct Series<T> {
    shards: Box<[Shard<T>]>,
    hasher: RandomState,
    /// How many more may be named by requests.
    room: AtomicUsize,
}

impl<T: Default> Series<T> {
    /// None yet. `max_of_requests`: how many names requests may bring.
    pub(super) fn new(max_of_requests: usize) -> Self {
        let hasher = RandomState::default();
        let shards = (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(hasher.clone()))).collect();
        Self { shards, hasher, room: AtomicUsize::new(max_of_requests) }
    }

    /// The series of a name that a policy has.
    pub(super) fn of_policy(&self, name: &str) -> Arc<T> {
        self.find(name).unwrap_or_else(|| self.make(name))
    }

    /// The series of a name that a request brought, or that of `other` where it has none and there is no more room.
    pub(super) fn of_request(&self, name: Option<&str>, other: impl FnOnce() -> String) -> Arc<T> {
        let found = name.and_then(|name| self.find(name).or_else(|| self.take_room().then(|| self.make(name))));
        found.unwrap_or_else(|| self.of_policy(&other()))
    }

    /// All series with their names. No lock is held while they are looked at.
    pub(super) fn all(&self) -> impl Iterator<Item = (Arc<str>, Arc<T>)> {
        let of = |shard: &Shard<T>| -> Vec<_> {
            shard.read().iter().map(|(name, series)| (Arc::clone(name), Arc::clone(series))).collect()
        };
        self.shards.iter().flat_map(of)
    }

    fn find(&self, name: &str) -> Option<Arc<T>> {
        self.shard(name)?.read().get(name).cloned()
    }

    fn make(&self, name: &str) -> Arc<T> {
        // There is a shard for every name.
        let Some(shard) = self.shard(name) else { return Arc::default() };
        Arc::clone(shard.write().entry(name.into()).or_default())
    }

    /// Two requests that bring one new name at the same time may take room twice; the bound holds.
    fn take_room(&self) -> bool {
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1)).is_ok()
    }

    fn shard(&self, name: &str) -> Option<&Shard<T>> {
        // The high bits: a shard's table divides its names by the low ones.
        let number = self.hasher.hash_one(name) >> 58;
        self.shards.get(usize::try_from(number).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_requests_are_bounded_and_those_of_policies_are_not() {
        let series = Series::<AtomicUsize>::new(2);
        for name in ["a", "b", "a", "c", "d"] {
            series.of_request(Some(name), || "other".to_owned()).fetch_add(1, Ordering::Relaxed);
        }
        series.of_request(None, || "other".to_owned()).fetch_add(1, Ordering::Relaxed);
        series.of_policy("e").fetch_add(1, Ordering::Relaxed);
        let mut all: Vec<_> = series.all().map(|(name, count)| (name, count.load(Ordering::Relaxed))).collect();
        all.sort();
        let all: Vec<_> = all.iter().map(|(name, count)| (&**name, *count)).collect();
        assert_eq!(all, [("a", 2), ("b", 1), ("e", 1), ("other", 3)]);
    }
}
