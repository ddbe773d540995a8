//! Operations on the holds of a counter.

use super::records::{HoldReceipt, Record};
use super::{Hold, HoldAction, HoldEffect, HoldRequest, OnSettle};
use crate::algorithm::tallies::Recorded;
use crate::algorithm::time::Timestamp;
use crate::algorithm::{AlgorithmState, Limit, Receipt, State, Unreadable, concurrency};

impl Limit {
    /// Charges `hits` as [`charge`](Self::charge) does, and remembers them by an ID, with the
    /// entries that are tallied. No hits change nothing.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn reserve(
        &self,
        state: &mut State,
        hits: u64,
        request: HoldRequest<'_>,
        recorded: Recorded<'_>,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        let now = state.clamp(now);
        let id = request.id;
        let Some(hold) = self.hold else {
            self.charge(state, hits, now)?;
            return Ok(HoldEffect::Unrecorded);
        };
        let repeated_permit = if self.in_flight().is_some()
            && let AlgorithmState::Concurrency(permits) = state.inner()
        {
            Some(permits.live(now).any(|permit| *permit.id == *id))
        } else {
            None
        };
        let charge = self.charge_for(state, hits, id, request.ttl(hold), now)?;
        if let Some(repeated) = repeated_permit {
            let permit = HoldEffect::Reserved { repeated };
            return Ok(if charge.of_grant { HoldEffect::Unrecorded } else { permit });
        }
        let held = HoldReceipt {
            at: now,
            hits: u32::try_from(hits).unwrap_or(u32::MAX),
            grant: charge.of_grant.then_some(charge.at),
            entries: if state.tallies_grow(recorded) { recorded.entries.to_vec() } else { vec![] },
        };
        let until = now + request.ttl(hold);
        Ok(state.with_holds(self, now, |holds| {
            let before = holds.records.get(id, now);
            let repeated = before.as_ref().is_some_and(|record| !record.receipts.is_empty());
            let Some(record) = holds.with_receipt(before, held, until, now) else {
                return HoldEffect::Unrecorded;
            };
            holds.records.put(id, &record, now);
            HoldEffect::Reserved { repeated }
        }))
    }

    /// Performs an operation on the existing holds of an ID. A reserve changes nothing.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn change_hold(
        &self,
        state: &mut State,
        request: HoldRequest<'_>,
        recorded: Recorded<'_>,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        let now = state.clamp(now);
        let effect = self.effect_on_hold(state, request, recorded, now)?;
        if effect.is_write() {
            state.compact(self, now);
        }
        Ok(effect)
    }

    fn effect_on_hold(
        &self,
        state: &mut State,
        request: HoldRequest<'_>,
        recorded: Recorded<'_>,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        let Some(hold) = self.hold else { return Ok(HoldEffect::Nothing) };
        if self.in_flight().is_some() {
            let AlgorithmState::Concurrency(permits) = state.inner_mut() else {
                return Err(Unreadable);
            };
            return Ok(change_permits(permits, request, now + request.ttl(hold), now));
        }
        if self.ban {
            return Ok(HoldEffect::Nothing);
        }
        let record = state.holds().and_then(|holds| holds.records.get(request.id, now));
        match (record, request.action) {
            (None, HoldAction::Commit(cost) | HoldAction::CommitEach(cost)) => {
                let effect = self.commit_unknown(state, request, cost, hold, now)?;
                self.tally(state, recorded, cost.into(), 0);
                Ok(effect)
            }
            (Some(record), _) if !record.receipts.is_empty() => {
                self.change_record(state, request, record, hold, now)
            }
            (Some(_) | None, _) => Ok(HoldEffect::Nothing),
        }
    }

    /// Performs an operation on a record with open holds.
    fn change_record(
        &self,
        state: &mut State,
        request: HoldRequest<'_>,
        mut record: Record,
        hold: Hold,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        let effect = match request.action {
            HoldAction::Reserve | HoldAction::ReserveOnce => return Ok(HoldEffect::Nothing),
            HoldAction::Look => return Ok(HoldEffect::Open { hits: record.hits() }),
            HoldAction::Extend => {
                record.until = now + request.ttl(hold);
                HoldEffect::Extended
            }
            HoldAction::Commit(cost) | HoldAction::CommitEach(cost) => {
                let oldest = record.end_oldest().unwrap_or_default();
                self.correct(state, &oldest, cost, now)?;
                record.until = now + hold.ttl;
                HoldEffect::Committed { reserved: oldest.hits, cost }
            }
            HoldAction::Settle | HoldAction::Cancel => {
                let oldest = record.end_oldest().unwrap_or_default();
                let is_settle = request.action == HoldAction::Settle;
                if !is_settle || hold.on_settle == OnSettle::Release {
                    self.correct(state, &oldest, 0, now)?;
                }
                HoldEffect::Settled
            }
        };
        self.put_record(state, request.id, &record, now)?;
        Ok(effect)
    }

    /// Charges a cost that has no hold, and remembers that it was committed.
    fn commit_unknown(
        &self,
        state: &mut State,
        request: HoldRequest<'_>,
        cost: u32,
        hold: Hold,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        if cost > 0 {
            self.charge_past(state, cost.into(), now)?;
        }
        let record =
            Record { until: now + hold.ttl, has_ended: true, receipts: Default::default() };
        let is_full = state.with_holds(self, now, |holds| holds.records.is_full(now));
        if !is_full {
            self.put_record(state, request.id, &record, now)?;
        }
        Ok(HoldEffect::Unknown { cost })
    }

    /// Puts a charge of `held.hits` to `cost`: takes back what is too much, and charges what is too
    /// little now, whether it fits or not. Hits of a grant return to it, and it pays first.
    fn correct(
        &self,
        state: &mut State,
        held: &HoldReceipt,
        cost: u32,
        now: Timestamp,
    ) -> Result<(), Unreadable> {
        let less = u64::from(held.hits.saturating_sub(cost));
        let more = u64::from(cost.saturating_sub(held.hits));
        if less > 0 {
            let at = held.grant.unwrap_or(held.at);
            let receipt = Receipt { at, hits: less, of_grant: held.grant.is_some() };
            self.take_back(state, receipt, now)?;
            self.untally(state, &held.entries, less);
        }
        if more > 0 {
            let past = held.grant.map_or(more, |grant| state.take_past(grant, more, now));
            if past > 0 {
                self.charge_past(state, past, now)?;
            }
            self.tally(state, Recorded { entries: &held.entries, may_grow: true }, more, 0);
        }
        Ok(())
    }

    fn put_record(
        &self,
        state: &mut State,
        id: &[u8],
        record: &Record,
        now: Timestamp,
    ) -> Result<(), Unreadable> {
        self.touch(state, now)?;
        state.with_holds(self, now, |holds| holds.records.put(id, record, now));
        Ok(())
    }
}

/// Performs an operation on the permits of an ID.
fn change_permits(
    permits: &mut concurrency::State,
    request: HoldRequest<'_>,
    until: Timestamp,
    now: Timestamp,
) -> HoldEffect {
    match request.action {
        HoldAction::Reserve | HoldAction::ReserveOnce => HoldEffect::Nothing,
        HoldAction::Commit(_)
        | HoldAction::CommitEach(_)
        | HoldAction::Settle
        | HoldAction::Cancel => {
            permits.end(request.id, now).map_or(HoldEffect::Nothing, |_| HoldEffect::Settled)
        }
        HoldAction::Extend if permits.extend(request.id, until, now) => HoldEffect::Extended,
        HoldAction::Extend => HoldEffect::Nothing,
        HoldAction::Look => {
            let own = permits.live(now).filter(|permit| *permit.id == *request.id);
            match own.fold(0u32, |sum, permit| sum.saturating_add(permit.hits)) {
                0 => HoldEffect::Nothing,
                hits => HoldEffect::Open { hits },
            }
        }
    }
}
