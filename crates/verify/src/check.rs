//! The properties of a history.

use serde::Serialize;

use crate::bound::{CounterBound, CounterModel};
use crate::charge::{TimedCharge, charges_of};
use crate::counted::{PossibleCharge, SortedCharges};
use crate::denials::unexplained;
use crate::history::{ObservedAnswer, ObservedCall};

const SECOND: u64 = 1_000_000;

/// A property of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckedProperty {
    /// Admitted hits never exceed the limit.
    NeverOver,
    /// No denial while the limit could not have been reached.
    NoUnjustifiedDenial,
    /// The remaining hits are the limit less those that count.
    RemainingAccurate,
    /// The time until the reset is one that the window can have.
    ResetAccurate,
    /// Every call is answered by its deadline.
    AnsweredInTime,
}

impl CheckedProperty {
    /// All properties, in the order of the report.
    pub const ALL: [Self; 5] = [
        Self::NeverOver,
        Self::NoUnjustifiedDenial,
        Self::RemainingAccurate,
        Self::ResetAccurate,
        Self::AnsweredInTime,
    ];

    /// Returns the property as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::NeverOver => "admitted hits never exceed the limit",
            Self::NoUnjustifiedDenial => "no unjustified denial",
            Self::RemainingAccurate => "remaining hits are accurate",
            Self::ResetAccurate => "reset times are accurate",
            Self::AnsweredInTime => "every call is answered by its deadline",
        }
    }

    /// Returns the name of the items that it is checked on, in the singular.
    pub fn item(self) -> &'static str {
        match self {
            Self::NeverOver => "counter",
            Self::NoUnjustifiedDenial => "denial",
            Self::RemainingAccurate => "admitted call",
            Self::ResetAccurate => "answer",
            Self::AnsweredInTime => "call",
        }
    }
}

/// A contradiction between a property and a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contradiction {
    /// Reason in words.
    pub reason: String,
    /// The calls that contradict it, oldest first.
    pub calls: Vec<ObservedCall>,
}

/// The result of checking one property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PropertyResult {
    /// The property.
    pub property: CheckedProperty,
    /// `false` if no counter allows it to be checked.
    pub is_checked: bool,
    /// Items that could have contradicted it. For [`CheckedProperty::NeverOver`], counters that
    /// reached their limit.
    pub examined: u64,
    /// Items that contradict it.
    pub contradictions: u64,
    /// The contradiction with the fewest calls.
    pub example: Option<Contradiction>,
}

/// A check of counters, one after another.
#[derive(Clone, Debug)]
pub struct Checker {
    /// Difference between the clocks of the client, the replicas and the store that is allowed for,
    /// in microseconds.
    skew: u64,
    results: [PropertyResult; 5],
}

impl Checker {
    /// Creates a checker that has examined nothing.
    pub(crate) fn new(skew: u64) -> Self {
        let results = CheckedProperty::ALL.map(|property| PropertyResult {
            property,
            is_checked: false,
            examined: 0,
            contradictions: 0,
            example: None,
        });
        Self { skew, results }
    }

    /// Returns the results, in the order of [`CheckedProperty::ALL`].
    pub fn results(&self) -> &[PropertyResult] {
        &self.results
    }

    /// Checks the history of one counter.
    pub(crate) fn examine(&mut self, model: &CounterModel, calls: &[ObservedCall]) {
        let charges = charges_of(model, calls, self.skew);
        self.never_over(model, calls, &charges);
        if !model.is_leased {
            self.no_unjustified_denial(model, calls, &charges);
        }
        // The status of several windows is that of one of them, and does not say of which.
        if let [bound] = &model.bounds[..]
            && !model.is_behind_gateway
        {
            if !model.is_leased {
                self.remaining_accurate(bound, model, calls, &charges);
            }
            self.reset_accurate(bound, calls, &charges);
        }
        self.answered_in_time(calls);
    }

