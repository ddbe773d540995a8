//! One question of a request: its verdict, its hits and holds, its outcome.

use super::{Hits, JudgedBy, Outcome, Question};
use crate::algorithm::hold::{HoldEffect, HoldRequest};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Overall, Role, Verdict, charges, is_seen};
use crate::algorithm::{State, Unreadable};

/// A question with its verdict.
pub(super) struct JudgedQuestion<'q, 'a> {
    pub(super) question: &'q Question<'a>,
    pub(super) verdict: Verdict,
    /// Effect on a hold.
    pub(super) effect: HoldEffect,
    /// Hits that earlier questions requested of the same counter.
    pub(super) hits_before: u64,
}

impl<'q, 'a> JudgedQuestion<'q, 'a> {
    /// Returns the question before it is judged, as if its counter were unavailable.
    pub(super) fn new(question: &'q Question<'a>) -> Self {
        let verdict = Verdict::Unknown(question.limit.on_store_error());
        Self { question, verdict, effect: HoldEffect::Nothing, hits_before: 0 }
    }

    /// Judges the only question about its counter.
    pub(super) fn alone(question: &'q Question<'a>, counters: &[State], now: Timestamp) -> Self {
        let mut judged = Self::new(question);
        if let Some(state) = question.counter.and_then(|index| counters.get(index)) {
            judged.find_held(state, question.wanted(), now);
            judged.judge(state, now);
        }
        judged
    }

    /// Compares the open hits of the ID of a reserve with `reserves`, the hits that the request
    /// reserves by it at the counter.
    pub(super) fn find_held(&mut self, state: &State, reserves: u64, now: Timestamp) {
        let Some(hold) = self.question.reserve_once() else { return };
        self.effect = match state.open_hits(hold.id, state.clamp(now)) {
            0 => HoldEffect::Nothing,
            open if u64::from(open) == reserves => HoldEffect::Held,
            _ => HoldEffect::Conflict,
        };
    }

    /// Sets the verdict. It remains unknown if the counter belongs to another algorithm.
    pub(super) fn judge(&mut self, state: &State, now: Timestamp) {
        self.verdict = if self.effect == HoldEffect::Held {
            Verdict::Allowed
        } else if self.effect == HoldEffect::Conflict {
            Verdict::Conflict
        } else {
            self.question.verdict(state, now).unwrap_or(self.verdict)
        };
    }

    /// Returns the index of the counter.
    pub(super) fn counter(&self) -> Option<usize> {
        self.question.counter
    }

    /// Returns the role and the verdict of the limit.
    pub(super) fn vote(&self) -> (Role, Verdict) {
        (self.question.role, self.verdict)
    }

    /// Writes the hits to a copy of the counter by which later questions are judged, in which a
    /// peek counts as a charge.
    pub(super) fn draft(&mut self, state: &mut State, now: Timestamp) {
        let seen = is_seen(self.question.limit.charge_mode(), self.verdict == Verdict::Allowed);
        self.perform(self.question.hits.as_charge(), state, seen, now);
    }

    /// Writes and tallies the hits as the charge mode requires. Returns `true` if it wrote any.
    pub(super) fn write(&mut self, state: &mut State, overall: Overall, now: Timestamp) -> bool {
        let question = self.question;
        let is_allowed = self.verdict == Verdict::Allowed;
        let charged = charges(question.limit.charge_mode(), is_allowed, overall);
        let took = self.perform(question.hits, state, charged, now);
        question.tally(state, took, self.verdict) || took
    }

    /// Writes the hits if `charged`, or the operation on a hold. Returns `true` if it wrote any.
    fn perform(&mut self, hits: Hits, state: &mut State, charged: bool, now: Timestamp) -> bool {
        if matches!(self.verdict, Verdict::Unknown(_)) {
            return false;
        }
        match (self.question.hold, self.effect) {
            (None, _) => self.question.write(hits, state, charged, now).unwrap_or(false),
            (Some(_), HoldEffect::Held | HoldEffect::Conflict) => false,
            (Some(hold), _) => {
                let effect = self.question.write_hold(*hold, hits, state, charged, now);
                self.effect = effect.unwrap_or_default();
                self.effect.is_write()
            }
        }
    }

