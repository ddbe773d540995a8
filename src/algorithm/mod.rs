//! The arithmetic of limits: values in, values out; no clock, no IO, no lock, no allocation beyond a counter's own state.
//!
//! | file | what it knows |
//! |---|---|
//! | [`time`] | instants and lengths in microseconds |
//! | [`quota`] | windows, their bounds, and which window of a limit binds |
//! | [`calendar`] | windows that begin at local midnight |
//! | [`fixed_window`], [`sliding_window`], [`sliding_log`], [`gcra`] | one algorithm each, all of the same shape |
//! | [`verdict`] | how the verdicts of several limits become one, and which of them are charged |
//! | [`judge`] | a whole request against its counters: look first, write second, report last |
//! | [`amend`] | what people do to one counter: look, reset, refund, grant |
//! | [`tallies`] | which entries of requests used a counter up |
//! | [`lease`] | hits that are charged in advance: how many, how long, and what that does to a limit |
//!
//! A new algorithm is a file like [`gcra`], a variant of [`Algorithm`] and of [`State`]; the compiler names the arms.
//! It may use [`time`] and [`quota`] and nothing else of the house.

pub mod amend;
pub mod calendar;
pub mod fixed_window;
pub mod gcra;
pub mod judge;
#[cfg(test)]
mod laws;
pub mod lease;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;
pub mod tallies;
pub mod time;
pub mod verdict;

use std::num::NonZeroU32;

use amend::Extended;
use fixed_window::FixedWindow;
use gcra::Gcra;
use quota::{QuotaError, Report, Window};
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use time::{Micros, Timestamp};

/// How hits are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each type says what it is")]
pub enum Algorithm {
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    Gcra(Gcra),
}

/// When the hits of a request are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// When the whole request is admitted and this limit allowed them: a denied request costs nothing anywhere.
    Admitted,
    /// When the request is admitted, or this limit itself denied them.
    Blamed,
    /// Always: a client that hammers stays out.
    Always,
    /// Always, and a peek passes only where one more hit would fit: for costs known when the response is done.
    Afterwards,
}

/// What the answer is where the store cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreError {
    /// The call fails, so that the caller's own failure mode decides.
    #[default]
    Error,
    /// OK, without a number of hits left.
    Allow,
    /// OVER_LIMIT.
    Deny,
    /// This process decides alone, by its share of the limit.
    Local,
}

/// What a rule imposes: an algorithm with its numbers, when it is charged, and what happens without a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    charge: Charge,
    on_store_error: OnStoreError,
    ban: bool,
}

/// The counter of one limit for one set of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    FixedWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    SlidingLog(Box<sliding_log::State>),
    Gcra(gcra::State),
    /// One of the others, and what stands beside it.
    Extended(Box<Extended>),
}

/// What was charged and when, by the counter's own time: enough to undo exactly that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The instant of the charge; of hits that were taken of a grant that of the grant, which no other has.
    pub at: Timestamp,
    /// The hits charged.
    pub hits: u64,
    /// Whether they were taken of a grant, and cost the limit nothing.
    pub of_grant: bool,
}

/// The counter was written by another algorithm: it cannot be read, and is never taken for an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counter was written by another algorithm")]
pub struct Unreadable;

/// Runs `$call` with the parameters and the state of one algorithm; [`Unreadable`] where they are of two.
macro_rules! with_algorithm {
    ($algorithm:expr, $state:expr, |$p:ident, $s:ident| $call:expr) => {
        match ($algorithm, $state) {
            (Algorithm::FixedWindow($p), Inner::FixedWindow($s)) => Ok($call),
            (Algorithm::SlidingWindow($p), Inner::SlidingWindow($s)) => Ok($call),
            (Algorithm::SlidingLog($p), Inner::SlidingLog($s)) => Ok($call),
            (Algorithm::Gcra($p), Inner::Gcra($s)) => Ok($call),
            (
                Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Gcra(_),
                _,
            ) => Err(Unreadable),
        }
    };
}

impl Limit {
    /// A limit.
    ///
    /// # Errors
    /// Where a sliding log would be charged hits past its limit without a bound.
    pub fn new(algorithm: Algorithm, charge: Charge, on_store_error: OnStoreError) -> Result<Self, QuotaError> {
        let unbounded = match charge {
            Charge::Always => Some("always"),
            Charge::Afterwards => Some("afterwards"),
            Charge::Admitted | Charge::Blamed => None,
        };
        if let (Algorithm::SlidingLog(_), Some(charge)) = (&algorithm, unbounded) {
            return Err(QuotaError::LogCharge { charge });
        }
        let ban = algorithm.windows().iter().any(|window| window.limit() == 0);
        Ok(Self { algorithm, charge, on_store_error, ban })
    }