    fn never_over(
        &mut self,
        model: &CounterModel,
        calls: &[ObservedCall],
        charges: &[TimedCharge<'_>],
    ) {
        let all = model.bounds.iter().filter_map(|bound| bound.excess(charges, self.skew));
        let excess = all.min_by_key(|excess| excess.calls().len());
        let is_reached = calls.iter().any(ObservedCall::is_admitted)
            && calls.iter().any(ObservedCall::is_denied);
        self.count(CheckedProperty::NeverOver, usize::from(is_reached || excess.is_some()));
        let Some(excess) = excess else { return };
        let hits = excess.hits();
        let reason = format!("{hits} hits admitted, at most {} allowed", excess.allowed);
        self.contradicted(CheckedProperty::NeverOver, excess.calls(), reason);
    }

    fn no_unjustified_denial(
        &mut self,
        model: &CounterModel,
        calls: &[ObservedCall],
        charges: &[TimedCharge<'_>],
    ) {
        let property = CheckedProperty::NoUnjustifiedDenial;
        self.count(property, calls.iter().filter(|call| call.is_denied()).count());
        for (call, reason) in unexplained(model, calls, charges, self.skew) {
            self.contradicted(property, vec![call], reason);
        }
    }

    fn remaining_accurate(
        &mut self,
        bound: &CounterBound,
        model: &CounterModel,
        calls: &[ObservedCall],
        charges: &[TimedCharge<'_>],
    ) {
        let property = CheckedProperty::RemainingAccurate;
        // An answer without remaining hits was perhaps given without the store.
        let certain = charges.iter().filter(|charge| charge.call.remaining().is_some());
        let possible =
            charges.iter().filter(|charge| model.charges_denied || !charge.call.is_denied());
        let possible = possible.copied().map(PossibleCharge::anywhere);
        let sorted = SortedCharges::new(certain.copied(), possible);
        self.count(property, 0);
        for call in calls {
            let Some(remaining) = call.remaining() else { continue };
            self.count(property, 1);
            let own = charges.iter().find(|charge| std::ptr::eq(charge.call, call));
            let (own_least, own_most) = own.map(TimedCharge::charged).unwrap_or_default();
            let most_used = bound.most_used(0, call, &sorted, self.skew);
            let least = remaining_after(bound, most_used, own_most);
            if remaining < least {
                let reason = format!("{remaining} remaining, at least {least} expected");
                self.contradicted(property, vec![call], reason);
            }
            let before = sorted.before(call);
            let most_remaining = |before: &[TimedCharge<'_>]| {
                remaining_after(bound, bound.least_used(call, before, self.skew), own_least)
            };
            if remaining > most_remaining(&before) {
                // The latest calls that suffice.
                let froms: Vec<usize> = (0..=before.len()).collect();
                let enough = froms.partition_point(|from| {
                    remaining > most_remaining(before.get(*from..).unwrap_or_default())
                });
                let from = enough.saturating_sub(1);
                let latest = before.get(from..).unwrap_or_default();
                let most = most_remaining(latest);
                let shown = latest.iter().flat_map(|charge| charge.evidence(call.end));
                let mut members: Vec<_> =
                    shown.filter(|other| !std::ptr::eq(*other, call)).collect();
                members.push(call);
                let reason = format!("{remaining} remaining, at most {most} expected");
                self.contradicted(property, members, reason);
            }
        }
    }

    fn reset_accurate(
        &mut self,
        bound: &CounterBound,
        calls: &[ObservedCall],
        charges: &[TimedCharge<'_>],
    ) {
        let property = CheckedProperty::ResetAccurate;
        self.count(property, 0);
        let overruns = charges.iter().filter(|charge| !charge.call.action.is_charge());
        let overruns = overruns.map(|charge| charge.charged().1).sum();
        for call in calls {
            let Some(reset) = call.reset() else { continue };
            self.count(property, 1);
            let (least, most) = resets(bound, call, overruns, self.skew);
            if reset < least || reset > most {
                let reason = format!("resets in {reset} s, expected {least} to {most} s");
                self.contradicted(property, vec![call], reason);
            }
        }
    }

    fn answered_in_time(&mut self, calls: &[ObservedCall]) {
        let property = CheckedProperty::AnsweredInTime;
        self.count(property, calls.len());
        for call in calls.iter().filter(|call| call.answer == ObservedAnswer::Late) {
            let waited = call.end.saturating_sub(call.begin) / 1000;
            let reason = format!("no answer in {waited} ms");
            self.contradicted(property, vec![call], reason);
        }
    }

    fn count(&mut self, property: CheckedProperty, items: usize) {
        let items = u64::try_from(items).unwrap_or_default();
        if let Some(result) = self.results.iter_mut().find(|result| result.property == property) {
            result.is_checked = true;
            result.examined += items;
        }
    }

    fn contradicted(
        &mut self,
        property: CheckedProperty,
        mut calls: Vec<&ObservedCall>,
        reason: String,
    ) {
        if let Some(result) = self.results.iter_mut().find(|result| result.property == property) {
            result.contradictions += 1;
            let known = result.example.as_ref().map(|example| example.calls.len());
            if known.is_none_or(|known| calls.len() < known) {
                calls.sort_by_key(|call| (call.begin, call.end));
                let calls = calls.iter().map(|call| (*call).clone()).collect();
                result.example = Some(Contradiction { reason, calls });
            }
        }
    }
}

/// Returns the hits that remain after a call that charged some, if so many counted before.
fn remaining_after(bound: &CounterBound, used: u64, charged: u64) -> u64 {
    bound.at_once().saturating_sub(used).saturating_sub(charged)
}

/// Returns the least and the most seconds until a reset, with one second for rounding, if so many
/// hits went beyond the limit at most.
fn resets(bound: &CounterBound, call: &ObservedCall, overruns: u64, skew: u64) -> (u64, u64) {
    match bound {
        CounterBound::Aligned { windows, .. } => {
            let of_call = windows.of_call(call, skew);
            if of_call.start() != of_call.end() {
                return (0, windows.longest(of_call).div_ceil(SECOND));
            }
            let end = windows.end(*of_call.start());
            let least = end.saturating_sub(call.end + skew) / SECOND;
            let most = end.saturating_sub(call.begin.saturating_sub(skew)).div_ceil(SECOND);
            (least.saturating_sub(1), most + 1)
        }
        CounterBound::Rolling { period, grain, .. } => {
            (0, period.saturating_add(*grain).div_ceil(SECOND))
        }
        CounterBound::Draining { burst, limit, period } => {
            let hits = burst.saturating_add(overruns);
            let full = hits.saturating_mul(*period).checked_div(*limit).unwrap_or(u64::MAX);
            (0, full.div_ceil(SECOND) + 1)
        }
        CounterBound::InFlight { ttl, .. } => (0, ttl.saturating_add(skew).div_ceil(SECOND)),
    }
}
