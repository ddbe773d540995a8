//! Iteration over the keys of all counters.

use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::OwnedKey;

use super::{MemoryStore, SHARDS};
use crate::clock::Clock;
use crate::scan::{ScanPosition, ScannedKeys};

/// Entries at which one call looks, with the lock of their shard.
const ENTRIES_AT_ONCE: usize = 100;

impl<C: Clock> MemoryStore<C> {
    /// Returns the keys of some counters at a position, or of the first ones.
    pub fn scan(&self, at: Option<ScanPosition>) -> ScannedKeys {
        let at = at.unwrap_or_else(|| position(0, 0));
        // The shard, then the first entry.
        let number = usize::try_from(at.cursor >> 32).unwrap_or(usize::MAX);
        let first = usize::try_from(at.cursor & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let Some(shard) = self.shards.get(number) else {
            return ScannedKeys { keys: Vec::new(), at, next: None };
        };
        let shard = shard.lock();
        let keys = shard.keys(first, ENTRIES_AT_ONCE).map(|key| OwnedKey::of(key, false)).collect();
        let after = first.saturating_add(ENTRIES_AT_ONCE);
        let next = if after < shard.entries() {
            Some(position(number, after))
        } else {
            let next = number.saturating_add(1);
            (next < usize::from(SHARDS)).then(|| position(next, 0))
        };
        ScannedKeys { keys, at, next }
    }

    /// Returns the time of the store's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn position(shard: usize, entry: usize) -> ScanPosition {
    let cursor = (shard as u64) << 32 | entry as u64;
    ScanPosition { per_second: false, address: String::new(), cursor }
}
