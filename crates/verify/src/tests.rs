#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

mod faults;
mod holds;
mod services;
mod simulation;

use crate::bound::{CounterBound, CounterModel};
use crate::check::{CheckedProperty, Checker, PropertyResult};
use crate::history::{CallAction, ObservedAnswer, ObservedCall};
use crate::verdict::{MissingEvidence, PropertyVerdict, RunConditions, verdict};
use crate::windows::AlignedWindows;

const SECOND: u64 = 1_000_000;
const START: u64 = 1_000_000 * SECOND;

fn call(begin: u64, end: u64, hits: u64, answer: ObservedAnswer) -> ObservedCall {
    let begin = START + begin;
    let end = START + end;
    let action = CallAction::Charge;
    ObservedCall { counter: 0, request: 0, target: 0, action, hits, begin, end, answer }
}

fn admitted(begin: u64, remaining: u64) -> ObservedCall {
    call(begin, begin + 10, 1, ObservedAnswer::Admitted { remaining: Some(remaining), reset: None })
}

fn denied(begin: u64) -> ObservedCall {
    call(begin, begin + 10, 1, ObservedAnswer::Denied { remaining: Some(0), reset: None })
}

fn model(bound: &CounterBound) -> CounterModel {
    CounterModel {
        bounds: vec![bound.clone()],
        charges_denied: false,
        is_leased: false,
        hold: None,
        is_behind_gateway: false,
    }
}

fn aligned(limit: u64, period: u64) -> CounterBound {
    CounterBound::Aligned { limit, period, windows: AlignedWindows::Every(period) }
}

fn bounds() -> [CounterBound; 3] {
    [
        aligned(2, 10 * SECOND),
        CounterBound::Rolling { limit: 2, period: 10 * SECOND, grain: 0 },
        CounterBound::Draining { burst: 2, limit: 2, period: 10 * SECOND },
    ]
}

/// Returns the results of the properties that a history contradicts.
fn check(model: &CounterModel, calls: &[ObservedCall], skew: u64) -> Vec<PropertyResult> {
    let mut checker = Checker::new(skew);
    checker.examine(model, calls);
    let results = checker.results().iter().filter(|result| result.contradictions > 0);
    results.cloned().collect()
}

fn violated(bound: &CounterBound, calls: &[ObservedCall]) -> Vec<CheckedProperty> {
    check(&model(bound), calls, 0).into_iter().map(|found| found.property).collect()
}

#[test]
fn an_answer_without_remaining_hits_may_not_have_been_charged() {
    let free = call(20, 30, 1, ObservedAnswer::Admitted { remaining: None, reset: None });
    for bound in bounds() {
        assert_eq!(violated(&bound, &[free.clone(), admitted(40, 1)]), []);
        assert_eq!(violated(&bound, &[free.clone(), admitted(40, 0)]), []);
    }
}

#[test]
fn a_call_on_a_boundary_may_belong_to_either_window() {
    let [aligned, ..] = bounds();
    let calls = [admitted(20, 1), admitted(40, 0)];
    let answer = ObservedAnswer::Admitted { remaining: Some(0), reset: None };
    let straddling = call(60, 10 * SECOND + 5, 1, answer);
    assert_eq!(violated(&aligned, &[&calls[..], &[straddling]].concat()), []);
}

#[test]
fn hits_admitted_without_a_limit_in_the_status_count() {
    for bound in bounds() {
        let answer = ObservedAnswer::Admitted { remaining: None, reset: None };
        let calls = [20, 40, 60].map(|begin| call(begin, begin + 10, 1, answer.clone()));
        assert_eq!(violated(&bound, &calls), [CheckedProperty::NeverOver]);
    }
}

#[test]
fn a_denial_without_cause_is_found() {
    for bound in bounds() {
        assert_eq!(violated(&bound, &[denied(20)]), [CheckedProperty::NoUnjustifiedDenial]);
        assert_eq!(violated(&bound, &[admitted(20, 1), admitted(40, 0), denied(60)]), []);
        let unknown = call(0, 10, 2, ObservedAnswer::Failed { error: String::new() });
        assert_eq!(violated(&bound, &[unknown, denied(60)]), []);
    }
}

#[test]
fn denials_do_not_explain_each_other() {
    let [aligned, ..] = bounds();
    let model = CounterModel { charges_denied: true, ..model(&aligned) };
    let found = check(&model, &[denied(20), denied(20), denied(20)], 0);
    assert_eq!(found[0].contradictions, 3);
}

