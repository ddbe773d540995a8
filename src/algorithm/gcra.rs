//! GCRA, the generic cell rate algorithm, which is also the token bucket: L hits per P, evenly, and C at once when rested.
//!
//! Idea: a hit costs `T = P / L` of time. The backlog `D` is the time until the counter is rested; it drains by itself. Hits
//! are allowed iff `n <= C` and `D + n*T <= C*T`, and a charge makes it `D + n*T`. A token bucket of capacity C that refills
//! L tokens per P holds `C - D/T` tokens: the same machine in other words.
//!
//! Example, L = 60 per minute (T = 1 s), C = 3: three hits at 0:00 are admitted (D = 3 s), the fourth is denied with
//! retry_after 1 s; at 0:01 one is admitted again.
//!
//! Representation, exact in integers that a Lua script shares: with g = gcd(L, P), p = P/g and l = L/g, T is p/l
//! microseconds, and a backlog is `whole + part/l` with part < l. Draining takes whole microseconds and divides nothing.

use super::Receipt;
use super::quota::{MAX_HITS, QuotaError, Report, Window, WindowReport};
use super::time::{Micros, Timestamp};

/// Longest time that a whole burst may take to drain, 2^51 us: 71 years.
const MAX_DRAIN: u64 = 1 << 51;
/// Longest backlog, debt included, 2^53 us: 285 years.
const MAX_BACKLOG: u64 = 1 << 53;
/// `max_debt` where a policy does not say: this many bursts.
const DEFAULT_DEBT_BURSTS: u64 = 10;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gcra {
    window: [Window; 1],
    burst: u32,
    max_debt: u64,
    /// Burst and debt as they were asked for: those that were not follow the amount.
    asked: (Option<u32>, Option<u64>),
    interval: Interval,
    /// C*T: the backlog of a burst.
    full: Backlog,
    /// (C + max_debt) * T: what charges past the limit can add up to.
    deepest: Backlog,
}

/// The counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    /// At `last`, in parts of the interval that belongs to `limit`.
    backlog: Backlog,
    /// The amount per period that the backlog was reckoned with: another one keeps the hits used, not the time.
    limit: u32,
}

/// T = `period / limit` microseconds in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    /// P / g.
    period: u64,
    /// L / g: how many parts a microsecond has.
    parts: u32,
    /// g = gcd(L, P).
    divisor: u32,
}

/// A length of time, `whole` microseconds and `part` of [`Constants::parts`]. Packed: each counter has one, and would be 8 bytes
/// larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
pub struct Backlog {
    /// Whole microseconds.
    pub whole: u64,
    /// What is left over, in fractions of a microsecond.
    pub part: u32,
}

/// What a program without integers beyond 2^53 needs to reckon with the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Fractions that a microsecond is counted in.
    pub parts: u32,
    /// The time that one hit costs.
    pub one: Backlog,
    /// The time that 65,536 hits cost; at most 2^53 us, which no limit allows.
    pub many: Backlog,
    /// The backlog of a burst.
    pub full: Backlog,
    /// What charges past the limit can add up to.
    pub deepest: Backlog,
}

impl Gcra {
    /// `window.limit()` hits per `window.period()`, evenly, and at most `burst` at once (default: the limit).
    ///
    /// `max_debt` bounds what charges past the limit add up to, in hits; default ten bursts, or what fits in 285 years.
    ///
    /// # Errors
    /// Where the burst is 0, takes longer than 71 years to drain, or the debt longer than 285.
    pub fn new(window: Window, burst: Option<u32>, max_debt: Option<u64>) -> Result<Self, QuotaError> {
        let asked = (burst, max_debt);
        let limit = window.limit().max(1); // a ban has no interval and never asks for one
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
        Ok(Self { window: [window], burst, max_debt, asked, interval, full, deepest })
    }

