//! Limits as bounds on histories.

use std::ops::RangeInclusive;

use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Algorithm, Charge, Limit};

use crate::history::ObservedCall;
use crate::windows::AlignedWindows;

/// Largest limit that is checked: the time of a check grows with its square.
const MAX_LIMIT: u64 = 10_000;

/// A limit, as far as histories show it.
#[derive(Clone, Debug)]
pub(crate) struct CounterModel {
    /// Bounds that all hold.
    pub(crate) bounds: Vec<CounterBound>,
    /// `true` if denied hits may be charged.
    pub(crate) charges_denied: bool,
    /// `true` if replicas may charge blocks of hits in advance.
    pub(crate) is_leased: bool,
    /// Its holds, if it has them.
    pub(crate) hold: Option<HoldModel>,
    /// `true` if calls go through a gateway: a request is one hit of one descriptor, and its answer
    /// has no status.
    pub(crate) is_behind_gateway: bool,
}

/// The holds of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldModel {
    /// Time after which a hold ends by itself, in microseconds.
    pub(crate) ttl: u64,
    /// `true` if a settle leaves the hits charged.
    pub(crate) settle_keeps: bool,
}

/// A bound on admitted hits. Times are in microseconds.
#[derive(Clone, Debug)]
pub(crate) enum CounterBound {
    /// At most `limit` in each window.
    Aligned {
        /// Hits per window.
        limit: u64,
        /// Nominal length of the window.
        period: u64,
        /// The windows.
        windows: AlignedWindows,
    },
    /// At most `limit` in any interval of `period`; hits count for up to `grain` longer.
    Rolling {
        /// Hits per interval.
        limit: u64,
        /// Length of the interval.
        period: u64,
        /// Time for which hits may count past the interval.
        grain: u64,
    },
    /// At most `burst` at once, and `limit` per `period` in addition.
    Draining {
        /// Hits at once.
        burst: u64,
        /// Hits per period.
        limit: u64,
        /// Length of the period.
        period: u64,
    },
    /// At most `limit` in force at any time.
    InFlight {
        /// Hits at once.
        limit: u64,
        /// Time after which a hit is in force no more.
        ttl: u64,
    },
}

/// The reason why calls cannot show that a rule's limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotVerifiable {
    /// Nothing is admitted.
    #[error("a limit of 0 has no counter")]
    Ban,
    /// Hits are charged when it is known how many there were.
    #[error("charge: afterwards exceeds the limit by design")]
    ChargedAfterwards,
    /// The algorithm estimates.
    #[error("this algorithm is not exact")]
    NotExact,
    /// The time of a check grows with the square of the limit.
    #[error("limits above {MAX_LIMIT} hits are not checked")]
    LargeLimit,
    /// The limit has no effect on answers.
    #[error("limits in shadow or quota mode do not deny")]
    DeniesNothing,
    /// No key has a random value.
    #[error("all its values are fixed, so other traffic may use its counter")]
    FixedValues,
    /// Its windows are not distinct for clocks that differ.
    #[error("its period is less than four times --skew")]
    ShortPeriod,
    /// A gateway sends no operations on holds.
    #[error("holds and permits cannot be reserved through a gateway")]
    HoldsOfGateway,
    /// The value of a key cannot be sent.
    #[error("--header is missing for one of its keys")]
    NoHeader,
    /// Another rule, or none, applies.
    #[error("no descriptor with a random value matches it")]
    Unmatched,
}

