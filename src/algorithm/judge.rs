//! A whole request against its counters, at one instant: look first, write second, report last.
//!
//! Every store that can see all counters of a request decides with this function; a Redis script mirrors its steps:
//!
//! 1. each check is judged in order, seeing the hits of earlier checks of the same counter, those of peeks too;
//! 2. the verdicts are combined ([`super::verdict::combine`]);
//! 3. the hits are written where the charge modes say so, and tallied for the entries that are recorded;
//! 4. each check is reported as its counter stands after the whole request.

use smallvec::SmallVec;

use super::quota::Report;
use super::tallies::Recorded;
use super::time::Timestamp;
use super::verdict::{Overall, Prior, Role, Verdict, charges, combine, is_seen};
use super::{Charge, Limit, State, Unreadable};

/// What a request wants of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// So many hits, at least 1.
    Charge(u32),
    /// To know whether there is room for so many hits; takes nothing and creates no counter. The protocol's peek is of 0.
    Peek(u32),
    /// To give so many hits back.
    Refund(u32),
}

impl Hits {
    /// Hits that must fit where a limit is charged by `mode`; `None`: nothing must, hits are given back. A peek at a limit that
    /// is charged afterwards must leave room for one.
    pub fn needs(self, mode: Charge) -> Option<u32> {
        match self {
            Self::Charge(hits) => Some(hits),
            Self::Peek(hits) => Some(hits.max(u32::from(mode == Charge::Afterwards))),
            Self::Refund(_) => None,
        }
    }
}

/// One limit's question about one counter.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The limit to judge by.
    pub limit: &'a Limit,
    /// What is wanted.
    pub hits: Hits,
    /// The limit's part in the request.
    pub role: Role,
    /// Which of the counters it is about; `None` where the store has none to offer.
    pub counter: Option<usize>,
    /// The entries that the hits are tallied for.
    pub recorded: Recorded<'a>,
}

/// The answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the limit allowed the hits. A refund is always allowed.
    pub allowed: bool,
    /// The counter after the whole request.
    pub report: Report,
    /// Who says so.
    pub by: JudgedBy,
}

/// Who says what became of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JudgedBy {
    /// The store, now.
    #[default]
    Store,
    /// The store, some time ago: a layer in front of it remembered a denial.
    Memory,
    /// This process alone, by its share of the limit, for the store was away.
    Share,
    /// This process, of hits that it has taken of the store in advance.
    Block,
}

/// Up to four counters, the usual request, without an allocation.
pub type Few<T> = SmallVec<[T; 4]>;

/// The verdict on the request and an answer to each question, in their order; an error where there was no counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What became of the request.
    pub overall: Overall,
    /// `None`: the store had no counter to judge by.
    pub outcomes: Few<Option<Outcome>>,
    /// Which counters were written, by their index.
    pub written: Few<bool>,
}