    /// The same with another amount and period; a burst that was asked for is kept as far as it drains in 71 years.
    pub(super) fn with_window(&self, window: Window) -> Result<Self, QuotaError> {
        let fitting = Interval::new(window.limit().max(1), window.period()).fitting(MAX_DRAIN.saturating_sub(1));
        let (burst, max_debt) = self.asked;
        let burst = burst.map(|burst| burst.min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1));
        match Self::new(window.clone(), burst, max_debt) {
            Err(QuotaError::Debt { allowed, .. }) => Self::new(window, burst, Some(allowed)),
            made => made,
        }
    }

    /// The same with `of` each amount: the rate slower, the burst smaller.
    pub(super) fn share(&self, of: impl Fn(u32) -> u32) -> Result<Self, QuotaError> {
        let window = self.window.clone().map(|window| window.with_limit(of(window.limit())));
        let [window] = window;
        // A debt is what has been used already, and is no share of anything.
        Self::new(window, Some(of(self.burst)), None)
    }

    /// Hits that a rested counter admits at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Hits past the limit that are remembered.
    pub fn max_debt(&self) -> u64 {
        self.max_debt
    }

    /// The numbers behind it, for a script.
    pub fn constants(&self) -> Constants {
        let many = self.interval.times(1 << 16).min(Backlog { whole: MAX_BACKLOG, part: 0 });
        let (full, deepest) = (self.full, self.deepest);
        Constants { parts: self.interval.parts, one: self.interval.times(1), many, full, deepest }
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.window
    }

    pub(super) fn unused(&self) -> State {
        State { last: Timestamp::EPOCH, backlog: Backlog::default(), limit: self.limit() }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        let after = self.backlog(state, now).plus(self.interval.times(hits), self.interval.parts);
        hits <= u64::from(self.burst) && after <= self.full
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        let before = self.backlog(state, now);
        let after = before.plus(self.interval.times(hits), self.interval.parts);
        // A limit that was lowered may have left more than the deepest; a charge never gives any of it back.
        self.write(state, after.min(self.deepest).max(before), now);
    }

    /// Gives hits back. Says whether there was anything to take.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        self.relieve(state, self.interval.times(hits), now)
    }

    /// Undoes as much of a charge as has not drained since.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        self.relieve(state, self.interval.times(receipt.hits).drained(now.since(receipt.at)), now)
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.window, denied.is_some(), self.reports(state, denied, now))
    }

    /// Hits that have not drained at `now`; a part of one counts as one.
    pub(super) fn counts<'a>(&'a self, state: &'a State, now: Timestamp) -> impl Iterator<Item = u64> + 'a {
        let backlog = self.backlog(state, now);
        let whole = self.interval.hits(backlog);
        std::iter::once(whole.saturating_add(u64::from(self.interval.times(whole) < backlog)))
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        let backlog = self.backlog(state, now);
        let free = self.full.minus(backlog, self.interval.parts);
        let retry_after = denied.filter(|hits| *hits <= u64::from(self.burst)).map(|hits| {
            let after = backlog.plus(self.interval.times(hits), self.interval.parts);
            after.minus(self.full, self.interval.parts).rounded_up()
        });
        let (remaining, reset_after) = (self.interval.hits(free), backlog.rounded_up());
        std::iter::once(WindowReport { remaining, reset_after, retry_after })
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        // Under a lower limit, which may come, the same hits would take longer; the grace of a kept counter covers that.
        state.last + state.backlog.rounded_up()
    }

    fn limit(&self) -> u32 {
        self.window.iter().map(Window::limit).sum()
    }

    /// The backlog at `now`, in this limit's parts.
    ///
    /// It drains at the rate it was reckoned with, which was in force meanwhile, and is then rescaled: the same hits, but no more
    /// than a counter under this limit can owe.
    fn backlog(&self, state: &State, now: Timestamp) -> Backlog {
        let drained = state.backlog.drained(now.since(state.last));
        if state.limit == self.limit() {
            drained
        } else {
            self.interval.rescaled(drained, state.limit).min(self.deepest)
        }
    }

    fn relieve(&self, state: &mut State, by: Backlog, now: Timestamp) -> bool {
        let before = self.backlog(state, now);
        let takes = before > Backlog::default() && by > Backlog::default();
        if takes {
            self.write(state, before.minus(by, self.interval.parts), now);
        }
        takes
    }

    fn write(&self, state: &mut State, backlog: Backlog, now: Timestamp) {
        *state = State { last: now, backlog, limit: self.limit() };
    }
}

impl Interval {
    fn new(limit: u32, period: Micros) -> Self {
        let divisor = gcd(u64::from(limit), period.get());
        Self {
            period: period.get().checked_div(divisor).unwrap_or_default(),
            parts: u32::try_from(u64::from(limit).checked_div(divisor).unwrap_or_default()).unwrap_or(u32::MAX),
            divisor: u32::try_from(divisor).unwrap_or(u32::MAX),
        }
    }