impl CounterModel {
    /// Returns the bounds of a limit whose hits may be charged for so many microseconds before they
    /// are admitted, if they are leased; its calendar windows are those around a time.
    ///
    /// # Errors
    /// The reason if histories cannot show that the limit holds.
    pub(crate) fn of(limit: &Limit, lease: Option<u64>, now: u64) -> Result<Self, NotVerifiable> {
        if limit.is_ban() {
            return Err(NotVerifiable::Ban);
        }
        let charges_denied = match limit.charge_mode() {
            Charge::Admitted => false,
            Charge::Blamed | Charge::Always => true,
            Charge::Afterwards => return Err(NotVerifiable::ChargedAfterwards),
        };
        let hold = limit.hold().map(|hold| HoldModel {
            ttl: hold.ttl.get(),
            settle_keeps: hold.on_settle == OnSettle::Charge,
        });
        let made = Self {
            bounds: bounds_of(limit, charges_denied, lease.unwrap_or_default(), now)?,
            charges_denied,
            is_leased: lease.is_some(),
            hold,
            is_behind_gateway: false,
        };
        if made.at_once() > MAX_LIMIT {
            return Err(NotVerifiable::LargeLimit);
        }
        Ok(made)
    }

    /// Returns the largest number of hits that is admitted at once.
    pub(crate) fn at_once(&self) -> u64 {
        self.bounds.iter().map(CounterBound::at_once).min().unwrap_or_default()
    }

    /// Returns `true` if it bounds the hits that are in force at the same time.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.bounds.iter().any(|bound| matches!(bound, CounterBound::InFlight { .. }))
    }

    /// Returns `true` if its hits drain.
    pub(crate) fn is_draining(&self) -> bool {
        self.bounds.iter().any(|bound| matches!(bound, CounterBound::Draining { .. }))
    }

    /// Returns `true` if the cost of a hold can be above its hits. Permits have no cost; and in a
    /// log, it can move the hits of other calls to a later time.
    pub(crate) fn counts_overruns(&self) -> bool {
        self.bounds.iter().all(|bound| match bound {
            CounterBound::Aligned { .. } | CounterBound::Draining { .. } => true,
            CounterBound::Rolling { grain, .. } => *grain > 0,
            CounterBound::InFlight { .. } => false,
        })
    }

    /// Returns `true` if a hold whose TTL began at a time or later is certainly open at another.
    pub(crate) fn is_open_at(&self, time: u64, begun: u64, skew: u64) -> bool {
        let until = self.hold.map_or(u64::MAX, |hold| begun.saturating_add(hold.ttl));
        time.saturating_add(skew) < until
    }

    /// Returns the calls after which a counter has been over its limit for long enough.
    pub(crate) fn calls_enough(&self) -> u64 {
        // Half of the hits of holds return.
        let times = if self.hold.is_some() { 6 } else { 2 };
        self.at_once() * times + 20
    }

    /// Returns the shortest period, in microseconds.
    pub(crate) fn period(&self) -> u64 {
        self.bounds.iter().map(CounterBound::period).min().unwrap_or_default()
    }

    /// Returns the longest time after which hits return.
    pub(crate) fn longest_return(&self) -> u64 {
        self.bounds.iter().map(CounterBound::return_time).max().unwrap_or_default()
    }

    /// Returns `true` if denied calls can keep a counter over its limit for as long as they go on.
    pub(crate) fn denials_extend(&self) -> bool {
        self.charges_denied
            && self.bounds.iter().any(|bound| matches!(bound, CounterBound::Rolling { .. }))
    }
}

