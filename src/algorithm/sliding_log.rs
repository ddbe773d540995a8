//! Sliding log: at most L hits in any period P, exactly, by logging each charge.
//!
//! Idea: each charge is an entry (time, hits) that expires when `time <= now - P`. A hit is allowed
//! iff `used + n <= L`. The log is exact, and as large as the number of hits it admits, so L is
//! bounded. Several windows share one log, since every charge counts in all of them.
//!
//! Representation: each entry stores the running total of hits up to and including itself, so the
//! hits since any instant are one subtraction after a binary search.
//!
//! Example, L = 2 per 10 s: hits at 0:00 and 0:03 are admitted; at 0:05 the next one is denied. It
//! is admitted at 0:10, when the first entry expires.

use std::collections::VecDeque;

use super::quota::{MAX_LOG_LIMIT, MAX_WINDOWS, QuotaError, Report, Window, WindowReport};
use super::time::{Micros, Timestamp};
use super::{Receipt, growth_of};

/// Maximum number of entries in one log. Only charges past the limit (`charge: blamed`) can fill
/// it; then the two oldest are merged at the later instant, which never admits more.
const MAX_ENTRIES: usize = 20_000;

/// The parameters: one or more windows, all of which must allow the hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    windows: Box<[Window]>,
    longest: Micros,
}

/// The counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    /// Logged charges, oldest first.
    entries: VecDeque<LogEntry>,
    /// Running total before the oldest entry.
    base: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogEntry {
    at: Timestamp,
    /// Hits of this entry and all entries before it.
    total: u64,
}

impl SlidingLog {
    /// Creates a limit of one or more windows.
    ///
    /// # Errors
    /// If there are too few or too many windows, or one allows more than [`MAX_LOG_LIMIT`] hits.
    pub fn new(windows: Vec<Window>) -> Result<Self, QuotaError> {
        if windows.is_empty() || windows.len() > MAX_WINDOWS {
            return Err(QuotaError::Windows { found: windows.len() });
        }
        if let Some(large) = windows.iter().find(|window| window.limit() > MAX_LOG_LIMIT) {
            return Err(QuotaError::LogLimit { found: large.limit() });
        }
        let longest = windows.iter().map(Window::period).max().unwrap_or_default();
        Ok(Self { windows: windows.into(), longest })
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(super) fn unused(&self) -> State {
        State { last: Timestamp::EPOCH, entries: VecDeque::new(), base: 0 }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        self.windows
            .iter()
            .all(|window| state.used(window.period(), now).saturating_add(hits) <= u64::from(window.limit()))
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        state.forget(self.longest, now);
        if state.entries.len() >= MAX_ENTRIES {
            state.entries.pop_front();
        }
        let total = state.total().saturating_add(hits);
        state.entries.push_back(LogEntry { at: now, total });
        state.last = now;
    }

    /// Refunds hits, newest entry first. Returns `true` if it took any.
    ///
    /// One log serves all windows: the newest entries of the longest window are the newest of each.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        let part = hits.min(state.used(self.longest, now));
        if part == 0 {
            return false;
        }
        state.forget(self.longest, now);
        let total = state.total().saturating_sub(part);
        while state.before_newest().is_some_and(|before| before >= total) {
            state.entries.pop_back();
        }
        if let Some(newest) = state.entries.back_mut() {
            newest.total = total;
        }
        state.last = now;
        true
    }

    /// Undoes all or part of a charge in the entries of its instant, oldest first, if they count.
    ///
    /// Entries of one instant expire together, so it does not matter which of them loses the hits.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        let first = state.entries.partition_point(|entry| entry.at < receipt.at);
        let before = state.total_before(first);
        let later = state.entries.partition_point(|entry| entry.at <= receipt.at);
        let part = receipt.hits.min(state.total_before(later).saturating_sub(before));
        if part == 0 || receipt.at + self.longest <= now {
            return false;
        }
        let emptied = state.entries.partition_point(|entry| entry.total <= before.saturating_add(part));
        state.entries.drain(first..emptied);
        for entry in state.entries.iter_mut().skip(first) {
            entry.total = entry.total.saturating_sub(part);
        }
        state.forget(self.longest, now);
        state.last = now;
        true
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.windows, denied.is_some(), self.reports(state, denied, now))
    }

    /// Returns the hits that count at `now`, per window.
    pub(super) fn counts<'a>(&'a self, state: &'a State, now: Timestamp) -> impl Iterator<Item = u64> + 'a {
        self.windows.iter().map(move |window| state.used(window.period(), now))
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        self.windows.iter().map(move |window| {
            let period = window.period();
            let limit = u64::from(window.limit());
            let used = state.used(period, now);
            WindowReport {
                remaining: limit.saturating_sub(used),
                reset_after: if used == 0 { Micros::ZERO } else { state.newest_leaves(period).since(now) },
                retry_after: denied.and_then(|hits| state.retry_after(limit.checked_sub(hits)?, period, now)),
            }
        })
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        state.newest_leaves(self.longest)
    }
}

impl State {
    fn total(&self) -> u64 {
        self.entries.back().map_or(self.base, |newest| newest.total)
    }

    /// Returns the number of entries that have expired from a window of this length.
    fn gone(&self, period: Micros, now: Timestamp) -> usize {
        self.entries.partition_point(|entry| entry.at + period <= now)
    }

    /// Returns the running total before entry number `index`.
    fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(self.base, |entry| entry.total)
    }

    /// Returns the running total before the newest entry, if there is one.
    fn before_newest(&self) -> Option<u64> {
        let newest = self.entries.len().checked_sub(1)?;
        Some(self.total_before(newest))
    }

    fn used(&self, period: Micros, now: Timestamp) -> u64 {
        self.total().saturating_sub(self.total_before(self.gone(period, now)))
    }

    fn newest_leaves(&self, period: Micros) -> Timestamp {
        self.entries.back().map_or(self.last, |newest| newest.at + period)
    }

    /// Returns the time until at most `room` hits count; `None`: never.
    fn retry_after(&self, room: u64, period: Micros, now: Timestamp) -> Option<Micros> {
        if self.used(period, now) <= room {
            return Some(Micros::ZERO);
        }
        let total = self.total();
        let last_to_leave = self.entries.partition_point(|entry| total.saturating_sub(entry.total) > room);
        self.entries.get(last_to_leave).map(|entry| (entry.at + period).since(now))
    }

    /// Drops the entries that have expired from the longest window. Called only by a write at
    /// `now`: for an earlier clock they still count.
    fn forget(&mut self, longest: Micros, now: Timestamp) {
        let gone = self.gone(longest, now);
        self.base = self.total_before(gone);
        self.entries.drain(..gone);
    }

    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity().saturating_mul(size_of::<LogEntry>())
    }

    /// Returns the number of bytes that the next charge may allocate.
    pub(super) fn growth_bytes(&self) -> usize {
        growth_of::<LogEntry>(self.entries.len(), self.entries.capacity())
    }
}
