//! What was denied lately, and to whom; how much each rule decides now. So that "why at 12:03" has an answer at 12:10.
//!
//! Each worker writes a page of its own, on denial only, and whoever reads puts the pages together: nothing that requests do
//! waits for another worker. A page is cut into minutes, 15 of them and the one that is being written; in a minute each rule
//! has the keys that were denied most often, in bounded room. So an old minute is not lost to a flood of today, nor a rule to
//! the flood of another; what the bound costs is counted.
//!
//! | file | what it knows |
//! |---|---|
//! | [`key`] | what a key is called |
//! | `record` | what is known of the denials of one key |
//! | [`summary`] | the keys that came most often, of many more |
//! | `page` | what one worker has denied, minute by minute |
//! | `reading` | the pages of all workers, put together |
//! | [`told`] | what processes on the same store tell each other |
//! | [`rates`] | how much each rule decides, over a second, a minute, a quarter of an hour |

pub mod key;
mod page;
pub mod rates;
mod reading;
mod record;
pub mod summary;
pub mod told;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

pub use self::page::Lost;
use self::page::{Page, SLICE, SLICES};
pub use self::reading::{Denials, Found, Span};
pub use self::record::{Denial, Record, Why};
pub use self::told::Told;
use crate::algorithm::time::Timestamp;
use crate::descriptor::Entry;

/// The denials of a process.
#[derive(Debug, Default)]
pub struct Journal {
    pages: Mutex<Vec<Arc<Mutex<Page>>>>,
    page_bytes: usize,
}

/// Writes to one page. For one worker; those of others are never waited for.
#[derive(Clone, Debug, Default)]
pub struct Pen(Option<Arc<Mutex<Page>>>);

impl Journal {
    /// An empty journal of at most `max_bytes`, for so many pens. Of no bytes it stays empty, and costs nothing.
    pub fn new(max_bytes: usize, pens: usize) -> Arc<Self> {
        Arc::new(Self { pages: Mutex::default(), page_bytes: max_bytes.checked_div(pens).unwrap_or_default() })
    }

    /// A pen with a page of its own.
    pub fn pen(&self) -> Pen {
        if self.page_bytes == 0 {
            return Pen::default();
        }
        let page = Arc::new(Mutex::new(Page::new(self.page_bytes)));
        self.pages.lock().push(Arc::clone(&page));
        Pen(Some(page))
    }

    /// Whether anything is ever written.
    pub fn is_on(&self) -> bool {
        self.page_bytes > 0
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.pages().iter().map(|page| page.lock().bytes()).fold(0, usize::saturating_add)
    }

    /// What the bound of its room has cost so far.
    pub fn lost(&self) -> Lost {
        self.pages().iter().map(|page| page.lock().lost).fold(Lost::default(), |sum, lost| Lost {
            dropped: sum.dropped.saturating_add(lost.dropped),
            replaced: sum.replaced.saturating_add(lost.replaced),
        })
    }

    /// Forgets what is too old. Called now and then, no worker has to.
    pub fn tend(&self) {
        let now = now();
        for page in self.pages() {
            // Dropped when the page can be written again.
            let expired = page.lock().expired(now);
            drop(expired);
        }
    }

    /// All that is known here.
    pub fn read(&self) -> Denials {
        self.read_with(Vec::new())
    }

    /// All that is known here, and what others have told.
    pub fn read_with(&self, told: Vec<Told>) -> Denials {
        let own = self.pages().into_iter().map(|page| page.lock().slices());
        Denials::of(own.chain([told.into_iter().map(|told| told.0).collect()]), now())
    }

    /// The minutes of which anything may be known, numbered since the epoch: the one that is being written is the last.
    pub fn minutes() -> RangeInclusive<u64> {
        let last = now().index(SLICE);
        last.saturating_sub(SLICES.saturating_sub(1))..=last
    }

    /// Those of them that a span touches.
    pub fn minutes_of(span: &Span<'_>) -> RangeInclusive<u64> {
        let (known, wanted) = (Self::minutes(), span.minutes());
        *known.start().max(wanted.start())..=*known.end().min(wanted.end())
    }

    /// The instant at which something denied now is taken down.
    pub fn now() -> Timestamp {
        now()
    }

    fn pages(&self) -> Vec<Arc<Mutex<Page>>> {
        self.pages.lock().clone()
    }
}

impl Pen {
    /// Whether anything is written.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes a denial of the key that `entries` are.
    pub fn note(&self, denial: &Denial<'_>, entries: &[Entry<'_>]) {
        if let Some(page) = &self.0 {
            page.lock().note(denial, entries, now());
        }
    }
}

/// By the clock of this process: that of the store is not told.
fn now() -> Timestamp {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
