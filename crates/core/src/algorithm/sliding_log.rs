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

use smallvec::{SmallVec, smallvec};

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
    /// One log that all windows share, or one per window once a cost that went past the limit was
    /// written differently in each ([`SlidingLog::charge_past`]).
    logs: SmallVec<[Log; 1]>,
}

/// Logged charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    /// Oldest first.
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
        State { last: Timestamp::EPOCH, logs: std::iter::once(Log::default()).collect() }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        self.views(state).all(|(window, log)| {
            log.used(window.period(), now).saturating_add(hits) <= u64::from(window.limit())
        })
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        self.begin_write(state, now);
        state.logs.iter_mut().for_each(|log| log.push(hits, now));
    }

    /// Charges a cost that goes past the limit. Where a window has as many entries as its limit,
    /// the hits are added to its newest entry, whose instant becomes `now`, so that costs past the
    /// limit do not grow a log.
    pub(super) fn charge_past(&self, state: &mut State, hits: u64, now: Timestamp) {
        self.begin_write(state, now);
        let full: SmallVec<[bool; MAX_WINDOWS]> =
            self.views(state).map(|(window, log)| log.is_full(window, now)).collect();
        let is_mixed = full.contains(&true) && full.contains(&false);
        if is_mixed && let [shared] = state.logs.as_slice() {
            state.logs = smallvec![shared.clone(); self.windows.len()];
            self.begin_write(state, now);
        }
        for (log, is_full) in state.logs.iter_mut().zip(full) {
            if is_full {
                log.add_to_newest(hits, now);
            } else {
                log.push(hits, now);
            }
        }
    }

    /// Refunds hits, newest entry first. Returns `true` if it took any.
    ///
    /// A shared log serves all windows: the newest entries of the longest are the newest of each.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        let periods = self.periods(state);
        let parts: SmallVec<[u64; MAX_WINDOWS]> = state
            .logs
            .iter()
            .zip(periods)
            .map(|(log, period)| hits.min(log.used(period, now)))
            .collect();
        if parts.iter().all(|part| *part == 0) {
            return false;
        }
        self.begin_write(state, now);
        state.logs.iter_mut().zip(parts).for_each(|(log, part)| log.take_newest(part));
        true
    }

    /// Undoes all or part of a charge in the entries of its instant, oldest first, if they count.
    ///
    /// Entries of one instant expire together, so it does not matter which of them loses the hits.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        let periods = self.periods(state);
        let mut took = false;
        for (log, period) in state.logs.iter_mut().zip(periods) {
            took |= receipt.at + period > now && log.take_at(receipt.at, receipt.hits);
        }
        if took {
            self.begin_write(state, now);
        }
        took
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.windows, denied.is_some(), self.reports(state, denied, now))
    }

    /// Returns the hits that count at `now`, per window.
    pub(super) fn counts<'a>(
        &'a self,
        state: &'a State,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> + 'a {
        self.views(state).map(move |(window, log)| log.used(window.period(), now))
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        self.views(state).map(move |(window, log)| {
            let period = window.period();
            let limit = u64::from(window.limit());
            let used = log.used(period, now);
            WindowReport {
                remaining: limit.saturating_sub(used),
                reset_after: if used == 0 {
                    Micros::ZERO
                } else {
                    log.newest_leaves(period).since(now)
                },
                retry_after: denied
                    .and_then(|hits| log.retry_after(limit.checked_sub(hits)?, period, now)),
            }
        })
    }

    /// Sets the latest instant of the counter.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) {
        self.begin_write(state, now);
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        let logs = state.logs.iter().zip(self.periods(state));
        let used = logs.filter(|(log, _)| !log.entries.is_empty());
        used.map(|(log, period)| log.newest_leaves(period)).max().unwrap_or(state.last)
    }

    /// Returns each window with its log.
    fn views<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (&'a Window, &'a Log)> {
        self.windows.iter().enumerate().filter_map(|(index, window)| {
            Some((window, state.logs.get(index).or_else(|| state.logs.first())?))
        })
    }

    /// Returns the time for which each log keeps its entries.
    fn periods(&self, state: &State) -> SmallVec<[Micros; MAX_WINDOWS]> {
        if state.logs.len() == 1 {
            return std::iter::once(self.longest).collect();
        }
        self.windows.iter().map(Window::period).collect()
    }

    /// Drops the entries that have expired. Called only by a write at `now`: for an earlier clock
    /// they still count.
    fn begin_write(&self, state: &mut State, now: Timestamp) {
        let periods = self.periods(state);
        state.logs.iter_mut().zip(periods).for_each(|(log, period)| log.forget(period, now));
        if state.logs.len() > 1 && state.logs.iter().all(|log| log.entries.is_empty()) {
            state.logs.truncate(1);
        }
        state.last = now;
    }
}