    /// The same limit with another amount and period, as a request may ask for.
    ///
    /// # Errors
    /// Where the algorithm cannot count in that period.
    pub fn with_window(&self, window: Window) -> Result<Self, QuotaError> {
        let algorithm = match &self.algorithm {
            Algorithm::FixedWindow(_) => Algorithm::FixedWindow(FixedWindow::new(vec![window])?),
            Algorithm::SlidingWindow(old) => {
                Algorithm::SlidingWindow(SlidingWindow::new(vec![window], old.buckets(), old.estimate())?)
            }
            Algorithm::SlidingLog(_) => Algorithm::SlidingLog(SlidingLog::new(vec![window])?),
            Algorithm::Gcra(old) => Algorithm::Gcra(old.with_window(window)?),
        };
        Self::new(algorithm, self.charge, self.on_store_error)
    }

    /// One of `parts` equal shares of the limit, at least one hit; what is a ban stays one.
    pub fn share(&self, parts: NonZeroU32) -> Self {
        let of = |amount: u32| if amount == 0 { 0 } else { amount.checked_div(parts.get()).unwrap_or(1).max(1) };
        let windows = || self.windows().iter().map(|window| window.with_limit(of(window.limit()))).collect();
        let algorithm = match &self.algorithm {
            Algorithm::FixedWindow(_) => FixedWindow::new(windows()).map(Algorithm::FixedWindow),
            Algorithm::SlidingWindow(old) => {
                SlidingWindow::new(windows(), old.buckets(), old.estimate()).map(Algorithm::SlidingWindow)
            }
            Algorithm::SlidingLog(_) => SlidingLog::new(windows()).map(Algorithm::SlidingLog),
            Algorithm::Gcra(old) => old.share(of).map(Algorithm::Gcra),
        };
        // Less than what works works too; where it should not, the whole is the error on the side of the caller.
        algorithm.map_or_else(|_| self.clone(), |algorithm| Self { algorithm, ..self.clone() })
    }

    /// How hits are counted.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// When hits are written.
    pub fn charge_mode(&self) -> Charge {
        self.charge
    }

    /// What the answer is where the store cannot decide.
    pub fn on_store_error(&self) -> OnStoreError {
        self.on_store_error
    }

    /// The windows, in the order of the policy; never empty.
    pub fn windows(&self) -> &[Window] {
        self.algorithm.windows()
    }

    /// Whether some window has an amount of 0: nothing is ever admitted, and no counter is needed to say so.
    pub fn is_ban(&self) -> bool {
        self.ban
    }

