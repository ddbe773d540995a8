//! The properties of a history.

use serde::Serialize;

use super::bound::{CounterBound, CounterModel, windows_of};
use super::history::{ObservedAnswer, ObservedCall};

const SECOND: u64 = 1_000_000;

/// A property of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckedProperty {
    /// Admitted hits never exceed the limit.
    NeverOver,
    /// No denial while the limit could not have been reached.
    DeniedWithCause,
    /// The remaining hits are at most the limit less what was charged before.
    RemainingTrue,
    /// The time until the reset is one that the window can have.
    ResetTrue,
    /// Every call is answered by its deadline.
    AnsweredInTime,
}

impl CheckedProperty {
    /// All properties, in the order of the report.
    pub const ALL: [Self; 5] = [
        Self::NeverOver,
        Self::DeniedWithCause,
        Self::RemainingTrue,
        Self::ResetTrue,
        Self::AnsweredInTime,
    ];

    /// Returns the property as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::NeverOver => "admitted hits never exceed the limit",
            Self::DeniedWithCause => "no denial without cause",
            Self::RemainingTrue => "remaining hits are true",
            Self::ResetTrue => "times until the reset are true",
            Self::AnsweredInTime => "every call is answered by its deadline",
        }
    }
}

/// A contradiction between a property and a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contradiction {
    /// The property.
    pub property: CheckedProperty,
    /// Reason in words.
    pub reason: String,
    /// The calls that contradict it, oldest first.
    pub calls: Vec<ObservedCall>,
}

/// Returns the contradictions in the history of one counter. `skew` is the difference between the
/// clocks of client and service that is allowed for, in microseconds.
pub fn check(model: &CounterModel, calls: &[ObservedCall], skew: u64) -> Vec<Contradiction> {
    let mut found = Vec::new();
    never_over(model, calls, skew, &mut found);
    if !model.is_leased {
        denied_with_cause(model, calls, skew, &mut found);
        if let [bound] = model.bounds[..] {
            remaining_true(&bound, calls, skew, &mut found);
        }
    }
    if let [bound] = model.bounds[..] {
        reset_true(&bound, calls, skew, &mut found);
    }
    for call in calls.iter().filter(|call| call.answer == ObservedAnswer::Late) {
        let waited = call.end.saturating_sub(call.begin) / 1000;
        found.push(Contradiction {
            property: CheckedProperty::AnsweredInTime,
            reason: format!("no answer in {waited} ms"),
            calls: vec![call.clone()],
        });
    }
    found
}

fn never_over(
    model: &CounterModel,
    calls: &[ObservedCall],
    skew: u64,
    found: &mut Vec<Contradiction>,
) {
    let all = model.bounds.iter().filter_map(|bound| bound.excess(calls, skew));
    if let Some(excess) = all.min_by_key(|excess| excess.calls.len()) {
        let calls: Vec<_> =
            excess.calls.iter().filter_map(|index| calls.get(*index)).cloned().collect();
        let hits: u64 = calls.iter().map(|call| call.hits).sum();
        let allowed = excess.allowed;
        found.push(Contradiction {
            property: CheckedProperty::NeverOver,
            reason: format!("{hits} hits admitted, at most {allowed} allowed"),
            calls,
        });
    }
}

/// Finds denials that no order of the calls explains. A denied call may have charged its hits, but
/// the first one to be denied needs hits that were not denied: hence the least fixed point.
fn denied_with_cause(
    model: &CounterModel,
    calls: &[ObservedCall],
    skew: u64,
    found: &mut Vec<Contradiction>,
) {
    let mut charged: Vec<&ObservedCall> =
        calls.iter().filter(|call| call.is_admitted() || call.is_unknown()).collect();
    let mut open: Vec<&ObservedCall> = calls.iter().filter(|call| call.is_denied()).collect();
    loop {
        let is_explained = |call: &&ObservedCall| {
            model.bounds.iter().any(|bound| bound.can_deny(call, &charged, skew))
        };
        let (explained, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(is_explained);
        open = rest;
        if explained.is_empty() {
            break;
        }
        if model.charges_denied {
            charged.extend(explained);
        }
    }
    found.extend(open.into_iter().map(|call| Contradiction {
        property: CheckedProperty::DeniedWithCause,
        reason: format!("{} hits denied, though the limit cannot have been reached", call.hits),
        calls: vec![call.clone()],
    }));
}

fn remaining_true(
    bound: &CounterBound,
    calls: &[ObservedCall],
    skew: u64,
    found: &mut Vec<Contradiction>,
) {
    for call in calls {
        let ObservedAnswer::Admitted { remaining, .. } = call.answer else { continue };
        let counts = |before: &&ObservedCall| match *bound {
            CounterBound::Aligned { period, .. } => {
                let (first, last) = windows_of(call, period, skew);
                first == last && windows_of(before, period, skew) == (first, last)
            }
            CounterBound::Rolling { period, .. } => {
                before.begin.saturating_add(period) > call.end.saturating_add(skew)
            }
            CounterBound::Draining { .. } => false,
        };
        let before: Vec<&ObservedCall> = calls
            .iter()
            .filter(|other| other.is_admitted() && other.end < call.begin)
            .filter(counts)
            .collect();
        let charged = before.iter().map(|before| before.hits).fold(call.hits, u64::saturating_add);
        let most = bound.at_once().saturating_sub(charged);
        if remaining > most {
            found.push(Contradiction {
                property: CheckedProperty::RemainingTrue,
                reason: format!("{remaining} hits remaining, at most {most} can be"),
                calls: before.into_iter().chain([call]).cloned().collect(),
            });
        }
    }
}

fn reset_true(
    bound: &CounterBound,
    calls: &[ObservedCall],
    skew: u64,
    found: &mut Vec<Contradiction>,
) {
    for call in calls {
        let (ObservedAnswer::Admitted { reset: Some(reset), .. }
        | ObservedAnswer::Denied { reset: Some(reset), .. }) = call.answer
        else {
            continue;
        };
        let (least, most) = resets(bound, call, skew);
        if reset < least || reset > most {
            found.push(Contradiction {
                property: CheckedProperty::ResetTrue,
                reason: format!("resets in {reset} s, expected {least} to {most} s"),
                calls: vec![call.clone()],
            });
        }
    }
}

/// Returns the least and the most seconds until a reset, with one second for rounding.
fn resets(bound: &CounterBound, call: &ObservedCall, skew: u64) -> (u64, u64) {
    match *bound {
        CounterBound::Aligned { period, .. } => {
            let (first, last) = windows_of(call, period, skew);
            if first != last {
                return (0, period.div_ceil(SECOND));
            }
            let end = first.saturating_add(1).saturating_mul(period);
            let least = end.saturating_sub(call.end.saturating_add(skew)) / SECOND;
            let most = end.saturating_sub(call.begin.saturating_sub(skew)).div_ceil(SECOND);
            (least.saturating_sub(1), most.saturating_add(1))
        }
        CounterBound::Rolling { period, grain, .. } => {
            (0, period.saturating_add(grain).div_ceil(SECOND))
        }
        CounterBound::Draining { burst, limit, period } => {
            let full = burst.saturating_mul(period).checked_div(limit).unwrap_or(u64::MAX);
            (0, full.div_ceil(SECOND).saturating_add(1))
        }
    }
}
