//! Operator actions on one counter: look, reset, refund, and grants of hits beyond the limit.
//!
//! - A *look* changes nothing.
//! - A *reset* returns the counter to its unused state: hits used, debt and grant are dropped. It
//!   also sets the counter's clock to the store's: a counter that was written while that clock was
//!   ahead stands still until then otherwise.
//!   Taking back an earlier charge, as leases do with unused hits, must not reduce later charges,
//!   so all earlier charges are *void* for as long as one of them could still count.
//! - A *refund* works like that of a caller: newest first, never below an unused counter. It
//!   returns nothing to a grant.
//! - A *grant* is an allowance beside the limit until an instant. Hits that do not fit in the limit
//!   are taken from it, whole or not at all, and cost the limit nothing: never more than the limit
//!   and the grant are admitted. A new grant replaces the old one, so repeating a command grants no
//!   more; a grant of no hits ends it. Hits taken from a grant return to that grant or to none:
//!   each grant has an instant of its own, which the receipts of its hits carry (a reset that sets
//!   the clock back frees the instants between).
//!
//! Example, 100 hits a day, all used, and a grant of 3 until 12:30: at 12:10 a request of 2 hits is
//! admitted, a second one is not, one of 1 hit is; at 12:30 any hits left expire.
//!
//! Grant and reset are stored beside the state of any algorithm, as tallies and holds are, in an
//! `Extended` counter. The first write after they have expired turns it back into a plain one. A
//! used-up grant is kept until its end, because hits may still be returned to it.

use super::hold::Holds;
use super::quota::WindowUsage;
use super::tallies::Tallies;
use super::time::{Micros, Timestamp};
use super::{Algorithm, AlgorithmState, Limit, Receipt, State, Unreadable};

/// An operation on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// Reads the counter only.
    Look,
    /// Returns the counter to its unused state.
    Reset,
    /// Refunds this many hits.
    Refund(u32),
    /// Replaces the grant by `hits` beside the limit for `length`, by the store's clock.
    Grant {
        /// Number of hits; 0 ends the grant.
        hits: u32,
        /// Duration of the grant.
        length: Micros,
    },
}

/// A counter before and after an amendment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amended {
    /// Before the amendment.
    pub before: CounterReading,
    /// After the amendment.
    pub after: CounterReading,
}

/// A readable view of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReading {
    /// Instant by the counter's own clock.
    pub at: Timestamp,
    /// Windows in the order of the limit; of `concurrency` one, the permits.
    pub windows: Vec<WindowUsage>,
    /// Active grant.
    pub grant: Option<Grant>,
}

/// An allowance of hits beside a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Hits left.
    pub left: u64,
    /// First instant at which the grant has expired.
    pub until: Timestamp,
}

/// A counter with a grant, a reset, tallies or holds beside the state of its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    /// Plain state; never itself extended.
    pub(super) state: State,
    grant: Option<Granted>,
    reset: Option<ResetMark>,
    pub(super) tallies: Tallies,
    /// Holds, if the limit keeps them.
    pub(super) holds: Option<Box<Holds>>,
}

/// A grant with its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granted {
    grant: Grant,
    /// Instant of the grant, unique within the counter.
    at: Timestamp,
}

/// A reset, which voids charges up to and including `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResetMark {
    at: Timestamp,
    /// Instant from which none of the void charges would count anyway.
    until: Timestamp,
}

