//! The arithmetic of limits, as pure functions: no clock, no IO, no locks, and no allocation beyond
//! the state of a counter.
//!
//! | file | contents |
//! |---|---|
//! | [`time`] | instants and durations in microseconds |
//! | [`parameter`] | what else an algorithm is configured with |
//! | `mode`, `words` | when hits are charged, what failures decide; enums of such words |
//! | [`quota`] | windows, their bounds, and the choice of the binding window |
//! | [`calendar`] | windows that begin at local midnight |
//! | [`fixed_window`], [`sliding_window`], [`sliding_log`], [`gcra`] | one algorithm each |
//! | [`concurrency`] | permits of hits in flight, the algorithm without windows |
//! | [`hold`], `marks` | charges that are corrected later, by an ID |
//! | `state`, `write` | a counter, and what is written to it |
//! | [`store_error`] | why a store could not judge |
//! | [`verdict`] | combining the verdicts of several limits, and which of them are charged |
//! | [`share`] | the part of a limit that one of several processes admits alone |
//! | [`judge`] | judging a whole request: evaluate first, write second, report last |
//! | [`amend`] | operator actions on one counter: look, reset, refund, grant |
//! | [`tallies`] | hits per recorded request entry |
//! | `properties` | properties of limits by algorithm, on which other modules decide |
//! | [`lease`] | hits charged in advance: block sizes, TTLs, and the effect on a limit |
//!
//! A new algorithm is a file like [`gcra`] and a variant of [`Algorithm`] and of `AlgorithmState`;
//! the compiler then lists the match arms to add, and `CONTRIBUTING.md` what else it needs.

pub mod amend;
pub mod calendar;
pub mod concurrency;
pub mod fixed_window;
pub mod gcra;
pub mod hold;
pub mod judge;
#[cfg(test)]
mod laws;
pub mod lease;
mod marks;
mod mode;
pub mod parameter;
mod properties;
pub mod quota;
pub mod share;
pub mod sliding_log;
pub mod sliding_window;
mod state;
pub mod store_error;
pub mod tallies;
pub mod time;
pub mod verdict;
mod words;
mod write;

use amend::Extended;
use concurrency::Concurrency;
use fixed_window::FixedWindow;
use gcra::Gcra;
use hold::Hold;
use parameter::Parameter;
use quota::{QuotaError, Report, Window};
use share::Share;
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use time::{Micros, Timestamp};

pub use self::mode::{Charge, OnStoreError};
pub use self::words::words;

/// The counting algorithm of a limit, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each type says what it is")]
pub enum Algorithm {
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    Gcra(Gcra),
    Concurrency(Concurrency),
}

/// The limit of a rule: an algorithm with its parameters, a charge mode, and a failure mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    charge: Charge,
    on_store_error: OnStoreError,
    ban: bool,
    hold: Option<Hold>,
}

/// The counter of one limit for one set of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(AlgorithmState);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AlgorithmState {
    FixedWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    SlidingLog(Box<sliding_log::State>),
    Gcra(gcra::State),
    Concurrency(Box<concurrency::State>),
    /// One of the other variants, with a grant, a reset, tallies or holds.
    Extended(Box<Extended>),
}

/// A receipt for one charge, with what is needed to undo exactly that charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Instant of the charge by the counter's clock; of grant hits, the grant's unique instant.
    pub at: Timestamp,
    /// Number of hits charged.
    pub hits: u64,
    /// `true` if the hits came from a grant and did not count against the limit.
    pub of_grant: bool,
}

/// An error for a counter that another algorithm wrote: unreadable, and never treated as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counter was written by another algorithm")]
pub struct Unreadable;

