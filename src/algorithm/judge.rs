//! Judging a whole request against its counters at one instant.
//!
//! Every store that can access all counters of a request decides with this function. A Redis script
//! implements the same steps:
//!
//! 1. each check is judged in order, counting earlier hits on the same counter, peeks included;
//! 2. the verdicts are combined ([`super::verdict::combine`]);
//! 3. the hits are written as the charge modes require, and tallied for the recorded entries;
//! 4. each check is reported with its counter's state after the whole request.

mod effects;

use smallvec::SmallVec;

use self::effects::Effects;
use super::hold::{HoldEffect, HoldRequest};
use super::quota::Report;
use super::store_error::StoreError;
use super::tallies::Recorded;
use super::time::Timestamp;
use super::verdict::{Overall, Prior, Role, Verdict, charges, combine, is_seen};
use super::{Charge, Limit, State, Unreadable};

/// The operation that a request performs on one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Charges this many hits, at least 1.
    Charge(u32),
    /// Checks for room for this many hits; takes none and creates no counter. The protocol's peek
    /// has 0 hits.
    Peek(u32),
    /// Refunds this many hits.
    Refund(u32),
}

impl Hits {
    /// Returns the amount of a charge or peek; `None` for a refund.
    pub fn amount(self) -> Option<u32> {
        match self {
            Self::Charge(hits) | Self::Peek(hits) => Some(hits),
            Self::Refund(_) => None,
        }
    }

    /// Returns the hits that must fit for a limit with charge mode `mode`; `None` for a refund. A
    /// peek at a limit that is charged afterwards needs room for at least one hit.
    pub fn needs(self, mode: Charge) -> Option<u32> {
        match self {
            Self::Charge(hits) => Some(hits),
            Self::Peek(hits) => Some(hits.max(u32::from(mode.is_afterwards()))),
            Self::Refund(_) => None,
        }
    }
}

/// One limit to judge against one counter.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The limit to judge by.
    pub limit: &'a Limit,
    /// Hits to charge, peek or refund.
    pub hits: Hits,
    /// Role of the limit in the request.
    pub role: Role,
    /// Index of the counter; `None` if the store has none available.
    pub counter: Option<usize>,
    /// Entries to tally the hits for.
    pub recorded: Recorded<'a>,
    /// Operation on a hold.
    pub hold: Option<&'a HoldRequest<'a>>,
}

/// The outcome of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `true` if the limit allowed the hits. A refund is always allowed.
    pub allowed: bool,
    /// State of the counter after the whole request.
    pub report: Report,
    /// Source of the outcome.
    pub by: JudgedBy,
    /// Effect of an operation on a hold.
    pub hold: HoldEffect,
}

/// The source of an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JudgedBy {
    /// The store, for this request.
    #[default]
    Store,
    /// A denial that a layer in front of the store remembered.
    Memory,
    /// This process alone, by its share of the limit, because of this error of the store.
    Share(StoreError),
    /// This process, from a block of hits that it leased from the store.
    Block,
}

/// A list that needs no allocation for up to four elements, which most requests have at most.
pub type Few<T> = SmallVec<[T; 4]>;

/// A list that needs no allocation for up to two elements, for large elements that a call holds
/// while it waits.
pub type InlineVec<T> = SmallVec<[T; 2]>;

/// The decision on a request, with the outcome of each question in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Decision on the request as a whole.
    pub overall: Overall,
    /// Outcome per question; `None` if the store had no counter to judge by.
    pub outcomes: Few<Option<Outcome>>,
    /// `true` for each counter that was written, by index.
    pub written: Few<bool>,
}

