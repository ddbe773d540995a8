//! Recent denials by key, and the decision rates of each rule: answers "why at 12:03?" at 12:10.
//!
//! Each worker writes its own page, on denials only, and readers merge the pages, so that no
//! request waits for another worker. A page is divided into minutes: 15 complete ones and the
//! current one. In each minute, every rule has its most denied keys, in bounded memory. A flood of
//! denials thus evicts neither an older minute nor the keys of another rule. Losses due to the
//! bound are counted in [`Lost`].
//!
//! | file | contents |
//! |---|---|
//! | [`key`] | the text form of a key |
//! | `record` | the denials of one key |
//! | [`summary`] | the most frequent keys of a larger stream |
//! | `page` | the denials of one worker, per minute |
//! | `reading` | merging the pages of all workers |
//! | [`peers`] | the exchange between processes on the same store |
//! | [`rates`] | decision rates per rule, over a second, a minute and 15 minutes |

pub mod key;
mod page;
pub mod peers;
pub mod rates;
mod reading;
mod record;
pub mod summary;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

pub use self::page::Lost;
use self::page::{SLICE, SLICES, WorkerDenials};
pub use self::peers::PeerDenials;
pub use self::reading::{DenialFilter, DeniedKey, RecentDenials};
pub use self::record::{DenialEvent, DenialRecord, Why};
use crate::algorithm::time::Timestamp;
use crate::descriptor::Entry;

/// The journal of recent denials of a process.
#[derive(Debug, Default)]
pub struct Journal {
    pages: Mutex<Vec<Arc<Mutex<WorkerDenials>>>>,
    page_bytes: usize,
}

/// A recorder of denials for one worker. Writes its own page and never waits for other workers.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Mutex<WorkerDenials>>>);

impl Journal {
    /// Creates an empty journal of at most `max_bytes` for a number of workers. With no bytes it
    /// stays empty and costs nothing.
    pub fn new(max_bytes: usize, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            pages: Mutex::default(),
            page_bytes: max_bytes.checked_div(workers).unwrap_or_default(),
        })
    }

    /// Creates a recorder with its own page.
    pub fn recorder(&self) -> Recorder {
        if self.page_bytes == 0 {
            return Recorder::default();
        }
        let page = Arc::new(Mutex::new(WorkerDenials::new(self.page_bytes)));
        self.pages.lock().push(Arc::clone(&page));
        Recorder(Some(page))
    }

    /// Returns `true` if the journal records anything.
    pub fn is_on(&self) -> bool {
        self.page_bytes > 0
    }

    /// Returns the memory in use in bytes.
    pub fn bytes(&self) -> usize {
        self.pages().iter().map(|page| page.lock().bytes()).fold(0, usize::saturating_add)
    }

    /// Returns the losses due to the memory bound so far.
    pub fn lost(&self) -> Lost {
        self.pages().iter().map(|page| page.lock().lost).fold(Lost::default(), |sum, lost| Lost {
            dropped: sum.dropped.saturating_add(lost.dropped),
            replaced: sum.replaced.saturating_add(lost.replaced),
        })
    }

    /// Drops expired minutes. Called periodically in the background, off the workers.
    pub fn expire(&self) {
        let now = now();
        for page in self.pages() {
            // Deallocate only after the page is unlocked.
            let expired = page.lock().expired(now);
            drop(expired);
        }
    }

    /// Returns the denials known to this process.
    pub fn read(&self) -> RecentDenials {
        self.read_with(Vec::new())
    }

    /// Returns the denials known to this process and those received from other processes.
    pub fn read_with(&self, peers: Vec<PeerDenials>) -> RecentDenials {
        let own = self.pages().into_iter().map(|page| page.lock().slices());
        RecentDenials::of(own.chain([peers.into_iter().map(|peer| peer.0).collect()]), now())
    }

    /// Returns the minutes that may have denials, numbered since the epoch, up to the current one.
    pub fn minutes() -> RangeInclusive<u64> {
        let last = now().index(SLICE);
        last.saturating_sub(SLICES.saturating_sub(1))..=last
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

    fn pages(&self) -> Vec<Arc<Mutex<WorkerDenials>>> {
        self.pages.lock().clone()
    }
}

impl Recorder {
    /// Returns `true` if denials are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a denial of the key of `entries`.
    pub fn note(&self, denial: &DenialEvent<'_>, entries: &[Entry<'_>]) {
        if let Some(page) = &self.0 {
            page.lock().note(denial, entries, now());
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
