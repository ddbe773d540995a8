//! Recent denials by key, and the decision rates of each rule: answers "why at 12:03?" at 12:10.
//!
//! Each worker writes its own table, on denials only, and readers merge the tables, so that no
//! request waits for another worker. A table is divided into minutes: 15 complete ones and the
//! current one. In each minute, every rule has its most denied keys, in bounded memory. A flood of
//! denials thus evicts neither an older minute nor the keys of another rule. Losses due to the
//! bound are counted in [`DenialLosses`].
//!
//! | file | contents |
//! |---|---|
//! | [`key`] | the text form of a key |
//! | `record` | the denials of one key |
//! | [`summary`] | the most frequent keys of a larger stream |
//! | `worker_denials` | the denials of one worker, per minute |
//! | `reading` | merging the tables of all workers |
//! | [`peers`] | the exchange between processes on the same store |
//! | [`undecided`] | store errors of the last ten seconds, by rule |
//! | [`rates`] | decision rates per rule, over a second, a minute and 15 minutes |
//! | [`shared_rates`] | their exchange between processes |

pub mod key;
pub mod peers;
pub mod rates;
mod reading;
mod record;
pub mod shared_rates;
pub mod summary;
pub mod undecided;
mod worker_denials;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::Entry;

pub use self::peers::PeerDenials;
pub use self::reading::{DenialFilter, DeniedKey, RecentDenials};
pub use self::record::{DenialEvent, DenialReason, DenialRecord};
pub use self::worker_denials::DenialLosses;
use self::worker_denials::{SLICE, SLICES, WorkerDenials};

/// The journal of recent denials of a process.
#[derive(Debug, Default)]
pub struct Journal {
    tables: Mutex<Vec<Arc<Mutex<WorkerDenials>>>>,
    table_bytes: usize,
}

/// A recorder of denials for one worker. Writes its own table and never waits for other workers.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Mutex<WorkerDenials>>>);

impl Journal {
    /// Creates an empty journal of at most `max_bytes` for a number of workers. With no bytes it
    /// stays empty and costs nothing.
    pub fn new(max_bytes: usize, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            tables: Mutex::default(),
            table_bytes: max_bytes.checked_div(workers).unwrap_or_default(),
        })
    }

    /// Creates a recorder with its own table.
    pub fn recorder(&self) -> Recorder {
        if self.table_bytes == 0 {
            return Recorder::default();
        }
        let table = Arc::new(Mutex::new(WorkerDenials::new(self.table_bytes)));
        self.tables.lock().push(Arc::clone(&table));
        Recorder(Some(table))
    }

    /// Returns `true` if the journal records anything.
    pub fn is_on(&self) -> bool {
        self.table_bytes > 0
    }

    /// Returns the memory in use in bytes.
    pub fn bytes(&self) -> usize {
        self.tables().iter().map(|table| table.lock().bytes()).sum()
    }

    /// Returns the losses due to the memory bound so far.
    pub fn lost(&self) -> DenialLosses {
        let mut sum = DenialLosses::default();
        for table in self.tables() {
            let lost = table.lock().lost;
            sum.dropped += lost.dropped;
            sum.replaced += lost.replaced;
        }
        sum
    }

    /// Drops expired minutes. Called periodically in the background, off the workers.
    pub fn expire(&self) {
        let now = now();
        for table in self.tables() {
            // Deallocate only after the table is unlocked.
            let expired = table.lock().expired(now);
            drop(expired);
        }
    }

    /// Returns the denials known to this process.
    pub fn read(&self) -> RecentDenials {
        self.read_with(Vec::new())
    }

    /// Returns the denials known to this process and those received from other processes.
    pub fn read_with(&self, peers: Vec<PeerDenials>) -> RecentDenials {
        let own = self.tables().into_iter().map(|table| table.lock().slices());
        RecentDenials::of(own.chain([peers.into_iter().map(|peer| peer.0).collect()]), now())
    }

    /// Returns the minutes that may have denials, numbered since the epoch, up to the current one.
    pub fn minutes() -> RangeInclusive<u64> {
        let last = now().index(SLICE);
        last.saturating_sub(SLICES - 1)..=last
    }

    /// Returns those of [`minutes`](Self::minutes) that a filter touches.
    pub fn minutes_of(span: &DenialFilter<'_>) -> RangeInclusive<u64> {
        let known = Self::minutes();
        let wanted = span.minutes();
        *known.start().max(wanted.start())..=*known.end().min(wanted.end())
    }

    /// Returns the instant at which a denial would be recorded now.
    pub fn now() -> Timestamp {
        now()
    }

    fn tables(&self) -> Vec<Arc<Mutex<WorkerDenials>>> {
        self.tables.lock().clone()
    }
}

impl Recorder {
    /// Returns `true` if denials are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a denial of the key of `entries`.
    pub fn note(&self, denial: &DenialEvent<'_>, entries: &[Entry<'_>]) {
        if let Some(table) = &self.0 {
            table.lock().note(denial, entries, now());
        }
    }
}

/// Returns the time by the clock of this process; the store's clock is not available here.
fn now() -> Timestamp {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
