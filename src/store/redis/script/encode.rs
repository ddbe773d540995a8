//! Encodes a request for the scripts, in the format that the head of `lua/decide.lua` defines.

mod cost;
mod holds;

use hashbrown::HashTable;
use smallvec::SmallVec;

use self::cost::{GENERAL_US, cost_us};
pub(in crate::store::redis) use self::holds::operation;
use super::key::{RedisKey, key_of};
use super::{ONE_FIXED_WINDOW, ScriptNeeds, number_of};
use crate::algorithm::amend::Amendment;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::{Backlog, Gcra};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::quota::Window;
use crate::algorithm::sliding_window::{Estimate, SlidingWindow};
use crate::algorithm::time::{Micros, Timestamp};
use crate::algorithm::verdict::{Prior, Role};
use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError, Receipt};
use crate::descriptor::hash_of;
use crate::store::Check;

/// The largest integer that a script represents exactly.
pub(in crate::store::redis) const MAX_EXACT: u64 = 1 << 53;

/// The length that marks a value as unknown.
pub(super) const NOT_KNOWN: u64 = 65_535;

/// The part of a reply to a charge by which it can be undone without a trace, if the counter has
/// not been written since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct Undo {
    /// The counter's value without the charge; empty if there was none; `None` if it is too long to
    /// return, in which case the take-back uses the receipt.
    pub(in crate::store::redis) without_charge: Option<Vec<u8>>,
    /// The digest of the value with the charge; `None` if it is derived by repeating the charge.
    pub(in crate::store::redis) digest: Option<[u8; 16]>,
    /// Expiry of the record of a hold after the charge and before it; the epoch if there was none.
    pub(in crate::store::redis) record: (Timestamp, Timestamp),
}

/// Operation of a check on existing holds, and the flag of a check whose limit keeps holds.
const ON_HOLD: u8 = 5;
const HOLDS: u8 = 16;

/// Up to this many keys, a new key is compared with each; beyond, it is looked up by hash.
const FEW_KEYS: usize = 8;

/// Bits shared by the backlog and its amount in the short form of a gcra value.
const ROOM_BITS: u32 = 31;

/// Encoded size of a span in bytes.
const SPAN_BYTES: usize = 14;

/// Context of a request for a script, besides the checks of its slot.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store::redis) struct Context {
    pub(in crate::store::redis) prior: Prior,
    /// Set if other slots judge the rest of the request.
    pub(in crate::store::redis) is_partial: bool,
    /// Set if this process decides `on_store_error: local`; otherwise that is an error.
    pub(in crate::store::redis) has_fallback: bool,
}

/// The checks of one request in one slot, encoded.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct ScriptRequest {
    /// The instant to judge at, or `None` if the server decides it.
    pub(in crate::store::redis) given: Option<Timestamp>,
    /// The counters' keys, in the order of the checks; without duplicates for the general script.
    pub(in crate::store::redis) keys: SmallVec<[RedisKey; 1]>,
    /// Indices of the keys by hash, if there are more than [`FEW_KEYS`].
    pub(in crate::store::redis) indexes: HashTable<usize>,
    pub(in crate::store::redis) text: SmallVec<[u8; 64]>,
    pub(in crate::store::redis) needs: ScriptNeeds,
    /// Estimated server time in microseconds.
    pub(in crate::store::redis) cost_us: u32,
    pub(in crate::store::redis) checks: u16,
    /// The encoded calendars, with their offsets in the text.
    pub(in crate::store::redis) calendars: Vec<(usize, Calendar)>,
    /// As in [`Context`].
    pub(in crate::store::redis) has_fallback: bool,
}

/// The operation that a check requests of a script.
#[derive(Clone, Debug)]
pub(in crate::store::redis) enum Wanted {
    Hits(Hits),
    TakeBack(Receipt, Undo),
}

