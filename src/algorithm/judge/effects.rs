//! Effects of a request's operations on holds.

use smallvec::SmallVec;

use super::Question;
use crate::algorithm::State;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest};
use crate::algorithm::time::Timestamp;

/// The effects of a request's operations on holds.
#[derive(Clone)]
pub(super) struct Effects<'q, 'a> {
    pub(super) questions: &'q [Question<'a>],
    /// The effect per question so far; empty before the first operation on a hold, and so in almost
    /// all requests.
    effects: SmallVec<[HoldEffect; 1]>,
}

impl<'q, 'a> Effects<'q, 'a> {
    /// Returns the effects that are known before anything is written: those of reserves by an ID
    /// that has open holds already.
    #[inline]
    pub(super) fn of(questions: &'q [Question<'a>], counters: &[State], now: Timestamp) -> Self {
        let mut effects = Self { questions, effects: SmallVec::new() };
        if questions.iter().any(Question::reserves_once) {
            effects.effects =
                questions.iter().map(|question| effects.held(question, counters, now)).collect();
        }
        effects
    }

    /// Compares the open hits of the ID of a reserve with those that the request reserves by it at
    /// the same counter.
    fn held(&self, question: &Question<'_>, counters: &[State], now: Timestamp) -> HoldEffect {
        let counter = question.counter.and_then(|index| counters.get(index));
        let Some(hold) = question.hold else { return HoldEffect::Nothing };
        let Some(state) = counter else { return HoldEffect::Nothing };
        let is_with = |other: &&Question<'_>| {
            other.reserves_once()
                && other.counter == question.counter
                && other.hold.is_some_and(|other| other.id == hold.id)
        };
        let wanted = || self.questions.iter().filter(is_with).map(Question::wanted).sum::<u64>();
        match state.open_hits(hold.id, state.clamp(now)) {
            _ if !question.reserves_once() => HoldEffect::Nothing,
            0 => HoldEffect::Nothing,
            open if u64::from(open) == wanted() => HoldEffect::Held,
            _ => HoldEffect::Conflict,
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> HoldEffect {
        self.effects.get(index).copied().unwrap_or_default()
    }

    /// Writes the operation of a question to its counter, and returns its effect. It has none if an
    /// earlier question has ended a hold of the same ID at the same counter: a request ends one,
    /// unless each of its questions does.
    pub(super) fn write(
        &mut self,
        index: usize,
        question: &Question<'_>,
        state: &mut State,
        charged: bool,
        now: Timestamp,
    ) -> HoldEffect {
        let Some(hold) = question.hold else { return HoldEffect::Nothing };
        if let known @ (HoldEffect::Held | HoldEffect::Conflict) = self.get(index) {
            return known;
        }
        if hold.is_on_existing() && self.has_ended(question, hold, index) {
            return HoldEffect::Nothing;
        }
        let effect = question.write_hold(state, *hold, charged, now).unwrap_or_default();
        self.effects.resize(self.questions.len(), HoldEffect::Nothing);
        if let Some(own) = self.effects.get_mut(index) {
            *own = effect;
        }
        effect
    }

    fn has_ended(&self, question: &Question<'_>, own: &HoldRequest<'_>, index: usize) -> bool {
        if matches!(own.action, HoldAction::CommitEach(_) | HoldAction::Cancel) {
            return false;
        }
        let earlier = self.questions.iter().zip(&self.effects).take(index);
        earlier
            .filter(|(_, effect)| {
                matches!(effect, HoldEffect::Committed { .. } | HoldEffect::Settled)
            })
            .any(|(other, _)| {
                other.counter == question.counter
                    && other.hold.is_some_and(|hold| hold.id == own.id)
            })
    }
}
