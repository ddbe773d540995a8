//! GCRA, the generic cell rate algorithm, equivalent to a token bucket: L hits per P, evenly
//! spaced, and bursts of up to C.
//!
//! Idea: a hit costs `T = P / L` of time. The backlog `D` is the time until the counter is idle; it
//! drains by itself. Hits are allowed iff `n <= C` and `D + n*T <= C*T`, and a charge makes it
//! `D + n*T`. A token bucket of capacity C that refills L tokens per P holds `C - D/T` tokens: the
//! two are equivalent.
//!
//! Example, L = 60 per minute (T = 1 s), C = 3: three hits at 0:00 are admitted (D = 3 s), the
//! fourth is denied with retry_after 1 s; at 0:01 one more is admitted.
//!
//! Representation, exact in integers that a Lua script shares: with g = gcd(L, P), p = P/g and
//! l = L/g, T is p/l microseconds, and a backlog is `whole + part/l` with part < l. Draining
//! subtracts whole microseconds and needs no division.

mod backlog;
mod marked;

use super::Receipt;
use super::parameter::{Parameter, Parameters};
use super::quota::{MAX_HITS, QuotaError, Report, Window, WindowReport};
use super::share::Share;
use super::time::{Micros, Timestamp};

/// Longest time that a full burst may take to drain, 2^51 us: 71 years.
const MAX_DRAIN: u64 = 1 << 51;
/// Longest backlog, debt included, 2^53 us: 285 years.
const MAX_BACKLOG: u64 = 1 << 53;
/// Default of `max_debt`, in bursts.
const DEFAULT_DEBT_BURSTS: u64 = 10;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gcra {
    window: [Window; 1],
    burst: u32,
    max_debt: u64,
    /// Burst and debt as configured; an absent one follows the amount.
    configured: (Option<u32>, Option<u64>),
    interval: Interval,
    /// C*T: the backlog of a full burst.
    full: Backlog,
    /// (C + max_debt) * T: the largest backlog that charges past the limit can add up to.
    deepest: Backlog,
}

/// The counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    /// Backlog at `last`, in parts of the interval that belongs to `limit`.
    backlog: Backlog,
    /// Amount per period that the backlog was computed with: a change keeps the hits, not the time.
    limit: u32,
}

/// T = `period / limit` microseconds in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    /// P / g.
    period: u64,
    /// L / g: the number of parts in a microsecond.
    parts: u32,
    /// g = gcd(L, P).
    divisor: u32,
}

/// A duration of `whole` microseconds and `part` of [`Constants::parts`]. Packed: every counter has
/// one, and would otherwise be 8 bytes larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
pub struct Backlog {
    /// Whole microseconds.
    pub whole: u64,
    /// Remainder, in parts of a microsecond.
    pub part: u32,
}

/// The constants of a limit for a program without integers beyond 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Number of parts in a microsecond.
    pub parts: u32,
    /// Cost of one hit, as time.
    pub one: Backlog,
    /// The backlog of a full burst.
    pub full: Backlog,
    /// The largest backlog that charges past the limit can add up to.
    pub deepest: Backlog,
}

impl Gcra {
    /// Creates a limit of `window.limit()` hits per `window.period()`, evenly spaced, and at most
    /// `burst` at once (default: the limit).
    ///
    /// `max_debt` bounds the hits past the limit; default ten bursts, or what fits in 285 years.
    ///
    /// # Errors
    /// If the burst is 0 or takes longer than 71 years to drain, or the debt longer than 285.
    pub fn new(
        window: Window,
        burst: Option<u32>,
        max_debt: Option<u64>,
    ) -> Result<Self, QuotaError> {
        let configured = (burst, max_debt);
        let limit = window.limit().max(1); // a ban has no interval and never needs one
        let burst = burst.unwrap_or(limit);
        if burst == 0 {
            return Err(QuotaError::NoBurst);
        }
        let interval = Interval::new(limit, window.period());
        let full = interval.times(u64::from(burst));
        if full.whole >= MAX_DRAIN {
            return Err(QuotaError::BurstTooSlow { burst, limit, period: window.period() });
        }
        let allowed = interval.fitting(MAX_BACKLOG).saturating_sub(u64::from(burst));
        let max_debt = match max_debt {
            Some(found) if found > allowed => return Err(QuotaError::Debt { found, allowed }),
            Some(debt) => debt,
            None => u64::from(burst).saturating_mul(DEFAULT_DEBT_BURSTS).min(allowed),
        };
        let deepest = interval.times(max_debt.saturating_add(u64::from(burst)));
        Ok(Self { window: [window], burst, max_debt, configured, interval, full, deepest })
    }

