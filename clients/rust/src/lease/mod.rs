//! Decisions in memory, from blocks of hits that `LeaseService` has charged and lent.
//!
//! A request reads the table and takes hits from a block without a lock; a task borrows and returns
//! blocks in the background. The table is direct-mapped, as that of the service's own leases: a
//! requested key takes the entry of its hash, unless the entry's key has a block or is in higher
//! demand.
//!
//! | file | contents |
//! |---|---|
//! | `key` | a descriptor with its blocks |
//! | `demand` | the demand for a key |
//! | `exchange` | the task that borrows and returns blocks |

mod demand;
mod exchange;
mod key;

use std::hash::{BuildHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::{ArcSwapOption, Guard};
use foldhash::fast::RandomState;
use tokio::sync::{mpsc, oneshot};

use self::demand::micros_of;
use self::exchange::{ExchangeOrder, Exchanger};
use self::key::{LeasedKey, LentBlock, Moment};
use crate::connection::Replicas;
use crate::decision::Decision;
use crate::descriptor::Descriptor;

/// Number of entries: requests of keys without one go to the service.
const ENTRIES: usize = 1 << 13;
/// Number of descriptors of a request that may be decided in memory.
const DESCRIPTORS: usize = 8;
/// Bound of a key's text, of which each entry counts as `ENTRY_BYTES` more.
const KEY_BYTES: usize = 1 << 10;
const ENTRY_BYTES: usize = 32;

/// Counts since the client was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Requests that were admitted in memory.
    pub decided: u64,
    /// Hits in blocks.
    pub lent: u64,
    /// Exchanges without an answer. What they may have lent or returned counts until it expires.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct LeaseCounts {
    lent: AtomicU64,
    lost: AtomicU64,
}

/// The table of keys, and the channel to the task that exchanges blocks.
#[derive(Debug)]
pub(crate) struct Leases {
    entries: Box<[ArcSwapOption<LeasedKey>]>,
    hasher: RandomState,
    start: Instant,
    decided: AtomicU64,
    counts: Arc<LeaseCounts>,
    orders: mpsc::UnboundedSender<ExchangeOrder>,
    /// The task, until a first block is wanted.
    exchanger: Mutex<Option<Exchanger>>,
}

impl Leases {
    pub(crate) fn new(connection: Replicas) -> Self {
        let start = Instant::now();
        let counts = Arc::default();
        let (orders, received) = mpsc::unbounded_channel();
        let exchanger = Exchanger::new(connection, received, Arc::clone(&counts), start);
        Self {
            entries: (0..ENTRIES).map(|_| ArcSwapOption::empty()).collect(),
            hasher: RandomState::default(),
            start,
            decided: AtomicU64::new(0),
            counts,
            orders,
            exchanger: Mutex::new(Some(exchanger)),
        }
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        LeaseStats {
            decided: self.decided.load(Relaxed),
            lent: self.counts.lent.load(Relaxed),
            lost: self.counts.lost.load(Relaxed),
        }
    }

    /// Returns all blocks. Later requests are decided by the service.
    pub(crate) async fn close(&self) {
        // Not locked while it waits.
        let unused = self.exchanger.lock().unwrap_or_else(PoisonError::into_inner).take();
        if unused.is_some() {
            return;
        }
        let (done, closed) = oneshot::channel();
        // The task has ended if it is closed already.
        let _ = self.orders.send(ExchangeOrder::Close(done));
        let _ = closed.await;
    }

    /// Returns the decision of a request if all of its descriptors have enough hits in hand: then
    /// it is admitted.
    pub(crate) fn decide(
        &self,
        domain: &str,
        descriptors: &[Descriptor],
        hits: u32,
    ) -> Option<Decision> {
        let is_one = descriptors.len() == 1;
        if hits == 0 || !(is_one || are_distinct(descriptors)) {
            return None;
        }
        if !descriptors.iter().all(|descriptor| is_leasable(domain, descriptor)) {
            return None;
        }
        let now = Moment::now();
        let micros = micros_of(now.monotonic.saturating_duration_since(self.start));
        let mut blocks: [Option<Arc<LentBlock>>; DESCRIPTORS] = Default::default();
        let mut statuses = Vec::with_capacity(descriptors.len());
        // The demand of all is counted, also if the first has no block.
        for (descriptor, block) in descriptors.iter().zip(&mut blocks) {
            let key = self.key(domain, descriptor, micros);
            let Some(key) = key.as_ref() else { continue };
            let taken = key.take(hits, now, micros);
            if taken.wants {
                self.want(key);
            }
            if let Some((of, status)) = taken.admitted {
                *block = Some(of);
                statuses.push(status);
            }
        }
        if statuses.len() == descriptors.len() {
            self.decided.fetch_add(1, Relaxed);
            return Some(Decision::admitted(statuses));
        }
        blocks.iter().flatten().for_each(|block| block.put_back(hits));
        None
    }

    /// Returns the key of a descriptor, unless another one keeps its entry.
    fn key(
        &self,
        domain: &str,
        descriptor: &Descriptor,
        micros: u64,
    ) -> Guard<Option<Arc<LeasedKey>>> {
        let mut hasher = self.hasher.build_hasher();
        domain.hash(&mut hasher);
        descriptor.hash(&mut hasher);
        let hash = hasher.finish();
        let index = usize::try_from(hash % ENTRIES as u64).unwrap_or_default();
        let Some(entry) = self.entries.get(index) else { return Guard::from_inner(None) };
        let found = entry.load();
        match &*found {
            Some(key) if key.is(hash, domain, descriptor) => found,
            Some(key) if key.is_kept(micros) => Guard::from_inner(None),
            Some(_) | None => {
                entry.store(Some(Arc::new(LeasedKey::new(hash, domain, descriptor, micros))));
                entry.load()
            }
        }
    }

    /// Requests a block with the next exchange.
    fn want(&self, key: &Arc<LeasedKey>) {
        // After `close` there is no task: the key waits for its answer, and is not wanted again.
        let _ = self.orders.send(ExchangeOrder::Want(Arc::clone(key)));
        let mut exchanger = self.exchanger.lock().unwrap_or_else(PoisonError::into_inner);
        if tokio::runtime::Handle::try_current().is_ok()
            && let Some(exchanger) = exchanger.take()
        {
            tokio::spawn(exchanger.run());
        }
    }
}

fn are_distinct(descriptors: &[Descriptor]) -> bool {
    (1..=DESCRIPTORS).contains(&descriptors.len())
        && descriptors
            .iter()
            .enumerate()
            .all(|(index, one)| !descriptors.iter().take(index).any(|other| other == one))
}

/// Returns `true` if an exchange may have the descriptor. The service refuses a whole exchange for
/// one that operates on a hold, and the table has a bound in bytes.
fn is_leasable(domain: &str, descriptor: &Descriptor) -> bool {
    let is_on_hold = matches!(
        descriptor.last_key(),
        Some("tollgate.reserve" | "tollgate.commit" | "tollgate.settle")
    );
    !is_on_hold && domain.len() + descriptor.size(ENTRY_BYTES) <= KEY_BYTES
}

#[cfg(test)]
mod tests;