impl Limit {
    /// Applies an amendment. Returns the counter before and after it, and `true` if it was written.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn amend(
        &self,
        state: &mut State,
        amendment: Amendment,
        now: Timestamp,
    ) -> Result<(Amended, bool), Unreadable> {
        let of_store = now;
        let now = state.clamp(now);
        let before = self.reading(state, now)?;
        let written = match amendment {
            Amendment::Look => false,
            Amendment::Reset => self.reset(state, of_store)?,
            Amendment::Refund(hits) => self.refund(state, hits.into(), now)?,
            Amendment::Grant { hits, length } => {
                let at = now.max(state.next_mutation());
                let grant = Grant { left: hits.into(), until: at + length };
                state.attach(self, |extended| {
                    extended.grant = (hits > 0).then_some(Granted { grant, at })
                });
                state.compact(self, at);
                hits > 0 || before.grant.is_some()
            }
        };
        let after = self.reading(state, state.clamp(of_store))?;
        Ok((Amended { before, after }, written))
    }

    fn reset(&self, state: &mut State, now: Timestamp) -> Result<bool, Unreadable> {
        if *state == self.unused() {
            return Ok(false);
        }
        let until = self.matters_until(state)?;
        *state = self.unused();
        if until > now {
            state.attach(self, |extended| extended.reset = Some(ResetMark { at: now, until }));
        }
        Ok(true)
    }

    fn reading(&self, state: &State, now: Timestamp) -> Result<CounterReading, Unreadable> {
        macro_rules! windows {
            ($limit:ident, $counter:ident) => {{
                let reports = $limit.reports($counter, Some(1), now);
                let windows = $limit.counts($counter, now).zip(reports).zip($limit.windows());
                let windows = windows.map(|((used, report), window)| {
                    let is_ban = window.limit() == 0;
                    let retry_after = report.retry_after.filter(|_| !is_ban);
                    let remaining = if is_ban { 0 } else { report.remaining };
                    WindowUsage { used, remaining, reset_after: report.reset_after, retry_after }
                });
                windows.collect()
            }};
        }
        let windows = match (&self.algorithm, state.inner()) {
            (Algorithm::FixedWindow(limit), AlgorithmState::FixedWindow(counter)) => {
                windows!(limit, counter)
            }
            (Algorithm::SlidingWindow(limit), AlgorithmState::SlidingWindow(counter)) => {
                windows!(limit, counter)
            }
            (Algorithm::SlidingLog(limit), AlgorithmState::SlidingLog(counter)) => {
                windows!(limit, counter)
            }
            (Algorithm::Gcra(limit), AlgorithmState::Gcra(counter)) => windows!(limit, counter),
            (Algorithm::Concurrency(limit), AlgorithmState::Concurrency(counter)) => {
                vec![limit.usage(counter, now)]
            }
            (
                Algorithm::FixedWindow(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::Gcra(_)
                | Algorithm::Concurrency(_),
                _,
            ) => return Err(Unreadable),
        };
        Ok(CounterReading { at: now, windows, grant: state.grant(now).copied() })
    }
}

impl State {
    /// Bytes of what extends a counter, without tallies and holds.
    pub(super) const EXTENSION_BYTES: usize = size_of::<Extended>();

    pub(super) fn extended(&self) -> Option<&Extended> {
        match &self.0 {
            AlgorithmState::Extended(extended) => Some(extended),
            AlgorithmState::FixedWindow(_)
            | AlgorithmState::SlidingWindow(_)
            | AlgorithmState::SlidingLog(_)
            | AlgorithmState::Concurrency(_)
            | AlgorithmState::Gcra(_) => None,
        }
    }

    /// Returns the state of the algorithm.
    #[inline]
    pub(super) fn inner(&self) -> &AlgorithmState {
        self.extended().map_or(&self.0, |extended| &extended.state.0)
    }

    pub(super) fn inner_mut(&mut self) -> &mut AlgorithmState {
        match &mut self.0 {
            AlgorithmState::Extended(extended) => &mut extended.state.0,
            plain @ (AlgorithmState::FixedWindow(_)
            | AlgorithmState::SlidingWindow(_)
            | AlgorithmState::SlidingLog(_)
            | AlgorithmState::Concurrency(_)
            | AlgorithmState::Gcra(_)) => plain,
        }
    }

    /// Returns the active grant at `now`, if it has hits left.
    fn grant(&self, now: Timestamp) -> Option<&Grant> {
        let granted = self.extended()?.grant.as_ref();
        granted.map(|granted| &granted.grant).filter(|grant| grant.left > 0 && now < grant.until)
    }

    /// Returns the granted hits left at `now`.
    pub(super) fn granted(&self, now: Timestamp) -> u64 {
        self.grant(now).map_or(0, |grant| grant.left)
    }

    /// Returns `true` if a grant has room for `hits`.
    pub(super) fn grants(&self, hits: u64, now: Timestamp) -> bool {
        self.grant(now).is_some_and(|grant| hits <= grant.left)
    }

    /// Returns `true` if there is a grant, with hits left or not.
    pub(super) fn has_grant(&self) -> bool {
        self.extended().is_some_and(|extended| extended.grant.is_some())
    }

    /// Takes up to so many hits from the grant of an instant. Returns the hits that it lacks.
    pub(super) fn take_past(&mut self, granted_at: Timestamp, hits: u64, now: Timestamp) -> u64 {
        let Some(grant) = self.grant_of(granted_at, now) else { return hits };
        let taken = hits.min(grant.left);
        grant.left = grant.left.saturating_sub(taken);
        hits.saturating_sub(taken)
    }