    /// Returns the limit for another amount and period; reduces a configured burst to what drains
    /// in 71 years, and a configured debt to what drains in 285.
    pub(super) fn with_window(&self, window: Window) -> Result<Self, QuotaError> {
        let fitting = Interval::new(window.limit().max(1), window.period()).fitting(MAX_DRAIN - 1);
        let (burst, max_debt) = self.configured;
        let burst = burst.map(|burst| burst.min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1));
        match Self::new(window.clone(), burst, max_debt) {
            Err(QuotaError::Debt { allowed, .. }) => Self::new(window, burst, Some(allowed)),
            made => made,
        }
    }

    /// Returns the share of the limit: a slower rate, a smaller burst; a rate of 0 if no burst is
    /// left.
    pub(super) fn share(&self, share: Share) -> Result<Self, QuotaError> {
        let burst = share.amount(self.burst);
        let [window] = &self.window;
        let rate = if burst == 0 { 0 } else { share.amount(window.limit()) };
        // Debt is past use and has no share: the default applies.
        Self::new(window.with_limit(rate), Some(burst.max(1)), None)
    }

    /// Returns the number of hits that an idle counter admits at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the maximum number of hits past the limit.
    pub fn max_debt(&self) -> u64 {
        self.max_debt
    }

    pub(super) fn parameters(&self) -> Parameters {
        let burst = Parameter::amount("burst", self.burst.into());
        let max_debt = Parameter::amount("max_debt", self.max_debt);
        [Some(burst), Some(max_debt)]
    }

    /// Returns the constants for a script.
    pub fn constants(&self) -> Constants {
        Constants {
            parts: self.interval.parts,
            one: self.interval.times(1),
            full: self.full,
            deepest: self.deepest,
        }
    }

    /// Returns the cost of `hits` as a backlog.
    pub fn cost(&self, hits: u64) -> Backlog {
        self.interval.times(hits)
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.window
    }

    pub(super) fn unused(&self) -> State {
        State { last: Timestamp::EPOCH, backlog: Backlog::default(), limit: self.limit() }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        let room = u64::from(self.burst).checked_sub(hits);
        room.is_some_and(|room| state.backlog(now) <= self.interval_of(state).times(room))
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        let before = state.backlog(now);
        // A backlog beyond the longest is beyond the deepest too, so nothing is added.
        let Some(own) = self.rescaled(before, state.limit) else {
            return state.write(before, state.limit, now);
        };
        let after = own.plus(self.interval.times(hits), self.interval.parts);
        // The deepest backlog bounds what is added, not what is already there.
        state.write(after.min(self.deepest).max(own), self.limit(), now);
    }

    /// Refunds hits. Returns `true` if it took any.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        self.relieve(state, hits, Micros::ZERO, now)
    }

    /// Undoes the part of a charge that has not drained since.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        self.relieve(state, receipt.hits, now.since(receipt.at), now)
    }

    /// Sets the latest instant of the counter.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) {
        state.write(state.backlog(now), state.limit, now);
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.window, denied.is_some(), self.reports(state, denied, now))
    }

    /// Returns the hits that have not drained at `now`; a partial hit counts as one.
    pub(super) fn counts<'a>(
        &'a self,
        state: &'a State,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> + 'a {
        std::iter::once(self.interval_of(state).hits_rounded_up(state.backlog(now)))
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        let backlog = state.backlog(now);
        let interval = self.interval_of(state);
        let burst = u64::from(self.burst);
        let remaining = burst.saturating_sub(interval.hits_rounded_up(backlog));
        // The backlog drains at the rate of the last write until the next one.
        let retry_after = denied
            .and_then(|hits| burst.checked_sub(hits))
            .map(|room| backlog.minus(interval.times(room), interval.parts).rounded_up());
        std::iter::once(WindowReport { remaining, reset_after: backlog.rounded_up(), retry_after })
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        state.last + state.backlog.rounded_up()
    }

    fn limit(&self) -> u32 {
        self.window.iter().map(Window::limit).sum()
    }

    /// Returns the interval of the amount that the backlog was computed with. Judging by it is
    /// exact for any amount: a number of hits is a whole number of parts of either interval.
    fn interval_of(&self, state: &State) -> Interval {
        if state.limit == self.limit() { self.interval } else { self.interval_with(state.limit) }
    }

    fn interval_with(&self, limit: u32) -> Interval {
        Interval::new(
            limit.max(1),
            self.window.iter().map(Window::period).max().unwrap_or_default(),
        )
    }

    /// Converts a backlog of another amount to this limit's parts: the same hits, rounded up, so
    /// that a change of the amount never grants one. `None`: more than 285 years to drain.
    fn rescaled(&self, backlog: Backlog, limit: u32) -> Option<Backlog> {
        if limit == self.limit() {
            return Some(backlog);
        }
        self.interval.rescaled(backlog, self.interval_with(limit))
    }

    /// Subtracts the cost of `hits`, less what drained of it in `elapsed` at the higher of the two
    /// rates, at which more drains: in doubt, less is taken. Returns `true` if it took any.
    fn relieve(&self, state: &mut State, hits: u64, elapsed: Micros, now: Timestamp) -> bool {
        let before = state.backlog(now);
        let (before, interval, limit) = match self.rescaled(before, state.limit) {
            Some(own) if state.limit <= self.limit() => (own, self.interval, self.limit()),
            Some(_) | None => (before, self.interval_with(state.limit), state.limit),
        };
        // No backlog is longer, so neither was the part of a charge in it, which has drained since.
        let longest = Backlog { whole: MAX_BACKLOG, part: 0 };
        let by = interval.times(hits).min(longest).drained(elapsed);
        if before == Backlog::default() || by == Backlog::default() {
            return false;
        }
        let after = before.minus(by, interval.parts);
        match self.rescaled(after, limit) {
            Some(own) => state.write(own, self.limit(), now),
            None => state.write(after, limit, now),
        }
        true
    }
}

