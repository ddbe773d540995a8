//! What people do to one counter: look at it, reset it, give hits back, grant some beyond the limit.
//!
//! - A *look* changes nothing.
//! - A *reset* makes the counter as if never used: what was used, what is owed, what was granted. Charges from before it are
//!   forgotten with the rest, and so must never be taken back from what is charged after it, as hits of a lease are that were not
//!   used: they are *void* for as long as one of them could still count.
//! - A *refund* is that of a caller: newest first, never below an unused counter. It gives nothing back to a grant.
//! - A *grant* is hits beside the limit, until an instant. What the limit has no room for is taken of it, whole or not at all, and
//!   costs the limit nothing: never more than the limit and the grant are admitted. Another grant takes its place, so that who
//!   repeats a command grants no more by it; one of no hits ends it. What was taken of a grant goes back to that very grant or
//!   nowhere: each has an instant of its own, which the receipts of what is taken of it tell.
//!
//! Example, 100 hits a day that are used up, and a grant of 3 until 12:30: at 12:10 a request of 2 hits is admitted, another
//! one is not, one of 1 hit is; at 12:30 what were left would be gone.
//!
//! Both stand beside the state of whatever algorithm, as tallies do, in an `Extended` counter, which becomes a plain one again with
//! the first write after they have no meaning any more: a grant at its end, for what was taken of it may come back until then.

use super::tallies::Tallies;
use super::time::{Micros, Timestamp};
use super::{Algorithm, Inner, Limit, Receipt, State, Unreadable};

/// What is done to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// Nothing.
    Look,
    /// It becomes as if never used.
    Reset,
    /// So many hits are given back.
    Refund(u32),
    /// Hits beside the limit, for so long by the store's clock, in the place of those that were granted before.
    Grant {
        /// So many; 0: none any more.
        hits: u32,
        /// How long.
        length: Micros,
    },
}

/// A counter before something was done to it, and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amended {
    /// Before.
    pub before: Look,
    /// After.
    pub after: Look,
}

/// All that there is to say of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The instant, by the counter's own time.
    pub at: Timestamp,
    /// Each window of the limit, in its order.
    pub windows: Vec<WindowLook>,
    /// What is granted.
    pub grant: Option<Grant>,
}

/// What there is to say of one window of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLook {
    /// Hits that count, those past the limit included.
    pub used: u64,
    /// Hits that are left, without those that are granted.
    pub remaining: u64,
    /// Time until it is as if never used.
    pub reset_after: Micros,
    /// Time until it has room for one hit; absent: never.
    pub retry_after: Option<Micros>,
}

/// Hits beside a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Hits that are left.
    pub left: u64,
    /// The first instant at which they are gone.
    pub until: Timestamp,
}

/// A counter with what stands beside the state of its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    /// Never itself an extended one.
    state: State,
    grant: Option<Granted>,
    reset: Option<Reset>,
    pub(super) tallies: Tallies,
}

/// A grant, and what it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granted {
    grant: Grant,
    /// The instant at which it was made, which no other of the counter has.
    at: Timestamp,
}

/// Charges up to and at `at` are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reset {
    at: Timestamp,
    /// From here on none of them would count anyway.
    until: Timestamp,
}

impl Limit {
    /// Does something to a counter and says how it was before and is after, and whether it was written.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn amend(
        &self,
        state: &mut State,
        amendment: Amendment,
        now: Timestamp,
    ) -> Result<(Amended, bool), Unreadable> {
        let now = state.clamp(now);
        let before = self.look(state, now)?;
        let written = match amendment {
            Amendment::Look => false,
            Amendment::Reset => self.reset(state, now)?,
            Amendment::Refund(hits) => self.refund(state, hits.into(), now)?,
            Amendment::Grant { hits, length } => {
                let at = now.max(state.next_mark());
                let grant = Grant { left: hits.into(), until: at + length };
                state.extend(self, |extended| extended.grant = (hits > 0).then_some(Granted { grant, at }));
                state.settle(self, at);
                hits > 0 || before.grant.is_some()
            }
        };
        let after = self.look(state, state.clamp(now))?;
        Ok((Amended { before, after }, written))
    }

    fn reset(&self, state: &mut State, now: Timestamp) -> Result<bool, Unreadable> {
        if *state == self.unused() {
            return Ok(false);
        }
        let until = self.matters_until(state)?;
        *state = self.unused();
        if until > now {
            state.extend(self, |extended| extended.reset = Some(Reset { at: now, until }));
        }
        Ok(true)
    }

    fn look(&self, state: &State, now: Timestamp) -> Result<Look, Unreadable> {
        macro_rules! windows {
            ($limit:ident, $counter:ident) => {{
                let reports = $limit.reports($counter, Some(1), now);
                let windows = $limit.counts($counter, now).zip(reports).zip($limit.windows());
                let windows = windows.map(|((used, report), window)| {
                    let is_ban = window.limit() == 0;
                    let retry_after = report.retry_after.filter(|_| !is_ban);
                    let remaining = if is_ban { 0 } else { report.remaining };
                    WindowLook { used, remaining, reset_after: report.reset_after, retry_after }
                });
                windows.collect()
            }};
        }
        let windows = match (&self.algorithm, state.inner()) {
            (Algorithm::FixedWindow(limit), Inner::FixedWindow(counter)) => windows!(limit, counter),
            (Algorithm::SlidingWindow(limit), Inner::SlidingWindow(counter)) => windows!(limit, counter),
            (Algorithm::SlidingLog(limit), Inner::SlidingLog(counter)) => windows!(limit, counter),
            (Algorithm::Gcra(limit), Inner::Gcra(counter)) => windows!(limit, counter),
            (
                Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Gcra(_),
                _,
            ) => return Err(Unreadable),
        };
        Ok(Look { at: now, windows, grant: state.grant(now).copied() })
    }
}

