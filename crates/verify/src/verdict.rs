//! Verdicts on properties: one that the run could not have contradicted is inconclusive.

use serde::Serialize;

use crate::check::{CheckedProperty, PropertyResult};

/// Circumstances of a run that limit what it shows. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct RunConditions {
    /// Calls of the run.
    pub calls: usize,
    /// Calls without a decision.
    pub unknown: usize,
    /// Rules whose limit was not reached.
    pub unreached: usize,
    /// Difference between the clocks that is allowed for.
    pub skew: u64,
    /// Most by which the client's clock moved against its monotonic clock.
    pub clock_moved: u64,
    /// Deadline of a call.
    pub deadline: u64,
    /// Longest time for which the client itself did not run.
    pub paused: u64,
}

/// The verdict on a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyVerdict {
    /// Nothing contradicts it, though something could have.
    Held,
    /// Some answers contradict it.
    Violated,
    /// The run does not show it.
    Inconclusive(MissingEvidence),
    /// No rule of the run allows it to be checked.
    NotChecked,
}

/// A reason why a run does not show a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingEvidence {
    /// The limit of a rule was not reached.
    NoDenial,
    /// No hits were admitted.
    NoAdmission,
    /// No answer has a time until the reset.
    NoReset,
    /// Most calls had no decision.
    MostlyUnknown,
    /// The client's clock moved by more than the skew.
    ClockMoved,
    /// The client was paused for so long that calls were late because of it.
    Paused,
}

impl MissingEvidence {
    /// Returns the reason, with the next step.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoDenial => "not every limit was reached: raise --duration or --rate",
            Self::NoAdmission => "no hits were admitted: see the errors and denials",
            Self::NoReset => "no answer has a reset time",
            Self::MostlyUnknown => "most calls had no decision: see the errors",
            Self::ClockMoved => "the clock of this machine was set during the run: run it again",
            Self::Paused => "this machine was too slow: lower --rate or raise --deadline",
        }
    }
}

/// Returns the verdict of a result.
pub fn verdict(result: &PropertyResult, run: &RunConditions) -> PropertyVerdict {
    let is_about_limits = matches!(
        result.property,
        CheckedProperty::NeverOver | CheckedProperty::NoUnjustifiedDenial
    );
    let depends_on_clocks = result.property != CheckedProperty::AnsweredInTime;
    if !result.is_checked {
        PropertyVerdict::NotChecked
    } else if depends_on_clocks && run.clock_moved > run.skew {
        PropertyVerdict::Inconclusive(MissingEvidence::ClockMoved)
    } else if result.contradictions > 0 && !depends_on_clocks && run.paused >= run.deadline / 2 {
        PropertyVerdict::Inconclusive(MissingEvidence::Paused)
    } else if result.contradictions > 0 {
        PropertyVerdict::Violated
    } else if run.unknown * 2 > run.calls {
        PropertyVerdict::Inconclusive(MissingEvidence::MostlyUnknown)
    } else if result.examined == 0 || (is_about_limits && run.unreached > 0) {
        PropertyVerdict::Inconclusive(match result.property {
            CheckedProperty::NeverOver | CheckedProperty::NoUnjustifiedDenial => {
                MissingEvidence::NoDenial
            }
            CheckedProperty::RemainingAccurate | CheckedProperty::AnsweredInTime => {
                MissingEvidence::NoAdmission
            }
            CheckedProperty::ResetAccurate => MissingEvidence::NoReset,
        })
    } else {
        PropertyVerdict::Held
    }
}