/// Judges the `questions` of a request at `now`, and writes `counters` as the charge modes require.
///
/// Two questions may name the same counter. A counter of another algorithm counts as unavailable.
pub fn judge(
    questions: &[Question<'_>],
    counters: &mut [State],
    prior: Prior,
    now: Timestamp,
) -> Judgement {
    let mut repeats = repeats(questions, counters.len());
    let mut effects = Effects::of(questions, counters, now);
    let verdicts = look(&effects, counters, &mut repeats, now);
    let overall = combine(
        prior,
        questions.iter().map(|question| question.role).zip(verdicts.iter().copied()),
    );
    let mut written: Few<bool> = counters.iter().map(|_| false).collect();
    for (index, question) in questions.iter().enumerate() {
        let Some(verdict) = verdicts.get(index) else { continue };
        let counter = question
            .counter
            .and_then(|index| Some((counters.get_mut(index)?, written.get_mut(index)?)));
        let Some((state, written)) = counter else { continue };
        if matches!(verdict, Verdict::Unknown(_)) {
            continue;
        }
        let charged = charges(question.limit.charge_mode(), *verdict == Verdict::Allowed, overall);
        let took = match question.hold {
            None => question.write(state, charged, now).unwrap_or(false),
            Some(_) => effects.write(index, question, state, charged, now).is_write(),
        };
        *written |= question.tally(state, took, *verdict) || took;
    }
    let outcomes = report(&effects, &verdicts, counters, &mut repeats, now);
    Judgement { overall, outcomes, written }
}

/// State that earlier questions leave for later ones on the same counter.
#[derive(Clone, Default)]
struct Repeat {
    /// Number of questions that name the counter.
    questions: usize,
    /// Number of those that have a vote and are not judged yet: others need no draft.
    votes: usize,
    /// State of the counter after the questions so far.
    draft: Option<State>,
    /// Hits that the questions so far requested.
    wanted: u64,
}

/// Returns an element for each counter; none if every counter has a single question, as in almost
/// all requests.
fn repeats(questions: &[Question<'_>], counters: usize) -> Few<Repeat> {
    let mut repeats = Few::new();
    if questions.len() > 1 {
        repeats.resize(counters, Repeat::default());
        for question in questions {
            let index = question.counter.unwrap_or(usize::MAX);
            let Some(repeat): Option<&mut Repeat> = repeats.get_mut(index) else { continue };
            repeat.questions = repeat.questions.saturating_add(1);
            repeat.votes = repeat.votes.saturating_add(usize::from(question.has_vote()));
        }
        if repeats.iter().all(|repeat| repeat.questions <= 1) {
            repeats.clear();
        }
    }
    repeats
}

/// Returns the verdict on each question, in order. Writes only to copies of the counters.
fn look(
    effects: &Effects<'_, '_>,
    counters: &[State],
    repeats: &mut [Repeat],
    now: Timestamp,
) -> Few<Verdict> {
    let mut verdicts = Few::new();
    let mut effects = effects.clone();
    for (number, question) in effects.questions.iter().enumerate() {
        let index = question.counter.unwrap_or(usize::MAX);
        let repeat = repeats.get_mut(index).filter(|repeat| repeat.questions > 1);
        let state = repeat
            .as_ref()
            .and_then(|repeat| repeat.draft.as_ref())
            .or_else(|| counters.get(index));
        let verdict = match (effects.get(number), state) {
            (HoldEffect::Held, Some(_)) => Some(Verdict::Allowed),
            (HoldEffect::Conflict, Some(_)) => Some(Verdict::Conflict),
            (_, state) => state.map(|state| question.verdict(state, now)).and_then(Result::ok),
        };
        verdicts.push(verdict.unwrap_or(Verdict::Unknown(question.limit.on_store_error())));
        let Some(repeat) = repeat else { continue };
        repeat.votes = repeat.votes.saturating_sub(usize::from(question.has_vote()));
        let Some(verdict) = verdict.filter(|_| repeat.votes > 0) else { continue };
        repeat.draft = repeat.draft.take().or_else(|| counters.get(index).cloned());
        if let Some(state) = &mut repeat.draft {
            let seen = is_seen(question.limit.charge_mode(), verdict == Verdict::Allowed);
            let question = question.as_charge();
            if question.hold.is_some() {
                effects.write(number, &question, state, seen, now);
            } else {
                let _ = question.write(state, seen, now);
            }
        }
    }
    verdicts
}

/// Returns the outcomes, with the state of each counter after the whole request.
fn report(
    effects: &Effects<'_, '_>,
    verdicts: &[Verdict],
    counters: &[State],
    repeats: &mut [Repeat],
    now: Timestamp,
) -> Few<Option<Outcome>> {
    let answer = |(number, question): (usize, &Question<'_>)| {
        let verdict = verdicts.get(number)?;
        let index = question.counter?;
        let state = counters.get(index)?;
        let mut wanted = question.needs();
        if let Some(repeat) = repeats.get_mut(index) {
            wanted = wanted.saturating_add(repeat.wanted);
            repeat.wanted = repeat.wanted.saturating_add(question.wanted());
        }
        let allowed = match verdict {
            Verdict::Allowed | Verdict::Refund => true,
            Verdict::Denied | Verdict::Conflict => false,
            Verdict::Unknown(_) => return None,
        };
        // A denied caller that retries sends all hits that this request has for the counter so far.
        let report = question.limit.report(state, (!allowed).then_some(wanted), now).ok()?;
        Some(Outcome { allowed, report, by: JudgedBy::Store, hold: effects.get(number) })
    };
    effects.questions.iter().enumerate().map(answer).collect()
}

impl Question<'_> {
    fn verdict(&self, state: &State, now: Timestamp) -> Result<Verdict, Unreadable> {
        if let Hits::Refund(_) = self.hits {
            return Ok(Verdict::Refund);
        }
        let allowed = self.limit.allows(state, self.needs(), now)?;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Denied })
    }

    /// Returns `true` for a reserve that is judged by the open holds of its ID first.
    fn reserves_once(&self) -> bool {
        self.hold.is_some_and(HoldRequest::is_retried)
    }

    /// Returns `true` for a charge or a peek, whose verdict depends on the counter.
    fn has_vote(&self) -> bool {
        !matches!(self.hits, Hits::Refund(_))
    }

    /// Returns the hits that must fit.
    fn needs(&self) -> u64 {
        self.hits.needs(self.limit.charge_mode()).unwrap_or(0).into()
    }

    /// Returns the hits of a charge or peek; 0 for a refund.
    fn wanted(&self) -> u64 {
        match self.hits {
            Hits::Charge(hits) | Hits::Peek(hits) => hits.into(),
            Hits::Refund(_) => 0,
        }
    }

    /// Returns the question with a peek turned into a charge.
    fn as_charge(&self) -> Self {
        match self.hits {
            Hits::Peek(hits) if hits > 0 => Self { hits: Hits::Charge(hits), ..*self },
            Hits::Peek(_) | Hits::Charge(_) | Hits::Refund(_) => *self,
        }
    }

    /// Writes the hits if `charged`, a refund always, a ban never. Returns `true` if it wrote any.
    fn write(&self, state: &mut State, charged: bool, now: Timestamp) -> Result<bool, Unreadable> {
        match self.hits {
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
        state: &mut State,
        hold: HoldRequest<'_>,
        charged: bool,
        now: Timestamp,
    ) -> Result<HoldEffect, Unreadable> {
        if hold.is_on_existing() {
            return self.limit.change_hold(state, hold, now);
        }
        match self.hits {
            Hits::Charge(hits) if charged && !self.limit.is_ban() => {
                self.limit.reserve(state, hits.into(), hold, now)
            }
            Hits::Charge(_) | Hits::Peek(_) | Hits::Refund(_) => Ok(HoldEffect::Nothing),
        }
    }

    /// Tallies charged or denied hits, not peeks or refunds. Returns `true` if anything changed.
    fn tally(&self, state: &mut State, charged: bool, verdict: Verdict) -> bool {
        let Hits::Charge(of_charge) = self.hits else { return false };
        let hits = |counts: bool| if counts { u64::from(of_charge) } else { 0 };
        let is_denied = verdict == Verdict::Denied;
        !self.limit.is_ban()
            && self.limit.tally(state, self.recorded, hits(charged), hits(is_denied))
    }
}