impl ScriptRequest {
    /// Creates a request without checks.
    pub(in crate::store::redis) fn new(context: Context, given: Option<Timestamp>) -> Self {
        let Context { prior, is_partial, has_fallback } = context;
        let text = SmallVec::from_slice(&[prior_number(prior), u8::from(is_partial), 0, 0, 0, 0]);
        Self { has_fallback, ..Self::of(given, SmallVec::new(), text, ScriptNeeds::default()) }
    }

    /// Creates a request for any script, with a cost of 0.
    pub(in crate::store::redis) fn of(
        given: Option<Timestamp>,
        keys: SmallVec<[RedisKey; 1]>,
        text: SmallVec<[u8; 64]>,
        needs: ScriptNeeds,
    ) -> Self {
        let indexes = HashTable::new();
        Self {
            given,
            keys,
            indexes,
            text,
            needs,
            cost_us: 0,
            checks: 0,
            calendars: Vec::new(),
            has_fallback: false,
        }
    }

    /// Adds a check of a counter whose key begins with `prefix`. `now` approximates the server's
    /// time, for the calendar windows around it.
    pub(in crate::store::redis) fn add(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        wanted: Wanted,
        now: Timestamp,
    ) {
        let key = self.key(key_of(prefix, &check.key));
        let (kind, hits, at) = match &wanted {
            Wanted::Hits(Hits::Charge(hits)) => (0, *hits, Timestamp::EPOCH),
            Wanted::Hits(Hits::Peek(hits)) => (1, *hits, Timestamp::EPOCH),
            Wanted::Hits(Hits::Refund(hits)) => (2, *hits, Timestamp::EPOCH),
            Wanted::TakeBack(receipt, _) => (
                if receipt.of_grant { 4 } else { 3 },
                u32::try_from(receipt.hits).unwrap_or(u32::MAX),
                receipt.at,
            ),
        };
        let kind = if check.is_on_hold() { ON_HOLD } else { kind };
        let kind = if check.limit.hold().is_some() { kind | HOLDS } else { kind };
        let (mode, role, on_error) = parts_of(check, self.has_fallback);
        self.text.extend([kind, mode, role, on_error, number_of(check.limit)]);
        self.put(key, 2);
        self.put(hits.into(), 4);
        self.put(at.as_micros(), 7);
        self.recorded(check.recorded);
        if let Wanted::TakeBack(_, Undo { without_charge, digest, .. }) = &wanted {
            let length = without_charge
                .as_ref()
                .map_or(NOT_KNOWN, |value| u64::try_from(value.len()).unwrap_or(NOT_KNOWN));
            self.put(length, 2);
            self.text.extend(without_charge.iter().flatten().copied());
            self.put(digest.map_or(0, |_| 1), 1);
            self.text.extend(digest.iter().flatten().copied());
        }
        self.parameters(check.limit, now);
        let record = match &wanted {
            Wanted::Hits(_) => None,
            Wanted::TakeBack(_, undo) => Some(undo.record),
        };
        self.hold(prefix, check, record);
        self.checks = self.checks.saturating_add(1);
        self.cost_us = self.cost_us.saturating_add(GENERAL_US);
        let keys = u16::try_from(self.keys.len()).unwrap_or(u16::MAX);
        if let Some(counts) = self.text.get_mut(2..6) {
            counts
                .iter_mut()
                .zip(keys.to_be_bytes().into_iter().chain(self.checks.to_be_bytes()))
                .for_each(|(to, from)| *to = from);
        }
    }

    /// Encodes a request to `lua/amend.lua`.
    pub(in crate::store::redis) fn amend(
        prefix: &[u8],
        check: &Check<'_>,
        amendment: Amendment,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let (what, hits, length) = match amendment {
            Amendment::Look => (0, 0, Micros::ZERO),
            Amendment::Reset => (1, 0, Micros::ZERO),
            Amendment::Refund(hits) => (2, hits, Micros::ZERO),
            Amendment::Grant { hits, length } => (3, hits, length),
        };
        let keys = SmallVec::from_buf([key_of(prefix, &check.key)]);
        let what = if check.limit.hold().is_some() { what | HOLDS } else { what };
        let text = SmallVec::from_slice(&[what, number_of(check.limit)]);
        let mut request = Self {
            cost_us: GENERAL_US,
            checks: 1,
            ..Self::of(given, keys, text, ScriptNeeds::AMEND)
        };
        request.put(hits.into(), 4);
        request.put(length.get().min(MAX_EXACT), 7);
        request.parameters(check.limit, now);
        request.hold(prefix, check, None);
        request
    }