#[test]
fn more_remaining_than_possible_is_found() {
    for bound in bounds() {
        assert_eq!(violated(&bound, &[admitted(20, 1), admitted(40, 0)]), []);
        let found = violated(&bound, &[admitted(20, 1), admitted(40, 1)]);
        assert_eq!(found, [CheckedProperty::RemainingAccurate]);
        assert_eq!(violated(&bound, &[admitted(20, 2)]), [CheckedProperty::RemainingAccurate]);
    }
}

#[test]
fn fewer_remaining_than_possible_is_found_and_an_unknown_call_explains_it() {
    for bound in bounds() {
        assert_eq!(violated(&bound, &[admitted(20, 0)]), [CheckedProperty::RemainingAccurate]);
        let late = call(0, 10, 1, ObservedAnswer::Late);
        assert_eq!(violated(&bound, &[late, admitted(20, 0)]), [CheckedProperty::AnsweredInTime]);
    }
}

#[test]
fn a_call_without_an_answer_may_be_charged_much_later() {
    for bound in bounds() {
        let lost = call(0, 10, 2, ObservedAnswer::Failed { error: String::new() });
        assert_eq!(violated(&bound, &[lost, denied(35 * SECOND)]), []);
    }
}

#[test]
fn a_reset_that_the_window_cannot_have_is_found() {
    for bound in bounds() {
        let at = |reset| {
            call(0, 10, 1, ObservedAnswer::Admitted { remaining: Some(1), reset: Some(reset) })
        };
        assert_eq!(violated(&bound, &[at(10)]), []);
        assert_eq!(violated(&bound, &[at(60)]), [CheckedProperty::ResetAccurate]);
    }
}

#[test]
fn a_property_is_only_held_if_something_could_have_contradicted_it() {
    let [aligned, ..] = bounds();
    let verdicts = |calls: &[ObservedCall], change: &dyn Fn(&mut RunConditions)| {
        let mut checker = Checker::new(0);
        checker.examine(&model(&aligned), calls);
        let mut run = RunConditions {
            calls: calls.len(),
            unknown: calls.iter().filter(|call| call.is_unknown()).count(),
            unreached: 0,
            skew: 0,
            clock_moved: 0,
            deadline: SECOND,
            paused: 0,
        };
        change(&mut run);
        let results = checker.results().iter();
        results.map(|result| verdict(result, &run)).collect::<Vec<_>>()
    };
    let [over, cause, remaining, reset, in_time] = verdicts(&[admitted(20, 1)], &|_| ())[..] else {
        panic!()
    };
    assert_eq!(over, PropertyVerdict::Inconclusive(MissingEvidence::NoDenial));
    assert_eq!(cause, PropertyVerdict::Inconclusive(MissingEvidence::NoDenial));
    assert_eq!(remaining, PropertyVerdict::Held);
    assert_eq!(reset, PropertyVerdict::Inconclusive(MissingEvidence::NoReset));
    assert_eq!(in_time, PropertyVerdict::Held);

    let full = [admitted(20, 1), admitted(40, 0), denied(60)];
    assert_eq!(verdicts(&full, &|_| ())[0], PropertyVerdict::Held);
    let other_not_reached = verdicts(&full, &|run| run.unreached = 1);
    assert_eq!(other_not_reached[0], PropertyVerdict::Inconclusive(MissingEvidence::NoDenial));
    assert_eq!(other_not_reached[2], PropertyVerdict::Held);
    let lost = || call(0, 10, 2, ObservedAnswer::Failed { error: String::new() });
    let mostly_lost = [&full[..], &[(); 4].map(|()| lost())].concat();
    let mostly_unknown = PropertyVerdict::Inconclusive(MissingEvidence::MostlyUnknown);
    assert_eq!(verdicts(&mostly_lost, &|_| ())[..3], [mostly_unknown; 3]);

    // Contradictions count whatever else is unknown, except those that the client itself causes.
    let too_many = [admitted(20, 1), admitted(40, 0), admitted(60, 0)];
    let too_many = [&too_many[..], &[(); 4].map(|()| lost())].concat();
    assert_eq!(verdicts(&too_many, &|_| ())[0], PropertyVerdict::Violated);
    let clock_moved = PropertyVerdict::Inconclusive(MissingEvidence::ClockMoved);
    assert_eq!(verdicts(&too_many, &|run| run.clock_moved = 1)[0], clock_moved);
    let late = [call(0, SECOND, 1, ObservedAnswer::Late)];
    assert_eq!(verdicts(&late, &|_| ())[4], PropertyVerdict::Violated);
    let paused = PropertyVerdict::Inconclusive(MissingEvidence::Paused);
    assert_eq!(verdicts(&late, &|run| run.paused = SECOND)[4], paused);
}