impl State {
    /// Returns the backlog at `now`, in parts of the interval of `limit`, at whose rate it drains.
    fn backlog(&self, now: Timestamp) -> Backlog {
        self.backlog.drained(now.since(self.last))
    }

    fn write(&mut self, backlog: Backlog, limit: u32, now: Timestamp) {
        *self = Self { last: now, backlog, limit };
    }
}

impl Interval {
    fn new(limit: u32, period: Micros) -> Self {
        let divisor = gcd(u64::from(limit), period.get());
        Self {
            period: period.get().checked_div(divisor).unwrap_or_default(),
            parts: u32::try_from(u64::from(limit).checked_div(divisor).unwrap_or_default())
                .unwrap_or(u32::MAX),
            divisor: u32::try_from(divisor).unwrap_or(u32::MAX),
        }
    }

    /// Returns `hits * T`.
    fn times(&self, hits: u64) -> Backlog {
        let parts = u64::from(self.parts);
        // A year times a count needs 128 bits; the common case, a second times one hit, needs 64.
        let (whole, part) = match hits.checked_mul(self.period) {
            Some(product) => (product.checked_div(parts), product.checked_rem(parts)),
            None => {
                let product = u128::from(hits).saturating_mul(u128::from(self.period));
                let whole = product
                    .checked_div(u128::from(parts))
                    .map(|whole| u64::try_from(whole).unwrap_or(u64::MAX));
                (
                    whole,
                    product
                        .checked_rem(u128::from(parts))
                        .and_then(|part| u64::try_from(part).ok()),
                )
            }
        };
        Backlog {
            whole: whole.unwrap_or(u64::MAX),
            part: part.and_then(|part| u32::try_from(part).ok()).unwrap_or_default(),
        }
    }

    /// Returns `floor(backlog / T)`.
    fn hits(&self, backlog: Backlog) -> u64 {
        let hits = self.parts_in(backlog).checked_div(u128::from(self.period));
        hits.and_then(|hits| u64::try_from(hits).ok()).unwrap_or(MAX_HITS)
    }

    /// Returns `ceil(backlog / T)`.
    fn hits_rounded_up(&self, backlog: Backlog) -> u64 {
        let hits = self.parts_in(backlog).div_ceil(u128::from(self.period.max(1)));
        u64::try_from(hits).unwrap_or(MAX_HITS)
    }

    fn parts_in(&self, backlog: Backlog) -> u128 {
        u128::from(backlog.whole)
            .saturating_mul(u128::from(self.parts))
            .saturating_add(u128::from(backlog.part))
    }

    /// Returns the maximum number of hits in a backlog of `whole` microseconds.
    fn fitting(&self, whole: u64) -> u64 {
        self.hits(Backlog { whole, part: 0 }).min(MAX_HITS)
    }

    /// Converts a backlog of another amount per the same period for the same hits:
    /// `D * L_old / L_new`, rounded up. `None` if the result exceeds the longest backlog.
    fn rescaled(&self, backlog: Backlog, old: Self) -> Option<Backlog> {
        let parts = old.parts_in(backlog).saturating_mul(u128::from(old.divisor));
        let parts = parts.div_ceil(u128::from(self.divisor.max(1)));
        let whole = u64::try_from(parts.checked_div(u128::from(self.parts))?).ok()?;
        let part = u32::try_from(parts.checked_rem(u128::from(self.parts))?).ok()?;
        (whole < MAX_BACKLOG).then_some(Backlog { whole, part })
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or_default());
    }
    a.max(1)
}
