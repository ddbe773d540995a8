//! The history of a run: calls with their begin, end and answer.

use serde::Serialize;

/// A call to a rate limit service, as its client saw it: the part of a request that is about one
/// counter. Times are microseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedCall {
    /// Index of the counter.
    pub counter: usize,
    /// Number of the request: calls with the same one were sent together.
    pub request: usize,
    /// Index of the target.
    pub target: usize,
    /// The effect of the request.
    pub action: CallAction,
    /// Hits of the request; of a commit, the cost; if a hold is kept, its hits.
    pub hits: u64,
    /// Time at which the call was sent.
    pub begin: u64,
    /// Time at which its answer arrived.
    pub end: u64,
    /// The answer.
    pub answer: ObservedAnswer,
}

/// The effect of a request on its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CallAction {
    /// Charges hits.
    #[default]
    Charge,
    /// Charges hits until the hold ends.
    Reserve {
        /// Number of the hold.
        hold: usize,
    },
    /// Reserves the hits of a hold once more, which charges nothing.
    Repeat {
        /// Number of the hold.
        hold: usize,
    },
    /// Gives a hold a new TTL.
    Extend {
        /// Number of the hold.
        hold: usize,
    },
    /// Ends a hold.
    End {
        /// Number of the hold.
        hold: usize,
        /// The way in which it ends.
        by: HoldEnd,
    },
    /// Ends a hold that a call has ended, which changes nothing. A commit is charged if the store
    /// no longer remembers the hold.
    EndAgain {
        /// Number of the hold.
        hold: usize,
        /// The way in which it would end.
        by: HoldEnd,
    },
}

/// The way in which a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldEnd {
    /// With its cost: the other hits return.
    Commit,
    /// Its hits return.
    Cancel,
    /// As the rule has it.
    Settle,
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
    /// This limit did not deny the request, another one did.
    DeniedByOther,
    /// A hold was extended, or reserved once more.
    Kept {
        /// Remaining hits in the status; `None` if it has no limit, as without the store.
        remaining: Option<u64>,
        /// Time until the reset, in seconds rounded down.
        reset: Option<u64>,
    },
    /// A hold has ended.
    Ended {
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

impl CallAction {
    /// Returns the hold of the request.
    pub fn hold(self) -> Option<usize> {
        match self {
            Self::Reserve { hold }
            | Self::Repeat { hold }
            | Self::Extend { hold }
            | Self::End { hold, .. }
            | Self::EndAgain { hold, .. } => Some(hold),
            Self::Charge => None,
        }
    }

    /// Returns the way in which the request ends a hold, for the first time or again.
    pub fn end(self) -> Option<HoldEnd> {
        match self {
            Self::End { by, .. } | Self::EndAgain { by, .. } => Some(by),
            Self::Charge | Self::Reserve { .. } | Self::Repeat { .. } | Self::Extend { .. } => None,
        }
    }

    /// Returns `true` if the request changes nothing while the store remembers the hold.
    pub(crate) fn is_again(self) -> bool {
        matches!(self, Self::Repeat { .. } | Self::EndAgain { .. })
    }

    /// Returns `true` if the request charges its hits, and may be denied: it is not about a hold
    /// that was reserved before.
    pub fn is_charge(self) -> bool {
        match self {
            Self::Charge | Self::Reserve { .. } => true,
            Self::Repeat { .. }
            | Self::Extend { .. }
            | Self::End { .. }
            | Self::EndAgain { .. } => false,
        }
    }
}

impl ObservedAnswer {
    /// Returns the answer of a call that may have been charged, whatever the answer says.
    pub(crate) fn unknown(self) -> Self {
        match self {
            Self::Failed { .. } | Self::Late => self,
            Self::Admitted { .. }
            | Self::Denied { .. }
            | Self::DeniedByOther
            | Self::Kept { .. }
            | Self::Ended { .. } => Self::Failed { error: "the hold may have ended".to_owned() },
        }
    }
}

impl ObservedCall {
    /// Returns the hits that were to be charged: none if the call is about a hold that was reserved
    /// before.
    pub fn charged(&self) -> u64 {
        if self.action.is_charge() { self.hits } else { 0 }
    }

    /// Returns `true` if the call was admitted.
    pub fn is_admitted(&self) -> bool {
        matches!(self.answer, ObservedAnswer::Admitted { .. })
    }

    /// Returns `true` if the call was denied.
    pub fn is_denied(&self) -> bool {
        matches!(self.answer, ObservedAnswer::Denied { .. })
    }

    /// Returns the remaining hits after the call, if it was decided by the store and not denied.
    pub fn remaining(&self) -> Option<u64> {
        match self.answer {
            ObservedAnswer::Admitted { remaining, .. }
            | ObservedAnswer::Kept { remaining, .. }
            | ObservedAnswer::Ended { remaining, .. } => remaining,
            ObservedAnswer::Denied { .. }
            | ObservedAnswer::DeniedByOther
            | ObservedAnswer::Failed { .. }
            | ObservedAnswer::Late => None,
        }
    }

    /// Returns the time until the reset.
    pub fn reset(&self) -> Option<u64> {
        match self.answer {
            ObservedAnswer::Admitted { reset, .. }
            | ObservedAnswer::Denied { reset, .. }
            | ObservedAnswer::Kept { reset, .. }
            | ObservedAnswer::Ended { reset, .. } => reset,
            ObservedAnswer::DeniedByOther
            | ObservedAnswer::Failed { .. }
            | ObservedAnswer::Late => None,
        }
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