    pub(in crate::store::redis) fn recorded(&mut self, entries: &[Vec<u8>]) {
        self.put(u64::try_from(entries.len()).unwrap_or(u64::MAX), 1);
        for entry in entries {
            self.put(u64::try_from(entry.len()).unwrap_or(u64::MAX), 2);
            self.text.extend_from_slice(entry);
        }
    }

    /// Returns the number of a key, counted from 1; adds the key if it is new.
    pub(in crate::store::redis) fn key(&mut self, key: RedisKey) -> u64 {
        let index = self.index(&key).unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len().saturating_sub(1)
        });
        u64::try_from(index.saturating_add(1)).unwrap_or(u64::MAX)
    }

    /// Returns the index of a key, or `None` if it is new.
    pub(in crate::store::redis) fn index(&mut self, key: &RedisKey) -> Option<usize> {
        let Self { keys, indexes, .. } = self;
        if keys.len() <= FEW_KEYS {
            return keys.iter().position(|other| other == key);
        }
        for (index, key) in keys.iter().enumerate().skip(indexes.len()) {
            indexes.insert_unique(hash_of(key), index, |index| {
                keys.get(*index).map_or(0, |key| hash_of(key))
            });
        }
        indexes.find(hash_of(key), |index| keys.get(*index) == Some(key)).copied()
    }

    /// Appends the low `bytes` bytes of a number, big-endian.
    pub(in crate::store::redis) fn put(&mut self, number: u64, bytes: usize) {
        let all = number.to_be_bytes();
        self.text.extend_from_slice(all.get(all.len().saturating_sub(bytes)..).unwrap_or_default());
    }

    /// Appends the parameters of a limit's algorithm.
    pub(in crate::store::redis) fn parameters(&mut self, limit: &Limit, now: Timestamp) {
        let number = number_of(limit);
        self.needs.add(number);
        self.cost_us = self.cost_us.saturating_add(cost_us(limit));
        match limit.algorithm() {
            Algorithm::FixedWindow(_) if number == ONE_FIXED_WINDOW => {
                limit.windows().iter().for_each(|window| self.window(window));
            }
            Algorithm::FixedWindow(algorithm) => self.fixed_window(algorithm, limit, now),
            Algorithm::SlidingWindow(algorithm) => self.sliding_window(algorithm, limit),
            Algorithm::SlidingLog(_) => {
                self.count(limit);
                limit.windows().iter().for_each(|window| self.window(window));
            }
            Algorithm::Gcra(algorithm) => {
                limit.windows().iter().for_each(|window| self.rate(algorithm, window));
            }
            Algorithm::Concurrency(algorithm) => self.put(algorithm.in_flight().into(), 4),
        }
    }

    fn count(&mut self, limit: &Limit) {
        self.put(u64::try_from(limit.windows().len()).unwrap_or(u64::MAX), 1);
    }

    fn window(&mut self, window: &Window) {
        self.put(window.limit().into(), 4);
        self.put(window.period().get(), 7);
    }

    fn fixed_window(&mut self, _: &FixedWindow, limit: &Limit, now: Timestamp) {
        self.count(limit);
        for window in limit.windows() {
            self.window(window);
            match window.calendar() {
                None => self.put(0, 1),
                Some(calendar) => {
                    self.calendars.push((self.text.len(), calendar.clone()));
                    self.text.extend(spans(calendar, &[now]));
                }
            }
        }
    }

    /// Replaces the encoded calendar windows by those around these instants. Returns `true` if
    /// there is any calendar.
    pub(in crate::store::redis) fn reach(&mut self, instants: &[Timestamp]) -> bool {
        let old = std::mem::take(&mut self.text);
        let mut copied = 0;
        for (at, calendar) in &mut self.calendars {
            self.text.extend_from_slice(old.get(copied..*at).unwrap_or_default());
            let count = old.get(*at).copied().map_or(0, usize::from);
            copied = at.saturating_add(1).saturating_add(count.saturating_mul(SPAN_BYTES));
            *at = self.text.len();
            self.text.extend(spans(calendar, instants));
        }
        self.text.extend_from_slice(old.get(copied..).unwrap_or_default());
        !self.calendars.is_empty()
    }

    fn sliding_window(&mut self, algorithm: &SlidingWindow, limit: &Limit) {
        self.count(limit);
        self.put(algorithm.buckets().into(), 2);
        self.put(u64::from(algorithm.estimate() == Estimate::Weighted), 1);
        for (window, width) in limit.windows().iter().zip(algorithm.widths()) {
            self.window(window);
            self.put(width.get(), 7);
        }
    }

    fn rate(&mut self, algorithm: &Gcra, window: &Window) {
        let constants = algorithm.constants();
        let limit = u64::from(window.limit());
        let Backlog { whole, part } = constants.one;
        self.put(limit, 4);
        self.put(constants.parts.into(), 4);
        self.put(whole.saturating_mul(constants.parts.into()).saturating_add(part.into()), 7);
        self.put(algorithm.burst().into(), 4);
        self.backlog(constants.full);
        self.backlog(constants.deepest);
        let length = limit.checked_ilog2().map_or(0, |bits| bits.saturating_add(1));
        let bound = ROOM_BITS.checked_sub(length).map_or(0, |bits| 1u64 << bits);
        self.put((u64::from(length) << ROOM_BITS) | limit.saturating_mul(bound), 5);
        self.put(bound, 4);
    }

    fn backlog(&mut self, backlog: Backlog) {
        self.put(backlog.whole, 7);
        self.put(backlog.part.into(), 4);
    }
}