impl State {
    pub(super) fn extended(&self) -> Option<&Extended> {
        match &self.0 {
            Inner::Extended(extended) => Some(extended),
            Inner::FixedWindow(_) | Inner::SlidingWindow(_) | Inner::SlidingLog(_) | Inner::Gcra(_) => None,
        }
    }

    /// The state of an algorithm.
    pub(super) fn inner(&self) -> &Inner {
        self.extended().map_or(&self.0, |extended| &extended.state.0)
    }

    pub(super) fn inner_mut(&mut self) -> &mut Inner {
        match &mut self.0 {
            Inner::Extended(extended) => &mut extended.state.0,
            plain @ (Inner::FixedWindow(_) | Inner::SlidingWindow(_) | Inner::SlidingLog(_) | Inner::Gcra(_)) => plain,
        }
    }

    /// What is left of a grant at `now`.
    fn grant(&self, now: Timestamp) -> Option<&Grant> {
        let granted = self.extended()?.grant.as_ref();
        granted.map(|granted| &granted.grant).filter(|grant| grant.left > 0 && now < grant.until)
    }

    /// Hits that are granted at `now`.
    pub(super) fn granted(&self, now: Timestamp) -> u64 {
        self.grant(now).map_or(0, |grant| grant.left)
    }

    /// Whether a grant has room for `hits`.
    pub(super) fn grants(&self, hits: u64, now: Timestamp) -> bool {
        self.grant(now).is_some_and(|grant| hits <= grant.left)
    }

    /// Says what the grant is known by.
    pub(super) fn take_of_grant(&mut self, hits: u64) -> Option<Timestamp> {
        let Inner::Extended(extended) = &mut self.0 else { return None };
        let Granted { grant, at } = extended.grant.as_mut()?;
        grant.left = grant.left.saturating_sub(hits);
        Some(*at)
    }

    /// Says whether that grant is still there.
    pub(super) fn give_back_to_grant(&mut self, receipt: Receipt, now: Timestamp) -> bool {
        if let Inner::Extended(extended) = &mut self.0
            && let Some(Granted { grant, at }) = &mut extended.grant
            && *at == receipt.at
            && now < grant.until
        {
            grant.left = grant.left.saturating_add(receipt.hits);
            return true;
        }
        false
    }

    /// The first instant that is after the grant and the reset.
    fn next_mark(&self) -> Timestamp {
        let mark = self.extended().map(Extended::mark);
        mark.map_or(Timestamp::EPOCH, |mark| mark + Micros::new(1))
    }

    /// Whether a charge was made before a reset.
    pub(super) fn is_void(&self, receipt: Receipt) -> bool {
        let reset = self.extended().and_then(|extended| extended.reset);
        reset.is_some_and(|reset| receipt.at <= reset.at)
    }

    /// Changes what stands beside the state.
    pub(super) fn extend(&mut self, limit: &Limit, change: impl FnOnce(&mut Extended)) {
        let mut extended = match std::mem::replace(self, limit.unused()).0 {
            Inner::Extended(extended) => extended,
            plain @ (Inner::FixedWindow(_) | Inner::SlidingWindow(_) | Inner::SlidingLog(_) | Inner::Gcra(_)) => {
                Box::new(Extended { state: Self(plain), grant: None, reset: None, tallies: Tallies::default() })
            }
        };
        change(&mut extended);
        self.0 = Inner::Extended(extended);
    }

    /// Becomes plain where nothing beside the state has a meaning any more. With every write.
    pub(super) fn settle(&mut self, limit: &Limit, now: Timestamp) {
        let Inner::Extended(extended) = &mut self.0 else { return };
        extended.grant = extended.grant.filter(|granted| now < granted.grant.until);
        extended.reset = extended.reset.filter(|reset| now < reset.until);
        if extended.grant.is_none() && extended.reset.is_none() && extended.tallies.is_empty() {
            *self = std::mem::replace(&mut extended.state, limit.unused());
        }
    }
}

impl Extended {
    pub(super) fn last(&self) -> Timestamp {
        self.state.last().max(self.mark())
    }

    /// The later of the instants of the grant and the reset.
    fn mark(&self) -> Timestamp {
        let grant = self.grant.map_or(Timestamp::EPOCH, |granted| granted.at);
        grant.max(self.reset.map_or(Timestamp::EPOCH, |reset| reset.at))
    }

    /// The instant from which nothing beside the state has a meaning.
    pub(super) fn matters_until(&self) -> Timestamp {
        let grant = self.grant.map_or(Timestamp::EPOCH, |granted| granted.grant.until);
        grant.max(self.reset.map_or(Timestamp::EPOCH, |reset| reset.until))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.state.heap_bytes()).saturating_add(self.tallies.heap_bytes())
    }
}
