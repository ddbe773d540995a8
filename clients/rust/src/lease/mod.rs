//! Decisions in memory, from blocks of hits that `LeaseService` has charged and lent.
//!
//! A request takes hits from blocks without a lock; a task borrows and returns blocks in the
//! background. Keys, blocks and exchanges are those of `tollgate_lease::holder`.
//!
//! | file | contents |
//! |---|---|
//! | `exchange` | the task that borrows and returns blocks |

mod exchange;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};
use tollgate_lease::holder::{
    self, ENTRY_BYTES, Equivalent, LeaseKey, LeasedCounter, LookKind, MAX_KEY_BYTES, clock,
    is_on_hold,
};

use self::exchange::ExchangeTask;
use crate::connection::Replicas;
use crate::decision::{Code, Decision, DescriptorStatus};
use crate::descriptor::Descriptor;

/// Number of descriptors of a request that may be decided in memory.
const DESCRIPTORS: usize = 8;
/// Number of counts that threads share, so that two that decide at once seldom use the same.
const STRIPES: usize = 16;

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

/// The key of a block: a descriptor of a domain.
#[derive(Debug)]
struct LeasedKey {
    domain: Box<str>,
    descriptor: Descriptor,
}

/// The name of a key, by which it is found.
#[derive(Clone, Copy, Hash)]
struct KeyName<'a> {
    domain: &'a str,
    descriptor: &'a Descriptor,
}

impl KeyName<'_> {
    fn to_key(self) -> LeasedKey {
        LeasedKey { domain: self.domain.into(), descriptor: self.descriptor.clone() }
    }
}

impl Equivalent<LeasedKey> for KeyName<'_> {
    fn equivalent(&self, key: &LeasedKey) -> bool {
        *self.domain == *key.domain && *self.descriptor == key.descriptor
    }
}

impl LeaseKey for LeasedKey {
    fn domain(&self) -> &str {
        &self.domain
    }

    fn size(&self) -> usize {
        self.descriptor.size(ENTRY_BYTES)
    }
}

/// State that requests and the task share.
#[derive(Debug)]
struct LeaseTable {
    leases: holder::HeldLeases<LeasedKey>,
    /// Set when a key wants a block.
    wanted: Notify,
    decided: [StripedCount; STRIPES],
    lent: AtomicU64,
    lost: AtomicU64,
}

/// A count in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct StripedCount(AtomicU64);

/// The blocks of a client, and the task that exchanges them.
#[derive(Debug)]
pub(crate) struct Leases {
    table: Arc<LeaseTable>,
    /// Ends the task, which then returns all blocks; so does the end of this channel.
    closing: mpsc::Sender<oneshot::Sender<()>>,
    /// The task, until a first block is wanted.
    task: Mutex<Option<ExchangeTask>>,
}

impl Leases {
    pub(crate) fn new(connection: Replicas) -> Self {
        let table = Arc::new(LeaseTable {
            leases: holder::HeldLeases::new(clock::now()),
            wanted: Notify::new(),
            decided: Default::default(),
            lent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let (closing, closed) = mpsc::channel(1);
        let task = ExchangeTask::new(connection, Arc::clone(&table), closed);
        Self { table, closing, task: Mutex::new(Some(task)) }
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        LeaseStats {
            decided: self.table.decided.iter().map(|count| count.0.load(Relaxed)).sum(),
            lent: self.table.lent.load(Relaxed),
            lost: self.table.lost.load(Relaxed),
        }
    }

    /// Returns all blocks. Later requests are decided by the service.
    pub(crate) async fn close(&self) {
        // Not locked while it waits.
        let unused = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if unused.is_some() {
            return;
        }
        let (done, closed) = oneshot::channel();
        // The task has ended if it is closed already.
        if self.closing.send(done).await.is_ok() {
            let _ = closed.await;
        }
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
        let now = clock::now();
        let mut taken = [const { None }; DESCRIPTORS];
        let mut statuses = Vec::with_capacity(descriptors.len());
        // The demand of all is counted, also if the first has no block.
        for (descriptor, taken) in descriptors.iter().zip(&mut taken) {
            let name = KeyName { domain, descriptor };
            let look = self.table.leases.take(&name, || name.to_key(), hits, now);
            if look.wants {
                self.start();
            }
            if let LookKind::Taken(of, counter) = look.kind {
                *taken = Some(of);
                statuses.push(status(&counter));
            }
        }
        if statuses.len() == descriptors.len() {
            self.count_decided();
            return Some(Decision::admitted(statuses));
        }
        taken.into_iter().flatten().for_each(holder::TakenLease::put_back);
        None
    }

    fn count_decided(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static STRIPE: usize = NEXT.fetch_add(1, Relaxed) % STRIPES);
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or_default();
        if let Some(count) = self.table.decided.get(stripe) {
            count.0.fetch_add(1, Relaxed);
        }
    }

    /// Has the task make an exchange.
    fn start(&self) {
        self.table.wanted.notify_one();
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if tokio::runtime::Handle::try_current().is_ok()
            && let Some(task) = task.take()
        {
            tokio::spawn(task.run());
        }
    }
}

fn status(counter: &LeasedCounter) -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok,
        limit: Some(counter.limit),
        remaining: u32::try_from(counter.remaining).unwrap_or(u32::MAX),
        reset_after: counter.reset_after,
    }
}

fn are_distinct(descriptors: &[Descriptor]) -> bool {
    (1..=DESCRIPTORS).contains(&descriptors.len())
        && descriptors
            .iter()
            .enumerate()
            .all(|(index, one)| !descriptors.iter().take(index).any(|other| other == one))
}

/// Returns `true` if an exchange may have the descriptor.
fn is_leasable(domain: &str, descriptor: &Descriptor) -> bool {
    let is_on_hold = descriptor.last_key().is_some_and(|key| is_on_hold(key.as_bytes()));
    !is_on_hold && domain.len() + descriptor.size(ENTRY_BYTES) <= MAX_KEY_BYTES
}

#[cfg(test)]
mod tests;
