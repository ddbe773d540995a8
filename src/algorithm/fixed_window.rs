//! Fixed window: at most L hits in each window of a fixed grid.
//!
//! Idea: time is cut into windows, `floor(now / P)`, counted from the epoch (or by a calendar); each has a count of its own.
//! A hit is allowed iff `used + n <= L`. Cheapest of all; around a boundary up to 2 L hits may pass in one P.
//!
//! Example, L = 3 per minute: hits at 0:57, 0:58, 0:59 are admitted, 0:59.5 is denied with retry_after 0.5 s, and 1:00
//! is the first of a new window.

use super::Receipt;
use super::quota::{MAX_HITS, MAX_WINDOWS, QuotaError, Report, Window, WindowReport};
use super::time::Timestamp;

/// The parameters: one or more windows, all of which must allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    windows: Box<[Window]>,
}

/// The counter: what was used in the windows that `last` is in.
///
/// Where a window begins follows from `last`, so it is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    used: Used,
}

/// Counts in the order of the windows; a single one, the usual case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Used {
    One(u64),
    Many(Box<[u64]>),
}

impl FixedWindow {
    /// A limit of one or more windows.
    ///
    /// # Errors
    /// Where there is none, or more than [`MAX_WINDOWS`].
    pub fn new(windows: Vec<Window>) -> Result<Self, QuotaError> {
        if windows.is_empty() || windows.len() > MAX_WINDOWS {
            return Err(QuotaError::Windows { found: windows.len() });
        }
        Ok(Self { windows: windows.into() })
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(super) fn unused(&self) -> State {
        let used = match self.windows.len() {
            1 => Used::One(0),
            many => Used::Many(vec![0; many].into()),
        };
        State { last: Timestamp::EPOCH, used }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        self.used(state, now).all(|(window, used)| used.saturating_add(hits) <= u64::from(window.limit()))
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        self.rewrite(state, now, |_, used| used.saturating_add(hits).min(MAX_HITS));
    }

    /// Gives hits back to the current windows. Says whether there was anything to take.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        self.rewrite(state, now, |_, used| used.saturating_sub(hits))
    }

    /// Undoes a charge in those windows that it was made in and that are still current.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        self.rewrite(state, now, |window, used| {
            let (start, end) = window.bounds(now);
            let current = (start..end).contains(&receipt.at);
            used.saturating_sub(if current { receipt.hits } else { 0 })
        })
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.windows, denied.is_some(), self.reports(state, denied, now))
    }

    /// Hits that count at `now`, of each window.
    pub(super) fn counts<'a>(&'a self, state: &'a State, now: Timestamp) -> impl Iterator<Item = u64> + 'a {
        self.used(state, now).map(|(_, used)| used)
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        self.used(state, now).map(move |(window, used)| {
            let limit = u64::from(window.limit());
            let reset_after = window.bounds(now).1.since(now);
            let retry_after = match denied {
                Some(hits) if used.saturating_add(hits) <= limit => Some(Default::default()),
                Some(hits) if hits <= limit => Some(reset_after),
                _ => None,
            };
            WindowReport { remaining: limit.saturating_sub(used), reset_after, retry_after }
        })
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        self.windows.iter().map(|window| window.bounds(state.last).1).max().unwrap_or(state.last)
    }

    /// Each window with its count at `now`: 0 unless the counter was written in the same window.
    fn used<'a>(&'a self, state: &'a State, now: Timestamp) -> impl Iterator<Item = (&'a Window, u64)> {
        let counts = match &state.used {
            Used::One(used) => std::slice::from_ref(used),
            Used::Many(used) => used,
        };
        self.windows.iter().zip(counts).map(move |(window, used)| (window, still_used(window, state.last, *used, now)))
    }

    /// Replaces every count at `now` by `change(window, count)`; writes nothing, and says so, where nothing changes.
    fn rewrite(&self, state: &mut State, now: Timestamp, change: impl Fn(&Window, u64) -> u64) -> bool {
        if self.used(state, now).all(|(window, used)| change(window, used) == used) {
            return false;
        }
        let counts = match &mut state.used {
            Used::One(used) => std::slice::from_mut(used),
            Used::Many(used) => used,
        };
        for (window, used) in self.windows.iter().zip(counts) {
            *used = change(window, still_used(window, state.last, *used, now));
        }
        state.last = now;
        true
    }
}

fn still_used(window: &Window, last: Timestamp, used: u64, now: Timestamp) -> u64 {
    let (start, end) = window.bounds(now);
    if (start..end).contains(&last) { used } else { 0 }
}

impl State {
    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.used {
            Used::One(_) => 0,
            Used::Many(used) => size_of_val::<[u64]>(used),
        }
    }
}