/// Returns the bounds of a limit whose hits are charged up to `lead` before they are admitted.
fn bounds_of(
    limit: &Limit,
    charges_denied: bool,
    lead: u64,
    now: u64,
) -> Result<Vec<CounterBound>, NotVerifiable> {
    let windows = limit.windows().iter().map(|one| (u64::from(one.limit()), one.period().get()));
    Ok(match limit.algorithm() {
        // Leased hits are admitted in the window that they were charged in.
        Algorithm::FixedWindow(_) => windows
            .zip(limit.windows())
            .map(|((limit, period), window)| {
                let windows = AlignedWindows::of(window, now);
                CounterBound::Aligned { limit, period, windows }
            })
            .collect(),
        Algorithm::SlidingWindow(sliding) if sliding.estimate() == Estimate::Strict => windows
            .zip(sliding.widths())
            .map(|((limit, period), width)| {
                let buckets = u64::from(sliding.buckets()).saturating_add(1);
                let grain = width.get().saturating_mul(buckets).saturating_sub(period);
                CounterBound::rolling(limit, period, grain, lead)
            })
            .collect(),
        Algorithm::SlidingLog(_) => {
            windows.map(|(limit, period)| CounterBound::rolling(limit, period, 0, lead)).collect()
        }
        Algorithm::Gcra(gcra) if !charges_denied => {
            let burst = u64::from(gcra.burst());
            windows
                .map(|(limit, period)| {
                    let early = limit.saturating_mul(lead).div_ceil(period.max(1));
                    CounterBound::Draining { burst: burst.saturating_add(early), limit, period }
                })
                .collect()
        }
        Algorithm::Concurrency(concurrency) => {
            let ttl = limit.hold().map_or(u64::MAX, |hold| hold.ttl.get());
            vec![CounterBound::InFlight { limit: concurrency.in_flight().into(), ttl }]
        }
        Algorithm::Gcra(_) | Algorithm::SlidingWindow(_) => return Err(NotVerifiable::NotExact),
    })
}

impl CounterBound {
    /// Returns the bound on hits that are charged up to `lead` before they are admitted: those
    /// admitted in a period less `lead` were charged in one period.
    fn rolling(limit: u64, period: u64, grain: u64, lead: u64) -> Self {
        Self::Rolling {
            limit,
            period: period.saturating_sub(lead),
            grain: grain.saturating_add(lead),
        }
    }

    /// Returns the largest number of hits that is admitted at once.
    pub(crate) fn at_once(&self) -> u64 {
        match *self {
            Self::Aligned { limit, .. }
            | Self::Rolling { limit, .. }
            | Self::InFlight { limit, .. } => limit,
            Self::Draining { burst, .. } => burst,
        }
    }

    /// Returns the period; of hits in flight, the time for which they are.
    pub(crate) fn period(&self) -> u64 {
        match *self {
            Self::Aligned { period, .. }
            | Self::Rolling { period, .. }
            | Self::Draining { period, .. } => period,
            Self::InFlight { ttl, .. } => ttl,
        }
    }

    /// Returns the aligned windows in which a call may have been judged; 0 for other bounds.
    pub(crate) fn windows(&self, call: &ObservedCall, skew: u64) -> RangeInclusive<u64> {
        match self {
            Self::Aligned { windows, .. } => windows.of_call(call, skew),
            Self::Rolling { .. } | Self::Draining { .. } | Self::InFlight { .. } => 0..=0,
        }
    }

    /// Returns the time after which hits of a counter that is over its limit return at the latest.
    pub(crate) fn return_time(&self) -> u64 {
        match *self {
            Self::Aligned { period, .. } => period,
            Self::Rolling { period, grain, .. } => period.saturating_add(grain),
            Self::Draining { limit, period, .. } => period.div_ceil(limit.max(1)),
            Self::InFlight { ttl, .. } => ttl,
        }
    }

    /// Returns `true` if the calls show whether hits return in time: one was denied, and another
    /// was decided when the hits before it must have returned.
    pub(crate) fn shows_return(&self, calls: &[ObservedCall], skew: u64) -> bool {
        let denied = calls.iter().filter(|call| call.is_denied());
        let decided = calls.iter().filter(|call| !call.is_unknown());
        let returned = denied.map(|call| self.returned_by(call.end.saturating_add(skew))).min();
        let decided = decided.map(|call| call.begin.saturating_sub(skew)).max();
        returned.zip(decided).is_some_and(|(returned, decided)| decided >= returned)
    }

    /// Returns the time by which the hits of a counter that is over its limit have returned.
    fn returned_by(&self, time: u64) -> u64 {
        match self {
            Self::Aligned { windows, .. } => windows.end(windows.index(time)),
            Self::Rolling { .. } | Self::Draining { .. } | Self::InFlight { .. } => {
                time.saturating_add(self.return_time())
            }
        }
    }
}
