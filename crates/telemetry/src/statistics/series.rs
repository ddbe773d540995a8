//! Series by name: those named by a policy, and a bounded number named by requests.
//!
//! The map is sharded, each shard behind a reader-writer lock: the lookup of an existing series
//! only waits while another series is inserted into the same shard.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::RwLock;

/// Number of shards, a power of two.
const SHARDS: usize = 64;

type SeriesShard<T> = RwLock<HashMap<Arc<str>, Arc<T>, RandomState>>;

/// Series of one kind, by name.
#[derive(Debug)]
pub(super) struct Series<T> {
    shards: Box<[SeriesShard<T>]>,
    hasher: RandomState,
    /// Number of series that requests may still create.
    room: AtomicUsize,
}

impl<T: Default> Series<T> {
    /// Creates an empty map in which requests can create up to `max_of_requests` series.
    pub(super) fn new(max_of_requests: usize) -> Self {
        let hasher = RandomState::default();
        let shards =
            (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(hasher.clone()))).collect();
        Self { shards, hasher, room: AtomicUsize::new(max_of_requests) }
    }

    /// Returns the series of a name from a policy, creating it if needed.
    pub(super) fn of_policy(&self, name: &str) -> Arc<T> {
        self.find(name).unwrap_or_else(|| self.make(name))
    }

    /// Returns the series of a name from a request, creating it if the bound allows. Otherwise, or
    /// if `name` is `None`, returns the series named by `other`.
    pub(super) fn of_request(&self, name: Option<&str>, other: impl FnOnce() -> String) -> Arc<T> {
        let found = name
            .and_then(|name| self.find(name).or_else(|| self.take_room().then(|| self.make(name))));
        found.unwrap_or_else(|| self.of_policy(&other()))
    }

    /// Returns all series with their names. No lock is held while the caller uses them.
    pub(super) fn all(&self) -> impl Iterator<Item = (Arc<str>, Arc<T>)> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.read();
            let series = shard.iter();
            series.map(|(name, one)| (Arc::clone(name), Arc::clone(one))).collect::<Vec<_>>()
        })
    }

    fn find(&self, name: &str) -> Option<Arc<T>> {
        self.shard(name)?.read().get(name).cloned()
    }

    fn make(&self, name: &str) -> Arc<T> {
        // Every name has a shard.
        let Some(shard) = self.shard(name) else { return Arc::default() };
        Arc::clone(shard.write().entry(name.into()).or_default())
    }

    /// Reserves room for one series. Two requests that create the same name concurrently may
    /// reserve twice; the bound holds.
    fn take_room(&self) -> bool {
        self.room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1))
            .is_ok()
    }

    fn shard(&self, name: &str) -> Option<&SeriesShard<T>> {
        // The high bits: the shard's hash table uses the low ones.
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
        let mut all: Vec<_> =
            series.all().map(|(name, count)| (name, count.load(Ordering::Relaxed))).collect();
        all.sort();
        let all: Vec<_> = all.iter().map(|(name, count)| (&**name, *count)).collect();
        assert_eq!(all, [("a", 2), ("b", 1), ("e", 1), ("other", 3)]);
    }
}