    /// Hits that a rested counter admits at once, where that is an amount of its own; of a ban there is none.
    pub fn burst(&self) -> Option<u32> {
        match &self.algorithm {
            Algorithm::Gcra(gcra) if !self.ban => Some(gcra.burst()),
            Algorithm::Gcra(_) | Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                None
            }
        }
    }

    /// Whether its only period is a second.
    pub fn is_of_a_second(&self) -> bool {
        const SECOND: Micros = Micros::from_secs(1);
        self.windows().iter().all(|window| window.period() == SECOND)
    }

    /// A counter that was never used.
    pub fn unused(&self) -> State {
        State(match &self.algorithm {
            Algorithm::FixedWindow(algorithm) => Inner::FixedWindow(algorithm.unused()),
            Algorithm::SlidingWindow(algorithm) => Inner::SlidingWindow(algorithm.unused()),
            Algorithm::SlidingLog(algorithm) => Inner::SlidingLog(Box::new(algorithm.unused())),
            Algorithm::Gcra(algorithm) => Inner::Gcra(algorithm.unused()),
        })
    }

    /// Whether the counter has room for `hits` more.
    ///
    /// # Errors
    /// [`Unreadable`], here and below, where the counter belongs to another algorithm.
    pub fn allows(&self, state: &State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        Ok(self.has_room(state, hits, now)? || (!self.ban && state.grants(hits, now)))
    }

    /// Whether the limit itself has room.
    fn has_room(&self, state: &State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        with_algorithm!(&self.algorithm, state.inner(), |limit, counter| !self.ban && limit.allows(counter, hits, now))
    }

    /// Writes `hits`, whether there is room or not: to the limit, unless only a grant has room for them.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn charge(&self, state: &mut State, hits: u64, now: Timestamp) -> Result<Receipt, Unreadable> {
        let now = state.clamp(now);
        let of_grant = state.grants(hits, now) && !self.has_room(state, hits, now)?;
        let at = match of_grant {
            true => state.take_of_grant(hits).unwrap_or(now),
            false => {
                with_algorithm!(&self.algorithm, state.inner_mut(), |limit, counter| limit.charge(counter, hits, now))?;
                now
            }
        };
        state.settle(self, now);
        Ok(Receipt { at, hits, of_grant })
    }

    /// Gives `hits` back because a caller says so, newest first, never below zero. Says whether anything was taken.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        let inner = state.inner_mut();
        let took =
            with_algorithm!(&self.algorithm, inner, |limit, counter| hits > 0 && limit.refund(counter, hits, now))?;
        if took {
            state.settle(self, now);
        }
        Ok(took)
    }

    /// Undoes the charge that `receipt` tells of, as far as it still counts. Says whether anything was taken.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        let took = match receipt.of_grant {
            true => state.give_back_to_grant(receipt, now),
            false if state.is_void(receipt) => false,
            false => with_algorithm!(&self.algorithm, state.inner_mut(), |limit, counter| {
                limit.take_back(counter, receipt, now)
            })?,
        };
        if took {
            state.settle(self, now);
        }
        Ok(took)
    }

    /// What is left and how long it takes, as the counter stands. `denied`: the hits to wait for, where they were denied.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Result<Report, Unreadable> {
        let now = state.clamp(now);
        if self.ban {
            let bans = self.windows().iter().enumerate().filter(|(_, window)| window.limit() == 0);
            let window = bans.max_by_key(|(_, window)| window.period()).map_or(0, |(index, _)| index);
            let window = u8::try_from(window).unwrap_or_default();
            return Ok(Report { remaining: 0, window, reset_after: None, retry_after: None });
        }
        let report =
            with_algorithm!(&self.algorithm, state.inner(), |limit, counter| limit.report(counter, denied, now))?;
        // A request is taken whole from the limit or from the grant: what one may have.
        Ok(Report { remaining: report.remaining.max(state.granted(now)), ..report })
    }

    /// The instant from which the counter is as if never used.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn matters_until(&self, state: &State) -> Result<Timestamp, Unreadable> {
        let inner = with_algorithm!(&self.algorithm, state.inner(), |limit, counter| limit.matters_until(counter))?;
        Ok(state.extended().map_or(inner, |extended| extended.matters_until().max(inner)))
    }
}

impl Algorithm {
    /// The windows, in the order of the policy; never empty.
    pub fn windows(&self) -> &[Window] {
        match self {
            Self::FixedWindow(algorithm) => algorithm.windows(),
            Self::SlidingWindow(algorithm) => algorithm.windows(),
            Self::SlidingLog(algorithm) => algorithm.windows(),
            Self::Gcra(algorithm) => algorithm.windows(),
        }
    }
}

impl State {
    /// A clock that stepped back is read as the latest instant at which the counter was written. So it grants nothing, and the
    /// counter stands still, with its times reckoned from that instant, until the clock has caught up.
    fn clamp(&self, now: Timestamp) -> Timestamp {
        now.max(self.last())
    }

    /// The latest instant at which it was written.
    pub fn last(&self) -> Timestamp {
        match &self.0 {
            Inner::FixedWindow(state) => state.last,
            Inner::SlidingWindow(state) => state.last,
            Inner::SlidingLog(state) => state.last,
            Inner::Gcra(state) => state.last,
            Inner::Extended(extended) => extended.last(),
        }
    }

    /// Bytes that the counter has on the heap, besides its own size.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Inner::FixedWindow(state) => state.heap_bytes(),
            Inner::SlidingWindow(state) => state.heap_bytes(),
            Inner::SlidingLog(state) => size_of::<sliding_log::State>().saturating_add(state.heap_bytes()),
            Inner::Gcra(_) => 0,
            Inner::Extended(extended) => extended.heap_bytes(),
        }
    }

    /// Bytes that the next charge may make it grow by.
    pub fn growth_bytes(&self) -> usize {
        match self.inner() {
            Inner::SlidingWindow(state) => state.growth_bytes(),
            Inner::SlidingLog(state) => state.growth_bytes(),
            Inner::FixedWindow(_) | Inner::Gcra(_) | Inner::Extended(_) => 0,
        }
    }
}

/// Bytes that one more element may make a growing list allocate: such lists double, and begin with four.
fn growth_of<T>(len: usize, capacity: usize) -> usize {
    if len < capacity { 0 } else { capacity.max(4).saturating_mul(size_of::<T>()) }
}

/// How long a counter is kept after it stops mattering, so that a clock that steps back finds it again.
pub const GRACE: Micros = Micros::from_secs(60);
