//! Fixed window: at most L hits in each window of a fixed grid.
//!
//! Idea: time is divided into windows, `floor(now / P)`, counted from the epoch (or by a calendar),
//! with one count each. A hit is allowed iff `used + n <= L`. This is the cheapest algorithm;
//! around a boundary, up to 2 L hits may pass within one P.
//!
//! Example, L = 3 per minute: hits at 0:57, 0:58 and 0:59 are admitted, 0:59.5 is denied with
//! retry_after 0.5 s, and the hit at 1:00 is the first of a new window.

use super::Receipt;
use super::quota::{MAX_HITS, MAX_WINDOWS, QuotaError, Report, Window, WindowReport};
use super::time::Timestamp;

/// The parameters: one or more windows, all of which must allow the hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    windows: Box<[Window]>,
}

/// The counter: hits used in the windows that contain `last`.
///
/// The start of each window follows from `last`, so it is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    used: Used,
}

/// Counts in window order. A single count, the common case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Used {
    One(u64),
    Many(Box<[u64]>),
}

impl FixedWindow {
    /// Creates a limit of one or more windows.
    ///
    /// # Errors
    /// If there are no windows, or more than [`MAX_WINDOWS`].
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
        self.used(state, now)
            .all(|(window, used)| used.saturating_add(hits) <= u64::from(window.limit()))
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        self.rewrite(state, now, |_, used| used.saturating_add(hits).min(MAX_HITS));
    }

    /// Refunds hits to the current windows. Returns `true` if it took any.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        self.rewrite(state, now, |_, used| used.saturating_sub(hits))
    }

    /// Undoes a charge in the windows that it was made in, if they are still current.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        self.rewrite(state, now, |window, used| {
            let (start, end) = window.bounds(now);
            let current = (start..end).contains(&receipt.at);
            used.saturating_sub(if current { receipt.hits } else { 0 })
        })
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        let report =
            Report::of_binding(&self.windows, denied.is_some(), self.reports(state, denied, now));
        let beyond = match &*self.windows {
            [window] => self.counts(state, now).sum::<u64>().saturating_sub(window.limit().into()),
            _ => 0,
        };
        Report { beyond, ..report }
    }

    /// Returns the hits that count at `now`, per window.
    pub(super) fn counts<'a>(
        &'a self,
        state: &'a State,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> + 'a {
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

    /// Sets the latest instant of the counter.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) {
        let counts = match &mut state.used {
            Used::One(used) => std::slice::from_mut(used),
            Used::Many(used) => used,
        };
        for (window, used) in self.windows.iter().zip(counts) {
            *used = still_used(window, state.last, *used, now);
        }
        state.last = now;
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        self.windows.iter().map(|window| window.bounds(state.last).1).max().unwrap_or(state.last)
    }

    /// Returns each window with its count at `now`: 0 unless it was written in that window.
    fn used<'a>(
        &'a self,
        state: &'a State,
        now: Timestamp,
    ) -> impl Iterator<Item = (&'a Window, u64)> {
        let counts = match &state.used {
            Used::One(used) => std::slice::from_ref(used),
            Used::Many(used) => used,
        };
        self.windows
            .iter()
            .zip(counts)
            .map(move |(window, used)| (window, still_used(window, state.last, *used, now)))
    }

    /// Replaces every count at `now` by `change(window, count)`. If no count changes, writes
    /// nothing and returns `false`.
    fn rewrite(
        &self,
        state: &mut State,
        now: Timestamp,
        change: impl Fn(&Window, u64) -> u64,
    ) -> bool {
        if self.used(state, now).all(|(window, used)| change(window, used) == used) {
            return false;
        }
        self.touch(state, now);
        let counts = match &mut state.used {
            Used::One(used) => std::slice::from_mut(used),
            Used::Many(used) => used,
        };
        for (window, used) in self.windows.iter().zip(counts) {
            *used = change(window, *used);
        }
        true
    }
}

#[inline]
fn still_used(window: &Window, last: Timestamp, used: u64, now: Timestamp) -> u64 {
    let (start, end) = window.bounds(now);
    if (start..end).contains(&last) { used } else { 0 }
}

impl State {
    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.used {
            Used::One(_) => 0,
            Used::Many(used) => size_of_val::<[u64]>(used),
        }
    }
}