/// Encodes the calendar's windows before, at and after each of some instants: the server's clock
/// and a counter may be in another window than this process.
fn spans(calendar: &Calendar, instants: &[Timestamp]) -> Vec<u8> {
    let around = |instant: &Timestamp| {
        let (start, end) = calendar.bounds(*instant);
        [calendar.bounds(start - Micros::new(1)), (start, end), calendar.bounds(end)]
    };
    let mut spans: Few<(Timestamp, Timestamp)> = instants.iter().flat_map(around).collect();
    spans.sort_unstable();
    spans.dedup();
    let count = u8::try_from(spans.len()).unwrap_or(u8::MAX);
    let edges = spans.into_iter().take(count.into()).flat_map(<[Timestamp; 2]>::from);
    let edges =
        edges.flat_map(|edge| edge.as_micros().min(MAX_EXACT).to_be_bytes().into_iter().skip(1));
    std::iter::once(count).chain(edges).collect()
}

/// Encodes charge mode, role and `on_store_error` as the scripts number them.
fn parts_of(check: &Check<'_>, has_fallback: bool) -> (u8, u8, u8) {
    let mode = match check.limit.charge_mode() {
        Charge::Admitted => 0,
        Charge::Blamed => 1,
        Charge::Always => 2,
        Charge::Afterwards => 3,
    };
    let on_error = match check.limit.on_store_error() {
        OnStoreError::Allow => 1,
        OnStoreError::Deny => 2,
        OnStoreError::Local if has_fallback => 3,
        OnStoreError::Error | OnStoreError::Local => 0,
    };
    (mode, role_number(check.role), on_error)
}

/// Returns the number of a prior in the scripts.
pub(in crate::store::redis) fn prior_number(prior: Prior) -> u8 {
    match prior {
        Prior::Open => 0,
        Prior::Denied => 1,
        Prior::Admitted => 2,
    }
}

/// Returns the number of a role in the scripts.
pub(in crate::store::redis) fn role_number(role: Role) -> u8 {
    match role {
        Role::Enforce => 0,
        Role::Shadow => 1,
        Role::Quota => 2,
        Role::QuotaShadow => 3,
    }
}