/// Runs `$call` with the parameters and state of one algorithm; [`Unreadable`] if they differ.
macro_rules! with_algorithm {
    ($algorithm:expr, $state:expr, |$p:ident, $s:ident| $call:expr) => {
        match ($algorithm, $state) {
            (Algorithm::FixedWindow($p), AlgorithmState::FixedWindow($s)) => Ok($call),
            (Algorithm::SlidingWindow($p), AlgorithmState::SlidingWindow($s)) => Ok($call),
            (Algorithm::SlidingLog($p), AlgorithmState::SlidingLog($s)) => Ok($call),
            (Algorithm::Gcra($p), AlgorithmState::Gcra($s)) => Ok($call),
            (Algorithm::Concurrency($p), AlgorithmState::Concurrency($s)) => Ok($call),
            (
                Algorithm::FixedWindow(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::Gcra(_)
                | Algorithm::Concurrency(_),
                _,
            ) => Err(Unreadable),
        }
    };
}

use with_algorithm;

impl Limit {
    /// Creates a limit.
    ///
    /// # Errors
    /// If a sliding log has a charge mode that writes hits past the limit without a bound.
    pub fn new(
        algorithm: Algorithm,
        charge: Charge,
        on_store_error: OnStoreError,
    ) -> Result<Self, QuotaError> {
        if algorithm.stores_each_hit() && !charge.is_bounded() {
            return Err(QuotaError::LogCharge { charge: charge.word() });
        }
        let ban = algorithm.is_ban();
        Ok(Self { algorithm, charge, on_store_error, ban, hold: None })
    }

    /// Returns the limit with holds: it is charged when `admitted`.
    pub fn with_hold(self, hold: Hold) -> Self {
        Self { hold: Some(hold), charge: Charge::Admitted, ..self }
    }

    /// Returns the limit with another amount and period, as for a request with an override.
    ///
    /// # Errors
    /// If the algorithm cannot count in that period.
    pub fn with_window(&self, window: Window) -> Result<Self, QuotaError> {
        let algorithm = match &self.algorithm {
            Algorithm::FixedWindow(_) => Algorithm::FixedWindow(FixedWindow::new(vec![window])?),
            Algorithm::SlidingWindow(old) => Algorithm::SlidingWindow(SlidingWindow::new(
                vec![window],
                old.buckets(),
                old.estimate(),
            )?),
            Algorithm::SlidingLog(_) => Algorithm::SlidingLog(SlidingLog::new(vec![window])?),
            Algorithm::Gcra(old) => Algorithm::Gcra(old.with_window(window)?),
            Algorithm::Concurrency(_) => Algorithm::Concurrency(Concurrency::new(window.limit())?),
        };
        let limit = Self::new(algorithm, self.charge, self.on_store_error)?;
        Ok(Self { hold: self.hold, ..limit })
    }

    /// Returns the share of the limit of one process. It is a ban if the share of any amount is 0.
    pub fn share(&self, share: Share) -> Self {
        let algorithm = match &self.algorithm {
            Algorithm::FixedWindow(_) => {
                FixedWindow::new(self.windows_of(share)).map(Algorithm::FixedWindow)
            }
            Algorithm::SlidingWindow(old) => {
                SlidingWindow::new(self.windows_of(share), old.buckets(), old.estimate())
                    .map(Algorithm::SlidingWindow)
            }
            Algorithm::SlidingLog(_) => {
                SlidingLog::new(self.windows_of(share)).map(Algorithm::SlidingLog)
            }
            Algorithm::Gcra(old) => old.share(share).map(Algorithm::Gcra),
            Algorithm::Concurrency(old) => {
                Concurrency::new(share.amount(old.in_flight())).map(Algorithm::Concurrency)
            }
        };
        // A smaller amount is valid too; if it were not, keeping the whole limit favors the caller.
        let algorithm = algorithm.unwrap_or_else(|_| self.algorithm.clone());
        Self { ban: algorithm.is_ban(), algorithm, ..self.clone() }
    }

    /// Returns the windows with the amounts of a share.
    fn windows_of(&self, share: Share) -> Vec<Window> {
        let windows = self.windows().iter();
        windows.map(|window| window.with_limit(share.amount(window.limit()))).collect()
    }

    /// Returns the counting algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Returns the charge mode.
    pub fn charge_mode(&self) -> Charge {
        self.charge
    }

    /// Returns the failure mode, for when the store cannot decide.
    pub fn on_store_error(&self) -> OnStoreError {
        self.on_store_error
    }

    /// Returns how the limit keeps holds; `None` if it does not.
    pub fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Returns the windows in policy order; empty for `concurrency` only.
    pub fn windows(&self) -> &[Window] {
        self.algorithm.windows()
    }

    /// Returns the maximum number of hits in flight of a `concurrency` limit.
    pub fn in_flight(&self) -> Option<u32> {
        match &self.algorithm {
            Algorithm::Concurrency(algorithm) => Some(algorithm.in_flight()),
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Gcra(_) => None,
        }
    }

    /// Returns `true` if an amount is 0: the limit denies everything and needs no counter, except
    /// to end permits that were taken under another amount.
    pub fn is_ban(&self) -> bool {
        self.ban
    }

    /// Returns the burst, if it is separate from the amount; `None` for a ban.
    pub fn burst(&self) -> Option<u32> {
        match &self.algorithm {
            Algorithm::Gcra(gcra) if !self.ban => Some(gcra.burst()),
            Algorithm::Gcra(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_) => None,
        }
    }

    /// Returns `true` if every window has a period of one second.
    pub fn is_of_a_second(&self) -> bool {
        const SECOND: Micros = Micros::from_secs(1);
        let windows = self.windows();
        !windows.is_empty() && windows.iter().all(|window| window.period() == SECOND)
    }

    /// Returns the state of an unused counter.
    pub fn unused(&self) -> State {
        State(match &self.algorithm {
            Algorithm::FixedWindow(algorithm) => AlgorithmState::FixedWindow(algorithm.unused()),
            Algorithm::SlidingWindow(algorithm) => {
                AlgorithmState::SlidingWindow(algorithm.unused())
            }
            Algorithm::SlidingLog(algorithm) => {
                AlgorithmState::SlidingLog(Box::new(algorithm.unused()))
            }
            Algorithm::Gcra(algorithm) => AlgorithmState::Gcra(algorithm.unused()),
            Algorithm::Concurrency(algorithm) => {
                AlgorithmState::Concurrency(Box::new(algorithm.unused()))
            }
        })
    }

    /// Returns `true` if the counter has room for `hits` more.
    ///
    /// # Errors
    /// [`Unreadable`], here and below, if the counter belongs to another algorithm.
    #[inline]
    pub fn allows(&self, state: &State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        Ok(self.has_room(state, hits, now)? || (!self.ban && state.grants(hits, now)))
    }

    /// Returns `true` if the limit itself has room, grants aside.
    fn has_room(&self, state: &State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        with_algorithm!(&self.algorithm, state.inner(), |limit, counter| !self.ban
            && limit.allows(counter, hits, now))
    }

    /// Reports the remaining hits and wait times. `denied`: hits to wait for, if they were denied.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn report(
        &self,
        state: &State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> Result<Report, Unreadable> {
        let now = state.clamp(now);
        if self.ban {
            let bans = self.windows().iter().enumerate().filter(|(_, window)| window.limit() == 0);
            let window =
                bans.max_by_key(|(_, window)| window.period()).map_or(0, |(index, _)| index);
            return Ok(Report::of_ban(u8::try_from(window).unwrap_or_default()));
        }
        let report = with_algorithm!(&self.algorithm, state.inner(), |limit, counter| limit
            .report(counter, denied, now))?;
        // A request is taken whole from either the limit or the grant, so the larger one remains.
        let remaining = report.remaining.max(state.granted(now));
        Ok(Report { remaining, beyond: if remaining > 0 { 0 } else { report.beyond }, ..report })
    }

    /// Returns the instant from which the counter equals an unused one.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn matters_until(&self, state: &State) -> Result<Timestamp, Unreadable> {
        let inner = with_algorithm!(&self.algorithm, state.inner(), |limit, counter| limit
            .matters_until(counter))?;
        Ok(state.extended().map_or(inner, |extended| extended.matters_until().max(inner)))
    }
}