/// Judges all `questions` of one request at `now` and writes to `counters` what their charge modes ask for.
///
/// Two questions may name the same counter. A counter that belongs to another algorithm counts as not there.
pub fn judge(questions: &[Question<'_>], counters: &mut [State], prior: Prior, now: Timestamp) -> Judgement {
    let verdicts = look(questions, counters, now);
    let overall = combine(prior, questions.iter().map(|question| question.role).zip(verdicts.iter().copied()));
    let mut written: Few<bool> = counters.iter().map(|_| false).collect();
    for (question, verdict) in questions.iter().zip(&verdicts) {
        let counter = question.counter.and_then(|index| Some((counters.get_mut(index)?, written.get_mut(index)?)));
        let (Some((state, written)), false) = (counter, matches!(verdict, Verdict::Unknown(_))) else { continue };
        let charged = charges(question.limit.charge_mode(), *verdict == Verdict::Allowed, overall);
        let took = question.write(state, charged, now).unwrap_or(false);
        *written |= question.tally(state, took, *verdict) || took;
    }
    let outcomes = report(questions, &verdicts, counters, now);
    Judgement { overall, outcomes, written }
}

/// The verdict on each question, in order. Nothing is written but to copies.
fn look(questions: &[Question<'_>], counters: &[State], now: Timestamp) -> Few<Verdict> {
    let mut verdicts = Few::new();
    // What earlier checks of a counter leave for later ones; only counters asked about twice are copied.
    let mut drafts: Few<(usize, State)> = Few::new();
    for (number, question) in questions.iter().enumerate() {
        let index = question.counter.unwrap_or(usize::MAX);
        let draft = drafts.iter().position(|(of, _)| *of == index);
        let state = match draft.and_then(|draft| drafts.get(draft)) {
            Some((_, state)) => Some(state),
            None => counters.get(index),
        };
        let verdict = state.map(|state| question.verdict(state, now)).and_then(Result::ok);
        let Some(verdict) = verdict else {
            verdicts.push(Verdict::Unknown(question.limit.on_store_error()));
            continue;
        };
        verdicts.push(verdict);
        let is_asked_again = questions.iter().skip(number).skip(1).any(|later| later.counter == question.counter);
        if is_asked_again && draft.is_none() {
            drafts.extend(state.cloned().map(|state| (index, state)));
        }
        if let Some((_, state)) = drafts.iter_mut().find(|(of, _)| *of == index) {
            let seen = is_seen(question.limit.charge_mode(), verdict == Verdict::Allowed);
            let _ = question.as_charge().write(state, seen, now);
        }
    }
    verdicts
}

/// The answers, as the counters stand after the whole request.
fn report(
    questions: &[Question<'_>],
    verdicts: &[Verdict],
    counters: &[State],
    now: Timestamp,
) -> Few<Option<Outcome>> {
    let answer = |(number, (question, verdict)): (usize, (&Question<'_>, &Verdict))| {
        let state = counters.get(question.counter?)?;
        let allowed = match verdict {
            Verdict::Allowed | Verdict::Refund => true,
            Verdict::Denied => false,
            Verdict::Unknown(_) => return None,
        };
        // A denied caller who comes back comes with all that this request wanted of the counter so far.
        let earlier = questions.iter().take(number).filter(|earlier| earlier.counter == question.counter);
        let wanted = earlier.map(Question::wanted).fold(question.needs(), u64::saturating_add);
        let report = question.limit.report(state, (!allowed).then_some(wanted), now).ok()?;
        Some(Outcome { allowed, report, by: JudgedBy::Store })
    };
    questions.iter().zip(verdicts).enumerate().map(answer).collect()
}

impl Question<'_> {
    fn verdict(&self, state: &State, now: Timestamp) -> Result<Verdict, Unreadable> {
        if let Hits::Refund(_) = self.hits {
            return Ok(Verdict::Refund);
        }
        let allowed = self.limit.allows(state, self.needs(), now)?;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Denied })
    }

    /// Hits that must fit.
    fn needs(&self) -> u64 {
        self.hits.needs(self.limit.charge_mode()).unwrap_or(0).into()
    }

    /// Hits that a charge takes or a peek asks about.
    fn wanted(&self) -> u64 {
        match self.hits {
            Hits::Charge(hits) | Hits::Peek(hits) => hits.into(),
            Hits::Refund(_) => 0,
        }
    }

    /// Returns the question with the hits of a peek charged.
    fn as_charge(&self) -> Self {
        match self.hits {
            Hits::Peek(hits) if hits > 0 => Self { hits: Hits::Charge(hits), ..*self },
            Hits::Peek(_) | Hits::Charge(_) | Hits::Refund(_) => *self,
        }
    }

    /// Writes the hits where they are `charged`; a refund always. A ban counts nothing. Says whether the counter changed.
    fn write(&self, state: &mut State, charged: bool, now: Timestamp) -> Result<bool, Unreadable> {
        match self.hits {
            Hits::Charge(hits) if charged && !self.limit.is_ban() => {
                self.limit.charge(state, hits.into(), now).map(|_| true)
            }
            Hits::Refund(hits) => self.limit.refund(state, hits.into(), now),
            Hits::Charge(_) | Hits::Peek(_) => Ok(false),
        }
    }

    /// Tallies hits that were charged or denied; a peek and a refund have none. Returns whether the counter changed.
    fn tally(&self, state: &mut State, charged: bool, verdict: Verdict) -> bool {
        let Hits::Charge(of_charge) = self.hits else { return false };
        let hits = |counts: bool| if counts { u64::from(of_charge) } else { 0 };
        let is_denied = verdict == Verdict::Denied;
        !self.limit.is_ban() && self.limit.tally(state, self.recorded, hits(charged), hits(is_denied))
    }
}