    /// `hits * T`.
    fn times(&self, hits: u64) -> Backlog {
        let parts = u64::from(self.parts);
        // The product of a year and a count needs 128 bits; of a second and one hit, the usual case, 64.
        let (whole, part) = match hits.checked_mul(self.period) {
            Some(product) => (product.checked_div(parts), product.checked_rem(parts)),
            None => {
                let product = u128::from(hits).saturating_mul(u128::from(self.period));
                let whole =
                    product.checked_div(u128::from(parts)).map(|whole| u64::try_from(whole).unwrap_or(u64::MAX));
                (whole, product.checked_rem(u128::from(parts)).and_then(|part| u64::try_from(part).ok()))
            }
        };
        Backlog {
            whole: whole.unwrap_or(u64::MAX),
            part: part.and_then(|part| u32::try_from(part).ok()).unwrap_or_default(),
        }
    }

    /// `floor(backlog / T)`.
    fn hits(&self, backlog: Backlog) -> u64 {
        let parts = u128::from(backlog.whole).saturating_mul(u128::from(self.parts));
        let hits = parts.saturating_add(u128::from(backlog.part)).checked_div(u128::from(self.period));
        hits.and_then(|hits| u64::try_from(hits).ok()).unwrap_or(MAX_HITS)
    }

    /// How many hits a backlog of `whole` microseconds is at most.
    fn fitting(&self, whole: u64) -> u64 {
        self.hits(Backlog { whole, part: 0 }).min(MAX_HITS)
    }

    /// A backlog that was reckoned with another amount per the same period, for the same hits: `D * L_old / L_new`,
    /// rounded up, so that a change of the amount never grants a hit. What comes to more than 285 years is cut off there.
    fn rescaled(&self, backlog: Backlog, old_limit: u32) -> Backlog {
        let period = u128::from(self.period).saturating_mul(u128::from(self.divisor));
        let old_divisor = gcd(u64::from(old_limit.max(1)), u64::try_from(period).unwrap_or(u64::MAX));
        let old_parts = u64::from(old_limit.max(1)).checked_div(old_divisor).unwrap_or(1);
        let in_parts =
            u128::from(backlog.whole).saturating_mul(u128::from(old_parts)).saturating_add(backlog.part.into());
        let parts = in_parts.saturating_mul(u128::from(old_divisor)).div_ceil(u128::from(self.divisor.max(1)));
        let whole = parts.checked_div(u128::from(self.parts)).unwrap_or_default();
        let part = parts.checked_rem(u128::from(self.parts)).unwrap_or_default();
        match u64::try_from(whole) {
            Ok(whole) if whole < MAX_BACKLOG => Backlog { whole, part: u32::try_from(part).unwrap_or_default() },
            _ => Backlog { whole: MAX_BACKLOG, part: 0 },
        }
    }
}

impl Backlog {
    fn plus(self, other: Self, parts: u32) -> Self {
        let whole = self.whole.saturating_add(other.whole);
        let part = u64::from(self.part).saturating_add(u64::from(other.part));
        match u32::try_from(part.saturating_sub(u64::from(parts))) {
            Ok(carried) if part >= u64::from(parts) => Self { whole: whole.saturating_add(1), part: carried },
            _ => Self { whole, part: u32::try_from(part).unwrap_or(u32::MAX) },
        }
    }

    /// The difference; zero where `other` is larger.
    fn minus(self, other: Self, parts: u32) -> Self {
        if self <= other {
            return Self::default();
        }
        let whole = self.whole.saturating_sub(other.whole);
        match self.part.checked_sub(other.part) {
            Some(part) => Self { whole, part },
            None => {
                let part = parts.saturating_sub(other.part).saturating_add(self.part);
                Self { whole: whole.saturating_sub(1), part }
            }
        }
    }

    /// What is left after `elapsed`.
    fn drained(self, elapsed: Micros) -> Self {
        match self.whole.checked_sub(elapsed.get()) {
            Some(whole) => Self { whole, part: self.part },
            None => Self::default(),
        }
    }

    fn rounded_up(self) -> Micros {
        Micros::new(self.whole) + Micros::new(u64::from(self.part > 0))
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or_default());
    }
    a.max(1)
}
