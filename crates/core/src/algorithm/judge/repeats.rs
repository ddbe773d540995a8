//! Requests in which several questions name the same counter.
//!
//! The questions about a counter are judged in order, each by a draft of the counter with the hits
//! of those before it. Then they are written in order.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::question::JudgedQuestion;
use super::{Few, JudgedRequest, Question};
use crate::algorithm::State;
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Prior, combine};

/// IDs of which the request has ended a hold at a counter.
type EndedIds<'a> = BTreeSet<&'a [u8]>;

/// Judges a request as [`judge`](super::judge) does, whatever counters it names.
pub(super) fn judge(
    questions: &[Question<'_>],
    counters: &mut [State],
    prior: Prior,
    now: Timestamp,
) -> JudgedRequest {
    let mut judged: Vec<_> = questions.iter().map(JudgedQuestion::new).collect();
    let mut by_counter: Vec<&mut JudgedQuestion<'_, '_>> = judged.iter_mut().collect();
    by_counter.sort_by_key(|one| one.counter());
    for same in by_counter.chunk_by_mut(|one, next| one.counter() == next.counter()) {
        let counter = same.first().and_then(|one| one.counter());
        if let Some(state) = counter.and_then(|index| counters.get(index)) {
            judge_same(same, state, now);
        }
    }
    let overall = combine(prior, by_counter.iter().map(|one| one.vote()));
    let mut written: Few<bool> = SmallVec::from_elem(false, counters.len());
    for same in by_counter.chunk_by_mut(|one, next| one.counter() == next.counter()) {
        let counter = same.first().and_then(|one| one.counter());
        let place = counter.and_then(|index| counters.get_mut(index).zip(written.get_mut(index)));
        let Some((state, written)) = place else { continue };
        let mut ended = EndedIds::new();
        for one in same {
            *written |= end_once(one, &mut ended, |one| one.write(state, overall, now));
        }
    }
    let outcomes =
        judged.iter().map(|one| one.outcome(counters.get(one.counter()?)?, now)).collect();
    JudgedRequest { overall, outcomes, written }
}

/// Judges the questions about a counter.
fn judge_same(same: &mut [&mut JudgedQuestion<'_, '_>], state: &State, now: Timestamp) {
    let mut reserves: BTreeMap<&[u8], u64> = BTreeMap::new();
    for question in same.iter().map(|one| one.question) {
        if let Some(hold) = question.reserve_once() {
            let sum = reserves.entry(hold.id).or_default();
            *sum = sum.saturating_add(question.wanted());
        }
    }
    // Only a vote depends on the draft.
    let last_vote = same.iter().rposition(|one| one.question.has_vote()).unwrap_or(0);
    let mut draft = Cow::Borrowed(state);
    let mut ended = EndedIds::new();
    let mut hits_before = 0u64;
    for (index, one) in same.iter_mut().enumerate() {
        let reserves = one.question.hold.and_then(|hold| reserves.get(hold.id));
        one.find_held(state, reserves.copied().unwrap_or(0), now);
        one.judge(&draft, now);
        if index < last_vote {
            end_once(one, &mut ended, |one| one.draft(draft.to_mut(), now));
        }
        one.hits_before = hits_before;
        hits_before = hits_before.saturating_add(one.question.wanted());
    }
}

/// Writes a question, unless it has no effect because an earlier one has ended a hold of its ID.
fn end_once<'a, T: Default>(
    one: &mut JudgedQuestion<'_, 'a>,
    ended: &mut EndedIds<'a>,
    write: impl FnOnce(&mut JudgedQuestion<'_, 'a>) -> T,
) -> T {
    let Some(hold) = one.question.hold else { return write(one) };
    if hold.action.is_once() && ended.contains(hold.id) {
        one.effect = HoldEffect::Nothing;
        return T::default();
    }
    let result = write(one);
    if matches!(one.effect, HoldEffect::Committed { .. } | HoldEffect::Settled) {
        ended.insert(hold.id);
    }
    result
}