    /// Returns the outcome, with the state of the counter after the whole request.
    pub(super) fn outcome(&self, state: &State, now: Timestamp) -> Option<Outcome> {
        let allowed = match self.verdict {
            Verdict::Allowed | Verdict::Refund => true,
            Verdict::Denied | Verdict::Conflict => false,
            Verdict::Unknown(_) => return None,
        };
        // A denied caller that retries sends all hits that this request has for the counter so far.
        let wanted = self.question.needs().saturating_add(self.hits_before);
        let denied = (!allowed).then_some(wanted);
        let report = self.question.limit.report(state, denied, now).ok()?;
        Some(Outcome { allowed, report, by: JudgedBy::Store, hold: self.effect })
    }
}

impl<'a> Question<'a> {
    fn verdict(&self, state: &State, now: Timestamp) -> Result<Verdict, Unreadable> {
        if let Hits::Refund(_) = self.hits {
            return Ok(Verdict::Refund);
        }
        let allowed = self.limit.allows(state, self.needs(), now)?;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Denied })
    }

    /// Returns the operation of a reserve that is judged by the open holds of its ID first.
    pub(super) fn reserve_once(&self) -> Option<&'a HoldRequest<'a>> {
        self.hold.filter(|hold| hold.is_retried())
    }

    /// Returns `true` for a charge or a peek, whose verdict depends on the counter.
    pub(super) fn has_vote(&self) -> bool {
        self.hits.amount().is_some()
    }

    /// Returns the hits that must fit.
    fn needs(&self) -> u64 {
        self.hits.needs(self.limit.charge_mode()).unwrap_or(0).into()
    }

    /// Returns the hits of a charge or peek; 0 for a refund.
    pub(super) fn wanted(&self) -> u64 {
        self.hits.amount().unwrap_or(0).into()
    }

    /// Writes `hits` if `charged`, a refund always, a ban never. Returns `true` if it wrote any.
    fn write(
        &self,
        hits: Hits,
        state: &mut State,
        charged: bool,
        now: Timestamp,
    ) -> Result<bool, Unreadable> {
        match hits {
            Hits::Charge(hits) if charged && !self.limit.is_ban() => {
                self.limit.charge(state, hits.into(), now).map(|_| true)
            }
            Hits::Refund(hits) => self.limit.refund(state, hits.into(), now),
            Hits::Charge(_) | Hits::Peek(_) => Ok(false),
        }
    }

    /// Writes an operation on a hold: one on existing holds always, a reserve as the charge it is.
    fn write_hold(
        &self,
        hold: HoldRequest<'_>,
        hits: Hits,
        state: &mut State,
        charged: bool,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        if hold.is_on_existing() {
            return self.limit.change_hold(state, hold, self.recorded, now);
        }
        match hits {
            Hits::Charge(hits) if charged && !self.limit.is_ban() => {
                self.limit.reserve(state, hits.into(), hold, self.recorded, now)
            }
            Hits::Charge(_) | Hits::Peek(_) | Hits::Refund(_) => Ok(HoldEffect::Nothing),
        }
    }

    /// Tallies charged or denied hits, not peeks or refunds. Returns `true` if anything changed.
    fn tally(&self, state: &mut State, charged: bool, verdict: Verdict) -> bool {
        let Hits::Charge(hits) = self.hits else { return false };
        let charged = if charged { hits } else { 0 };
        let denied = if verdict == Verdict::Denied { hits } else { 0 };
        !self.limit.is_ban()
            && self.limit.tally(state, self.recorded, charged.into(), denied.into())
    }
}
