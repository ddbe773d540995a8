//! Encodes requests for the scripts, in the formats that the heads of `lua/decide.lua` and
//! `lua/amend.lua` define.

mod check;
mod cost;
mod holds;

use smallvec::SmallVec;
use tollgate_core::algorithm::calendar::Calendar;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::{Backlog, Gcra};
use tollgate_core::algorithm::judge::Few;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::algorithm::{Algorithm, Limit};

use self::cost::cost_us;
use super::key::RedisKey;
use super::{ONE_FIXED_WINDOW, ScriptNeeds, number_of};

/// The largest integer that a script represents exactly.
pub(in crate::redis) const MAX_EXACT: u64 = 1 << 53;

/// Bits shared by the backlog and its amount in the short form of a gcra value.
const ROOM_BITS: u32 = 31;

/// Encoded size of a span in bytes.
const SPAN_BYTES: usize = 14;

/// Context of a request for a script, besides the checks of its slot.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::redis) struct Context {
    pub(in crate::redis) prior: Prior,
    /// Set if other slots judge the rest of the request.
    pub(in crate::redis) is_partial: bool,
    /// Set if this process decides `on_store_error: local`; otherwise that is an error.
    pub(in crate::redis) has_fallback: bool,
}

/// The checks of one request in one slot, encoded.
#[derive(Clone, Debug)]
pub(in crate::redis) struct ScriptRequest {
    /// The instant to judge at, or `None` if the server decides it.
    pub(in crate::redis) given: Option<Timestamp>,
    /// The counters' keys, in the order of the checks, each followed by that of its holds.
    pub(in crate::redis) keys: SmallVec<[RedisKey; 1]>,
    pub(in crate::redis) text: SmallVec<[u8; 64]>,
    pub(in crate::redis) needs: ScriptNeeds,
    /// Estimated server time in microseconds.
    pub(in crate::redis) cost_us: u32,
    pub(in crate::redis) checks: u16,
    /// The encoded calendars, with their offsets in the text.
    pub(in crate::redis) calendars: Vec<(usize, Calendar)>,
}

impl ScriptRequest {
    /// Creates a request for any script, with a cost of 0.
    pub(in crate::redis) fn of(
        given: Option<Timestamp>,
        keys: SmallVec<[RedisKey; 1]>,
        text: SmallVec<[u8; 64]>,
        needs: ScriptNeeds,
    ) -> Self {
        Self { given, keys, text, needs, cost_us: 0, checks: 0, calendars: Vec::new() }
    }

    /// Appends the low `bytes` bytes of a number, big-endian.
    fn put(&mut self, number: u64, bytes: usize) {
        let all = number.to_be_bytes();
        self.text.extend_from_slice(all.get(all.len().saturating_sub(bytes)..).unwrap_or_default());
    }

    /// Appends the parameters of a limit's algorithm.
    fn parameters(&mut self, limit: &Limit, now: Timestamp) {
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
        self.put(limit.windows().len() as u64, 1);
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
    pub(in crate::redis) fn reach(&mut self, instants: &[Timestamp]) -> bool {
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
    let mut spans: Few<(Timestamp, Timestamp)> = Few::new();
    for instant in instants {
        let (start, end) = calendar.bounds(*instant);
        let before = calendar.bounds(start - Micros::new(1));
        spans.extend([before, (start, end), calendar.bounds(end)]);
    }
    spans.sort_unstable();
    spans.dedup();
    let count = u8::try_from(spans.len()).unwrap_or(u8::MAX);
    let edges = spans.into_iter().take(count.into()).flat_map(<[Timestamp; 2]>::from);
    let edges =
        edges.flat_map(|edge| edge.as_micros().min(MAX_EXACT).to_be_bytes().into_iter().skip(1));
    std::iter::once(count).chain(edges).collect()
}
