//! A table of keys: the demand for each key, and the blocks held for it. No IO; callers pass the
//! time.
//!
//! The table is direct-mapped and has a fixed size. A requested key takes the entry of its hash,
//! unless the entry's key holds a block or is in higher demand: then the new key is not leased. An
//! entry contains only numbers until its key has a block.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::lease::{BLOCKS, Lease};
use tollgate_core::algorithm::quota::Report;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::descriptor::{OwnedKey, hash_of};

use crate::block::Block;
use crate::owned::OwnedCheck;
use crate::{Check, Lent, StoreError};

/// Number of entries: about 100 bytes each, and up to two blocks per key.
const ENTRIES: usize = 1 << 13;
/// Minimum number of requests per TTL for which a key is worth a block.
const HOT: u32 = 8;

/// Demand and blocks of the keys of one holder.
#[derive(Debug, Default)]
pub struct BlockTable {
    /// Empty until the first lease is needed.
    entries: Box<[KeyDemand]>,
}

/// Demand for a key, and its blocks.
#[derive(Debug)]
struct KeyDemand {
    hash: u64,
    /// Start of the current count; `before` is the count of the TTL before it.
    since: Instant,
    now: WindowUse,
    before: WindowUse,
    /// Remaining hits in the store's last report; 0 if unknown.
    left: u64,
    held: Option<Box<HeldBlocks>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowUse {
    requests: u32,
    hits: u64,
}

/// The blocks of a key, and the state of the request for the next one.
#[derive(Debug)]
struct HeldBlocks {
    key: OwnedKey,
    recorded: Vec<Vec<u8>>,
    limit: Limit,
    blocks: Few<Arc<Block>>,
    is_asking: bool,
    /// The store's report with the latest block, and the time of its arrival.
    report: Option<(Report, Instant)>,
}

/// Result of a lookup.
#[derive(Debug, Default)]
pub struct BlockLookup {
    /// The block that the hits were taken from, and the outcome.
    pub taken: Option<TakenHits>,
    /// Size of a block to lease now; its result must be [recorded](BlockTable::record_block).
    pub wanted: Option<u32>,
}

/// Hits taken from a block.
#[derive(Clone, Debug)]
pub struct TakenHits {
    /// The block.
    pub block: Arc<Block>,
    /// The outcome of the charge.
    pub outcome: Outcome,
}

impl BlockTable {
    /// Counts a charge, and takes it from a block if one has enough hits.
    pub fn take(&mut self, check: &Check<'_>, lease: &Lease, now: Instant) -> BlockLookup {
        let Hits::Charge(hits) = check.hits else { return BlockLookup::default() };
        let Some(entry) = self.open(hash(check), lease.ttl, now) else {
            return BlockLookup::default();
        };
        entry.count(hits, lease.ttl, now);
        // Blocks that were charged under another limit, or for another key, do not apply.
        if entry.held.as_ref().is_some_and(|held| !held.is_of(check)) {
            entry.held = None;
        }
        let taken = entry.take(hits.into(), now);
        let wanted = entry.wanted(lease, now);
        if wanted.is_some() {
            entry.held.get_or_insert_with(|| Box::new(HeldBlocks::of(check))).is_asking = true;
        }
        BlockLookup { taken, wanted }
    }

    /// Records the remaining hits of a key from a check that the store judged.
    pub fn record(&mut self, check: &Check<'_>, outcome: Result<&Outcome, &StoreError>) {
        let hash = hash(check);
        if let Some(entry) = self.entry(hash).filter(|entry| entry.hash == hash) {
            // A decision by this process's share of a limit only shows that the store is
            // unavailable.
            let of_store = outcome.ok().filter(|outcome| !matches!(outcome.by, JudgedBy::Share(_)));
            entry.left = of_store.map_or(0, |outcome| outcome.report.remaining);
        }
    }

    /// Records the result of leasing a block. Returns `true` if the block is to be held.
    pub fn record_block(
        &mut self,
        check: &OwnedCheck,
        lent: Result<&Lent, &StoreError>,
        block: Option<&Arc<Block>>,
    ) -> bool {
        let hash = hash(&check.check());
        let check = check.check();
        let Some(entry) = self.entry(hash).filter(|entry| entry.hash == hash) else { return false };
        let Some(held) = entry.held.as_mut().filter(|held| held.is_of(&check)) else {
            return false;
        };
        held.is_asking = false;
        entry.left = lent.map_or(0, |lent| lent.report.remaining);
        let Some(block) = block.filter(|_| held.blocks.len() < BLOCKS) else { return false };
        held.report = lent.ok().map(|lent| (lent.report, block.received()));
        held.blocks.push(Arc::clone(block));
        true
    }

