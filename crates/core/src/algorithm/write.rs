//! Writes to a counter: charges, refunds and take-backs, with grants and holds.

use super::quota::MAX_TTL;
use super::time::{Micros, Timestamp};
use super::{Algorithm, AlgorithmState, Limit, Receipt, State, Unreadable, with_algorithm};

impl Limit {
    /// Writes `hits`, even without room: to the limit, unless only a grant has room for them.
    ///
    /// # Errors
    /// [`Unreadable`].
    #[inline]
    pub fn charge(
        &self,
        state: &mut State,
        hits: u64,
        now: Timestamp,
    ) -> Result<Receipt, Unreadable> {
        let ttl = self.hold.map_or(MAX_TTL, |hold| hold.ttl);
        self.charge_for(state, hits, &[], ttl, now)
    }

    /// Charges `hits`; a permit that they take belongs to an ID, and ends after `ttl`.
    #[inline]
    pub(super) fn charge_for(
        &self,
        state: &mut State,
        hits: u64,
        id: &[u8],
        ttl: Micros,
        now: Timestamp,
    ) -> Result<Receipt, Unreadable> {
        let now = state.clamp(now);
        let of_grant = state.grants(hits, now) && !self.has_room(state, hits, now)?;
        let at = if of_grant {
            state.take_of_grant(hits).unwrap_or(now)
        } else {
            self.charge_limit(state, hits, id, ttl, now)?;
            now
        };
        state.compact(self, now);
        Ok(Receipt { at, hits, of_grant })
    }

    /// Writes `hits` to the limit itself.
    #[inline]
    fn charge_limit(
        &self,
        state: &mut State,
        hits: u64,
        id: &[u8],
        ttl: Micros,
        now: Timestamp,
    ) -> Result<(), Unreadable> {
        match (self.hold, &self.algorithm) {
            (None, _) => state.drop_marks(),
            (Some(_), Algorithm::Gcra(gcra)) => {
                return state.with_marks(self, now, |counter, holds| {
                    gcra.charge_marked(counter, &mut holds.marks, hits, now);
                });
            }
            (Some(_), Algorithm::Concurrency(_)) => {
                let AlgorithmState::Concurrency(permits) = state.inner_mut() else {
                    return Err(Unreadable);
                };
                permits.take(id, hits, ttl, now);
                return Ok(());
            }
            (
                Some(_),
                Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_),
            ) => {}
        }
        with_algorithm!(&self.algorithm, state.inner_mut(), |limit, counter| {
            limit.charge(counter, hits, now)
        })
    }

    /// Writes hits past the limit: the part of a cost that goes past its hold, or has none.
    pub(super) fn charge_past(
        &self,
        state: &mut State,
        hits: u64,
        now: Timestamp,
    ) -> Result<(), Unreadable> {
        match (&self.algorithm, state.inner_mut()) {
            (Algorithm::SlidingLog(log), AlgorithmState::SlidingLog(counter)) => {
                log.charge_past(counter, hits, now);
                Ok(())
            }
            _ => self.charge_limit(state, hits, &[], MAX_TTL, now),
        }
    }

    /// Sets the counter's latest instant, changing nothing else.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) -> Result<(), Unreadable> {
        with_algorithm!(&self.algorithm, state.inner_mut(), |limit, counter| limit
            .touch(counter, now))
    }

    /// Refunds `hits` for a caller, newest first, down to zero. Returns `true` if it took any.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        let took = match (&self.algorithm, self.hold) {
            (Algorithm::Gcra(gcra), Some(_)) if hits > 0 => {
                state.with_marks(self, now, |counter, holds| {
                    gcra.refund_marked(counter, &mut holds.marks, hits, now)
                })?
            }
            (algorithm, _) => with_algorithm!(algorithm, state.inner_mut(), |limit, counter| {
                hits > 0 && limit.refund(counter, hits, now)
            })?,
        };
        if took && self.hold.is_none() {
            state.drop_marks();
        }
        if took || self.hold.is_some() {
            state.compact(self, now);
        }
        Ok(took)
    }

    /// Undoes the charge of `receipt` as far as it still counts. Returns `true` if it took any.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn take_back(
        &self,
        state: &mut State,
        receipt: Receipt,
        now: Timestamp,
    ) -> Result<bool, Unreadable> {
        let now = state.clamp(now);
        let took = if receipt.of_grant {
            state.give_back_to_grant(receipt, now)
        } else if receipt.at > now || state.is_invalidated_by_reset(receipt) {
            // Made before a reset, which also sets a clock that is ahead.
            false
        } else {
            self.take_back_limit(state, receipt, now)?
        };
        if took || self.hold.is_some() {
            state.compact(self, now);
        }
        Ok(took)
    }

    fn take_back_limit(
        &self,
        state: &mut State,
        receipt: Receipt,
        now: Timestamp,
    ) -> Result<bool, Unreadable> {
        match (&self.algorithm, self.hold) {
            (Algorithm::Gcra(gcra), Some(_)) => state.with_marks(self, now, |counter, holds| {
                if holds.covers(receipt.at) {
                    gcra.take_back_marked(counter, &mut holds.marks, receipt, now)
                } else {
                    gcra.take_back_unmarked(counter, &mut holds.marks, receipt, now)
                }
            }),
            (
                algorithm @ (Algorithm::FixedWindow(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::Gcra(_)
                | Algorithm::Concurrency(_)),
                hold,
            ) => {
                let took = with_algorithm!(algorithm, state.inner_mut(), |limit, counter| {
                    limit.take_back(counter, receipt, now)
                })?;
                if took && hold.is_none() {
                    state.drop_marks();
                }
                Ok(took)
            }
        }
    }
}