impl Algorithm {
    /// Returns `true` if an amount is 0, so that nothing is ever allowed.
    fn is_ban(&self) -> bool {
        match self {
            Self::Concurrency(algorithm) => algorithm.in_flight() == 0,
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::SlidingLog(_) | Self::Gcra(_) => {
                self.windows().iter().any(|window| window.limit() == 0)
            }
        }
    }

    /// Returns `true` if each hit is stored, so that hits past the limit would have no bound.
    fn stores_each_hit(&self) -> bool {
        match self {
            Self::SlidingLog(_) => true,
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::Gcra(_)
            | Self::Concurrency(_) => false,
        }
    }

    /// Returns the windows in policy order; empty for `concurrency` only.
    pub fn windows(&self) -> &[Window] {
        match self {
            Self::FixedWindow(algorithm) => algorithm.windows(),
            Self::SlidingWindow(algorithm) => algorithm.windows(),
            Self::SlidingLog(algorithm) => algorithm.windows(),
            Self::Gcra(algorithm) => algorithm.windows(),
            Self::Concurrency(_) => &[],
        }
    }

    /// Returns the parameters besides the windows, shape first.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let parameters = match self {
            Self::FixedWindow(_) | Self::SlidingLog(_) => [None, None],
            Self::SlidingWindow(algorithm) => algorithm.parameters(),
            Self::Gcra(algorithm) => algorithm.parameters(),
            Self::Concurrency(algorithm) => algorithm.parameters(),
        };
        parameters.into_iter().flatten()
    }
}

/// Returns the bytes that a push may allocate: a `Vec` doubles its capacity, starting with four.
fn growth_of<T>(len: usize, capacity: usize) -> usize {
    if len < capacity { 0 } else { capacity.max(4).saturating_mul(size_of::<T>()) }
}

/// Time for which a counter outlives its last effect, so that a clock that steps back finds it.
pub const GRACE: Micros = Micros::from_secs(60);