    /// Returns the grant of an instant, unless it has ended or was replaced.
    fn grant_of(&mut self, granted_at: Timestamp, now: Timestamp) -> Option<&mut Grant> {
        let AlgorithmState::Extended(extended) = &mut self.0 else { return None };
        let Granted { grant, at } = extended.grant.as_mut()?;
        (*at == granted_at && now < grant.until).then_some(grant)
    }

    /// Takes hits from the grant and returns the instant that identifies it.
    pub(super) fn take_of_grant(&mut self, hits: u64) -> Option<Timestamp> {
        let AlgorithmState::Extended(extended) = &mut self.0 else { return None };
        let Granted { grant, at } = extended.grant.as_mut()?;
        grant.left = grant.left.saturating_sub(hits);
        Some(*at)
    }

    /// Returns hits to their grant. Returns `false` if that grant is no longer there.
    pub(super) fn give_back_to_grant(&mut self, receipt: Receipt, now: Timestamp) -> bool {
        let Some(grant) = self.grant_of(receipt.at, now) else { return false };
        grant.left = grant.left.saturating_add(receipt.hits);
        true
    }

    /// Returns the first instant after both the grant and the reset.
    fn next_mutation(&self) -> Timestamp {
        let last = self.extended().map(Extended::last_mutation);
        last.map_or(Timestamp::EPOCH, |last| last + Micros::new(1))
    }

    /// Returns `true` if a charge was made before a reset.
    pub(super) fn is_invalidated_by_reset(&self, receipt: Receipt) -> bool {
        let reset = self.extended().and_then(|extended| extended.reset);
        reset.is_some_and(|reset| receipt.at <= reset.at)
    }

    /// Changes the grant, reset or tallies, extending a plain counter first.
    pub(super) fn attach<T>(
        &mut self,
        limit: &Limit,
        change: impl FnOnce(&mut Extended) -> T,
    ) -> T {
        let mut extended = match std::mem::replace(self, limit.unused()).0 {
            AlgorithmState::Extended(extended) => extended,
            plain @ (AlgorithmState::FixedWindow(_)
            | AlgorithmState::SlidingWindow(_)
            | AlgorithmState::SlidingLog(_)
            | AlgorithmState::Concurrency(_)
            | AlgorithmState::Gcra(_)) => Box::new(Extended {
                state: Self(plain),
                grant: None,
                reset: None,
                tallies: Tallies::default(),
                holds: None,
            }),
        };
        let changed = change(&mut extended);
        self.0 = AlgorithmState::Extended(extended);
        changed
    }

    /// Drops an expired grant and reset, and becomes plain if nothing is left beside the state.
    /// Called with every write.
    #[inline]
    pub(super) fn compact(&mut self, limit: &Limit, now: Timestamp) {
        if let AlgorithmState::Extended(_) = &self.0 {
            self.compact_extended(limit, now);
        }
    }

    fn compact_extended(&mut self, limit: &Limit, now: Timestamp) {
        let AlgorithmState::Extended(extended) = &mut self.0 else { return };
        extended.grant = extended.grant.filter(|granted| now < granted.grant.until);
        extended.reset = extended.reset.filter(|reset| now < reset.until);
        extended.holds = extended.holds.take().filter(|holds| !holds.is_empty());
        if extended.grant.is_none()
            && extended.reset.is_none()
            && extended.tallies.is_empty()
            && extended.holds.is_none()
        {
            *self = std::mem::replace(&mut extended.state, limit.unused());
        }
    }
}

impl Extended {
    pub(super) fn last(&self) -> Timestamp {
        self.state.last().max(self.last_mutation())
    }

    /// Returns the later of the instants of the grant and the reset.
    fn last_mutation(&self) -> Timestamp {
        let grant = self.grant.map_or(Timestamp::EPOCH, |granted| granted.at);
        grant.max(self.reset.map_or(Timestamp::EPOCH, |reset| reset.at))
    }

    /// Returns the instant from which neither grant, reset nor holds have an effect.
    pub(super) fn matters_until(&self) -> Timestamp {
        let grant = self.grant.map_or(Timestamp::EPOCH, |granted| granted.grant.until);
        let holds = self.holds.as_ref().map_or(Timestamp::EPOCH, |holds| holds.matters_until());
        grant.max(self.reset.map_or(Timestamp::EPOCH, |reset| reset.until)).max(holds)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.state.heap_bytes())
            .saturating_add(self.tallies.heap_bytes())
            .saturating_add(self.holds.as_ref().map_or(0, |holds| holds.heap_bytes()))
    }
}