    fn entry(&mut self, hash: u64) -> Option<&mut KeyDemand> {
        let index = usize::try_from(hash).unwrap_or_default().checked_rem(self.entries.len())?;
        self.entries.get_mut(index)
    }

    /// Returns the entry of a key, replacing another key that is idle. If the other key is not
    /// idle, its request count decreases by one, so that one-off keys never hold on to an entry.
    fn open(&mut self, hash: u64, ttl: Micros, now: Instant) -> Option<&mut KeyDemand> {
        if self.entries.is_empty() {
            self.entries = (0..ENTRIES).map(|_| KeyDemand::new(0, now)).collect();
        }
        let entry = self.entry(hash)?;
        if entry.hash == hash {
            return Some(entry);
        }
        if entry.held.as_mut().is_some_and(|held| held.is_live(now)) {
            return None;
        }
        entry.roll(ttl, now);
        if entry.now.requests.max(entry.before.requests) > 1 {
            entry.now.requests = entry.now.requests.saturating_sub(1);
            entry.before.requests = entry.before.requests.saturating_sub(1);
            return None;
        }
        *entry = KeyDemand::new(hash, now);
        Some(entry)
    }
}

impl KeyDemand {
    fn new(hash: u64, now: Instant) -> Self {
        Self {
            hash,
            since: now,
            now: WindowUse::default(),
            before: WindowUse::default(),
            left: 0,
            held: None,
        }
    }

    /// Starts a new count if the current one has lasted a TTL.
    fn roll(&mut self, ttl: Micros, now: Instant) {
        let ttl = Duration::from(ttl);
        let passed = now.saturating_duration_since(self.since);
        if passed >= ttl {
            self.before =
                if passed < ttl.saturating_mul(2) { self.now } else { WindowUse::default() };
            (self.now, self.since) = (WindowUse::default(), now);
        }
    }

    fn count(&mut self, hits: u32, ttl: Micros, now: Instant) {
        self.roll(ttl, now);
        self.now.requests = self.now.requests.saturating_add(1);
        self.now.hits = self.now.hits.saturating_add(hits.into());
    }

    fn take(&mut self, hits: u64, now: Instant) -> Option<TakenHits> {
        let left = self.left;
        let held = self.held.as_mut()?;
        held.blocks.retain(|block| block.left(now) > 0);
        let block = Arc::clone(held.blocks.iter().find(|block| block.take(hits, now))?);
        let unused =
            held.blocks.iter().map(|block| block.left(now)).fold(left, u64::saturating_add);
        let (report, answered) = held.report?;
        let passed = Micros::new(
            u64::try_from(now.saturating_duration_since(answered).as_micros()).unwrap_or(u64::MAX),
        );
        let reset_after = report.reset_after.map(|reset| reset - passed);
        let report = Report { remaining: unused, reset_after, retry_after: None, ..report };
        Some(TakenHits {
            block,
            outcome: Outcome {
                allowed: true,
                report,
                by: JudgedBy::Block,
                hold: HoldEffect::Nothing,
            },
        })
    }

    /// Returns the size of the block to lease if the current one is running out: the hits of a TTL.
    fn wanted(&self, lease: &Lease, now: Instant) -> Option<u32> {
        if self.held.as_ref().is_some_and(|held| held.is_asking || held.is_enough(now)) {
            return None;
        }
        let is_hot = self.now.requests.max(self.before.requests) >= HOT;
        lease.block_size(self.now.hits.max(self.before.hits), self.left).filter(|_| is_hot)
    }
}

impl HeldBlocks {
    fn of(check: &Check<'_>) -> Self {
        Self {
            key: check.key.into(),
            recorded: check.recorded.to_vec(),
            limit: check.limit.clone(),
            blocks: Few::new(),
            is_asking: false,
            report: None,
        }
    }

    fn is_of(&self, check: &Check<'_>) -> bool {
        self.key == check.key
            && self.limit.algorithm() == check.limit.algorithm()
            && self.recorded == check.recorded
    }

    /// Returns `true` unless the last block is running out.
    fn is_enough(&self, now: Instant) -> bool {
        match self.blocks.as_slice() {
            [] => false,
            [last] => !last.is_running_out(now),
            _ => true,
        }
    }

    fn is_live(&self, now: Instant) -> bool {
        self.is_asking || self.blocks.iter().any(|block| block.left(now) > 0)
    }
}

/// Hashes the counter and the recorded entries of a check, since a block is charged for one set of
/// entries.
fn hash(check: &Check<'_>) -> u64 {
    check.recorded.iter().fold(check.key.hash(), |hash, entry| hash.rotate_left(1) ^ hash_of(entry))
}

#[cfg(test)]
mod tests;
