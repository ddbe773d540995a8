//! The history of a run: calls with their begin, end and answer.

use serde::Serialize;

/// A call to a rate limit service, as its client saw it. Times are microseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedCall {
    /// Index of the counter.
    pub counter: usize,
    /// Index of the target.
    pub target: usize,
    /// Hits of the request.
    pub hits: u64,
    /// Time at which the call was sent.
    pub begin: u64,
    /// Time at which its answer arrived.
    pub end: u64,
    /// The answer.
    pub answer: ObservedAnswer,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ObservedAnswer {
    /// The hits were admitted.
    Admitted {
        /// Remaining hits in the status; `None` if it has no limit, as without the store.
        remaining: Option<u64>,
        /// Time until the reset, in seconds rounded down.
        reset: Option<u64>,
    },
    /// The hits were denied.
    Denied {
        /// Remaining hits in the status; `None` if it has no limit, as without the store.
        remaining: Option<u64>,
        /// Time until the reset, in seconds rounded down.
        reset: Option<u64>,
    },
    /// An error: the hits may have been charged.
    Failed {
        /// Text of the error.
        error: String,
    },
    /// No answer by the deadline: the hits may have been charged.
    Late,
}

impl ObservedCall {
    /// Returns the hits that were certainly admitted.
    pub fn admitted(&self) -> u64 {
        if self.is_admitted() { self.hits } else { 0 }
    }

    /// Returns `true` if the call was admitted.
    pub fn is_admitted(&self) -> bool {
        matches!(self.answer, ObservedAnswer::Admitted { .. })
    }

    /// Returns `true` if the call was denied.
    pub fn is_denied(&self) -> bool {
        matches!(self.answer, ObservedAnswer::Denied { .. })
    }

    /// Returns the time by which its hits were charged, if they were: a call without a decision may
    /// still be under way.
    pub fn charged_by(&self) -> u64 {
        if self.is_unknown() { u64::MAX } else { self.end }
    }

    /// Returns `true` if it is unknown whether the hits were charged.
    pub fn is_unknown(&self) -> bool {
        matches!(self.answer, ObservedAnswer::Failed { .. } | ObservedAnswer::Late)
    }
}