impl State {
    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let split = if self.logs.spilled() { size_of_val::<[Log]>(&self.logs) } else { 0 };
        let entries = self.logs.iter().map(|log| log.entries.capacity());
        entries
            .fold(0, usize::saturating_add)
            .saturating_mul(size_of::<LogEntry>())
            .saturating_add(split)
    }

    /// Returns the number of bytes that the next charge may allocate.
    pub(super) fn growth_bytes(&self) -> usize {
        self.logs
            .iter()
            .map(|log| growth_of::<LogEntry>(log.entries.len(), log.entries.capacity()))
            .fold(0, usize::saturating_add)
    }
}

impl Log {
    fn total(&self) -> u64 {
        self.entries.back().map_or(self.base, |newest| newest.total)
    }

    /// Returns the number of entries that have expired from a window of this length.
    fn expired_count(&self, period: Micros, now: Timestamp) -> usize {
        self.entries.partition_point(|entry| entry.at + period <= now)
    }

    /// Returns `true` if a window has as many entries as its limit.
    fn is_full(&self, window: &Window, now: Timestamp) -> bool {
        let entries = self.entries.len().saturating_sub(self.expired_count(window.period(), now));
        u64::try_from(entries).unwrap_or(u64::MAX) >= u64::from(window.limit())
    }

    /// Returns the running total before entry number `index`.
    fn total_before(&self, index: usize) -> u64 {
        index
            .checked_sub(1)
            .and_then(|before| self.entries.get(before))
            .map_or(self.base, |entry| entry.total)
    }

    /// Returns the running total before the newest entry, if there is one.
    fn before_newest(&self) -> Option<u64> {
        let newest = self.entries.len().checked_sub(1)?;
        Some(self.total_before(newest))
    }

    fn used(&self, period: Micros, now: Timestamp) -> u64 {
        self.total().saturating_sub(self.total_before(self.expired_count(period, now)))
    }

    fn newest_leaves(&self, period: Micros) -> Timestamp {
        self.entries.back().map_or(Timestamp::EPOCH, |newest| newest.at) + period
    }

    /// Returns the time until at most `room` hits count; `None`: never.
    fn retry_after(&self, room: u64, period: Micros, now: Timestamp) -> Option<Micros> {
        if self.used(period, now) <= room {
            return Some(Micros::ZERO);
        }
        let total = self.total();
        let last_to_leave =
            self.entries.partition_point(|entry| total.saturating_sub(entry.total) > room);
        self.entries.get(last_to_leave).map(|entry| (entry.at + period).since(now))
    }

    /// Adds an entry. In a full log, the two oldest are merged at the later instant.
    fn push(&mut self, hits: u64, now: Timestamp) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.pop_front();
        }
        let total = self.total().saturating_add(hits);
        self.entries.push_back(LogEntry { at: now, total });
    }

    /// Adds hits to the newest entry, and moves it to `now`.
    fn add_to_newest(&mut self, hits: u64, now: Timestamp) {
        match self.entries.back_mut() {
            Some(newest) => {
                newest.total = newest.total.saturating_add(hits);
                newest.at = now;
            }
            None => self.push(hits, now),
        }
    }

    /// Removes hits, newest first.
    fn take_newest(&mut self, hits: u64) {
        let total = self.total().saturating_sub(hits);
        while self.before_newest().is_some_and(|before| before >= total) {
            self.entries.pop_back();
        }
        if let Some(newest) = self.entries.back_mut() {
            newest.total = total;
        }
    }

    /// Removes up to `hits` from the entries of one instant. Returns `true` if it took any.
    fn take_at(&mut self, at: Timestamp, hits: u64) -> bool {
        let first = self.entries.partition_point(|entry| entry.at < at);
        let before = self.total_before(first);
        let later = self.entries.partition_point(|entry| entry.at <= at);
        let part = hits.min(self.total_before(later).saturating_sub(before));
        if part == 0 {
            return false;
        }
        let emptied =
            self.entries.partition_point(|entry| entry.total <= before.saturating_add(part));
        self.entries.drain(first..emptied);
        for entry in self.entries.iter_mut().skip(first) {
            entry.total = entry.total.saturating_sub(part);
        }
        true
    }

    /// Drops the entries that have expired from a window of this length.
    fn forget(&mut self, period: Micros, now: Timestamp) {
        let gone = self.expired_count(period, now);
        self.base = self.total_before(gone);
        self.entries.drain(..gone);
    }
}
