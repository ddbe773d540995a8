//! Judging a whole request against its counters at one instant.
//!
//! Every store that can access all counters of a request decides with this function. A Redis script
//! implements the same steps:
//!
//! 1. each check is judged in order, counting earlier hits on the same counter, peeks included;
//! 2. the verdicts are combined ([`super::verdict::combine`]);
//! 3. the hits are written as the charge modes require, and tallied for the recorded entries;
//! 4. each check is reported with its counter's state after the whole request.
//!
//! | file | contents |
//! |---|---|
//! | `question` | one question: its verdict, its hits and holds, its outcome |
//! | `repeats` | requests in which several questions name the same counter |

mod question;
mod repeats;

use smallvec::SmallVec;

use self::question::JudgedQuestion;
use super::hold::{HoldEffect, HoldRequest};
use super::quota::Report;
use super::store_error::StoreError;
use super::tallies::Recorded;
use super::time::Timestamp;
use super::verdict::{Overall, Prior, Role, combine};
use super::{Charge, Limit, State};

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

    /// Returns the charge that a peek checks; other hits unchanged.
    fn as_charge(self) -> Self {
        match self {
            Self::Peek(hits) if hits > 0 => Self::Charge(hits),
            Self::Peek(_) | Self::Charge(_) | Self::Refund(_) => self,
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
pub struct JudgedRequest {
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
) -> JudgedRequest {
    // Stores number the counters in the order of their first questions.
    let named = questions.iter().filter_map(|question| question.counter);
    if !named.is_sorted_by(|one, next| one < next) {
        return repeats::judge(questions, counters, prior, now);
    }
    let mut judged: Few<JudgedQuestion<'_, '_>> =
        questions.iter().map(|question| JudgedQuestion::alone(question, counters, now)).collect();
    let overall = combine(prior, judged.iter().map(JudgedQuestion::vote));
    let mut written: Few<bool> = SmallVec::from_elem(false, counters.len());
    let outcomes = judged.iter_mut().map(|judged| {
        let index = judged.counter()?;
        let state = counters.get_mut(index)?;
        *written.get_mut(index)? = judged.write(state, overall, now);
        judged.outcome(state, now)
    });
    JudgedRequest { overall, outcomes: outcomes.collect(), written }
}
