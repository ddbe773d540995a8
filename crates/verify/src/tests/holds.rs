//! Histories with holds: what certainly and possibly counts before and after a hold ends.

use super::{SECOND, admitted, aligned, call, check, denied, model, violated};
use crate::bound::{CounterBound, CounterModel, HoldModel};
use crate::check::CheckedProperty;
use crate::history::{CallAction, HoldEnd, ObservedAnswer, ObservedCall};

const TTL: u64 = 10 * SECOND;

/// Returns the model of a limit with holds that a settle leaves charged.
fn with_holds(bound: CounterBound) -> CounterModel {
    CounterModel { hold: Some(HoldModel { ttl: TTL, settle_keeps: true }), ..model(&bound) }
}

fn hourly(limit: u64) -> CounterModel {
    with_holds(aligned(limit, 3600 * SECOND))
}

fn in_flight(limit: u64) -> CounterModel {
    with_holds(CounterBound::InFlight { limit, ttl: TTL })
}

fn models(limit: u64) -> [CounterModel; 4] {
    let period = 3600 * SECOND;
    [
        hourly(limit),
        with_holds(CounterBound::Rolling { limit, period, grain: 0 }),
        with_holds(CounterBound::Draining { burst: limit, limit: 1, period }),
        in_flight(limit),
    ]
}

fn reserve(hold: usize, begin: u64, hits: u64) -> ObservedCall {
    let answer = ObservedAnswer::Admitted { remaining: None, reset: None };
    let action = CallAction::Reserve { hold };
    ObservedCall { action, ..call(begin, begin + 10, hits, answer) }
}

fn reserved(hold: usize, begin: u64, hits: u64, remaining: u64) -> ObservedCall {
    let answer = ObservedAnswer::Admitted { remaining: Some(remaining), reset: None };
    ObservedCall { answer, ..reserve(hold, begin, hits) }
}

fn end(hold: usize, by: HoldEnd, begin: u64, hits: u64, remaining: u64) -> ObservedCall {
    let action = CallAction::End { hold, by };
    let answer = ObservedAnswer::Ended { remaining: Some(remaining), reset: None };
    ObservedCall { action, ..call(begin, begin + 10, hits, answer) }
}

fn extend(hold: usize, begin: u64, remaining: u64) -> ObservedCall {
    let answer = ObservedAnswer::Kept { remaining: Some(remaining), reset: None };
    ObservedCall { action: CallAction::Extend { hold }, ..call(begin, begin + 10, 1, answer) }
}

fn repeat(hold: usize, begin: u64, hits: u64, remaining: u64) -> ObservedCall {
    ObservedCall { action: CallAction::Repeat { hold }, hits, ..extend(hold, begin, remaining) }
}

fn end_again(hold: usize, begin: u64, hits: u64, remaining: u64) -> ObservedCall {
    let action = CallAction::EndAgain { hold, by: HoldEnd::Commit };
    ObservedCall { action, ..end(hold, HoldEnd::Commit, begin, hits, remaining) }
}

fn found(model: &CounterModel, calls: &[ObservedCall]) -> Vec<CheckedProperty> {
    check(model, calls, 0).into_iter().map(|found| found.property).collect()
}

#[test]
fn hits_that_are_held_at_the_same_time_exceed_the_limit() {
    for model in models(10) {
        let cancel = end(1, HoldEnd::Cancel, 40, 0, 10);
        let sound = [reserve(1, 20, 6), cancel.clone(), reserve(2, 60, 6)];
        assert_eq!(found(&model, &sound), [], "{model:?}");
        let together = [reserve(1, 20, 6), reserve(2, 35, 6), ObservedCall { ..cancel }];
        // The cancel began before the second reserve ended: it may have come first.
        assert!(!found(&model, &together).contains(&CheckedProperty::NeverOver), "{model:?}");
        let apart = [reserve(1, 20, 6), reserve(2, 25, 6), end(1, HoldEnd::Cancel, 40, 0, 4)];
        assert_eq!(found(&model, &apart), [CheckedProperty::NeverOver], "{model:?}");
        let example = check(&model, &apart, 0).remove(0).example.unwrap();
        assert_eq!(example.calls, apart[..2], "{model:?}");
    }
}

#[test]
fn a_committed_cost_counts_and_the_rest_returns() {
    for model in models(10).into_iter().take(3) {
        let commit = end(1, HoldEnd::Commit, 40, 5, 5);
        let sound = [reserved(1, 20, 9, 1), commit.clone(), reserved(2, 60, 5, 0)];
        assert_eq!(found(&model, &sound), [], "{model:?}");
        let excess = [reserve(1, 20, 9), commit.clone(), reserve(2, 60, 6)];
        assert_eq!(found(&model, &excess), [CheckedProperty::NeverOver], "{model:?}");
        let example = check(&model, &excess, 0).remove(0).example.unwrap();
        assert_eq!(example.calls, excess, "the commit belongs to the example: {model:?}");
        // A commit that charges its cost once more.
        let twice = [reserved(1, 20, 9, 1), ObservedCall { hits: 1, ..commit }];
        assert_eq!(found(&model, &twice), [CheckedProperty::RemainingAccurate], "{model:?}");
        let denial = ObservedCall { hits: 5, ..denied(60) };
        let twice = [&sound[..2], &[denial]].concat();
        assert_eq!(found(&model, &twice), [CheckedProperty::NoUnjustifiedDenial], "{model:?}");
    }
}

#[test]
fn a_cost_above_the_reserved_hits_is_charged_by_the_commit() {
    let period = 3600 * SECOND;
    for model in [hourly(10), with_holds(CounterBound::Rolling { limit: 10, period, grain: 9 })] {
        let reserve = reserved(1, 20, 4, 6);
        let commit = end(1, HoldEnd::Commit, 40, 9, 1);
        let sound = [reserve.clone(), commit.clone(), reserved(2, 60, 1, 0)];
        assert_eq!(found(&model, &sound), [], "{model:?}");
        let beyond = [reserve.clone(), end(1, HoldEnd::Commit, 40, 20, 0), denied(60)];
        assert_eq!(found(&model, &beyond), [], "{model:?}");
        let denial = ObservedCall { hits: 2, ..denied(60) };
        assert_eq!(found(&model, &[&sound[..2], &[denial]].concat()), [], "{model:?}");
        // What goes beyond the hold is forgiven.
        let forgiven = [reserve, end(1, HoldEnd::Commit, 40, 9, 6)];
        assert_eq!(found(&model, &forgiven), [CheckedProperty::RemainingAccurate], "{model:?}");
        let late = [&sound[..2], &[reserved(2, 60, 1, 5)]].concat();
        assert_eq!(found(&model, &late), [CheckedProperty::RemainingAccurate], "{model:?}");
    }
    // Debt may be forgiven, and delays the reset.
    let draining = with_holds(CounterBound::Draining { burst: 10, limit: 1, period: SECOND });
    let commit = end(1, HoldEnd::Commit, 40, 20, 0);
    let answer = ObservedAnswer::Ended { remaining: Some(0), reset: Some(19) };
    let owed = [reserved(1, 20, 4, 6), ObservedCall { answer, ..commit }];
    assert_eq!(found(&draining, &owed), []);
}

#[test]
fn a_settle_leaves_hits_charged_or_returns_them() {
    let keeps = hourly(10);
    let returns =
        CounterModel { hold: Some(HoldModel { ttl: TTL, settle_keeps: false }), ..keeps.clone() };
    let settled = |remaining| [reserved(1, 20, 4, 6), end(1, HoldEnd::Settle, 40, 0, remaining)];
    assert_eq!(found(&keeps, &settled(6)), []);
    assert_eq!(found(&keeps, &settled(10)), [CheckedProperty::RemainingAccurate]);
    assert_eq!(found(&returns, &settled(10)), []);
    assert_eq!(found(&returns, &settled(6)), [CheckedProperty::RemainingAccurate]);
    // A permit ends with its work, however that ended.
    assert_eq!(found(&in_flight(10), &settled(10)), []);
}

#[test]
fn an_end_without_an_answer_may_or_may_not_return_hits() {
    for model in models(10) {
        let error = String::new();
        let answer = ObservedAnswer::Failed { error };
        let lost = ObservedCall { answer, ..end(1, HoldEnd::Cancel, 40, 0, 0) };
        let both = [reserved(1, 20, 6, 4), lost.clone(), reserved(2, 60, 6, 4)];
        assert_eq!(found(&model, &both), [], "{model:?}");
        let neither = [reserved(1, 20, 6, 4), lost, ObservedCall { hits: 6, ..denied(60) }];
        assert_eq!(found(&model, &neither), [], "{model:?}");
    }
}

#[test]
fn a_permit_ends_by_its_ttl_and_not_earlier() {
    let model = in_flight(2);
    let after = TTL + 100;
    assert_eq!(found(&model, &[reserve(1, 20, 2), reserve(2, after, 2)]), []);
    assert_eq!(
        found(&model, &[reserve(1, 20, 2), reserve(2, TTL - 100, 2)]),
        [CheckedProperty::NeverOver]
    );
    let kept = [reserve(1, 20, 2), denied(after)];
    assert_eq!(found(&model, &kept), [CheckedProperty::NoUnjustifiedDenial]);
    assert_eq!(found(&model, &[reserve(1, 20, 2), denied(TTL - 100)]), []);
    // A plain charge is a permit as well.
    let charge = ObservedCall { action: CallAction::Charge, ..reserve(1, 20, 2) };
    assert_eq!(found(&model, &[charge, denied(after)]), [CheckedProperty::NoUnjustifiedDenial]);
}

#[test]
fn the_ttl_of_an_extended_permit_begins_anew() {
    let model = in_flight(2);
    let half = TTL / 2;
    let extended = [reserve(1, 20, 2), extend(1, half, 0)];
    let with = |calls: &[ObservedCall]| found(&model, &[&extended, calls].concat());
    assert_eq!(with(&[]), []);
    assert_eq!(with(&[denied(TTL + half - 100)]), []);
    assert_eq!(with(&[denied(TTL + half + 100)]), [CheckedProperty::NoUnjustifiedDenial]);
    assert_eq!(with(&[reserve(2, TTL + half + 100, 2)]), []);
    assert_eq!(with(&[reserve(2, TTL + 100, 1)]), [CheckedProperty::NeverOver]);
    // An extension returns nothing.
    let remaining = [reserved(1, 20, 2, 0), extend(1, half, 1)];
    assert_eq!(found(&model, &remaining), [CheckedProperty::RemainingAccurate]);
    let ends = [end(1, HoldEnd::Settle, TTL + 100, 0, 2), reserve(2, TTL + 200, 2)];
    assert_eq!(with(&ends), []);
}

#[test]
fn an_extension_that_may_have_failed_explains_answers_of_both() {
    let model = in_flight(2);
    let error = String::new();
    let lost = ObservedCall { answer: ObservedAnswer::Failed { error }, ..extend(1, TTL / 2, 0) };
    // That of a hold that may have ended at this counter, and has not at another.
    let mut late = extend(1, TTL - 500, 0);
    late.end += 1000;
    for extension in [lost, late] {
        let both = [reserve(1, 20, 2), extension];
        let with = |call: ObservedCall| found(&model, &[&both[..], &[call]].concat());
        assert_eq!(with(reserve(2, TTL + 1000, 2)), [], "{both:?}");
        assert_eq!(with(denied(TTL + 1000)), [], "{both:?}");
    }
}

#[test]
fn a_repeated_reserve_charges_nothing() {
    for model in models(10) {
        let sound = [reserved(1, 20, 4, 6), repeat(1, 40, 4, 6), reserved(2, 60, 6, 0)];
        assert_eq!(found(&model, &sound), [], "{model:?}");
        let charged = [reserved(1, 20, 4, 6), repeat(1, 40, 4, 2)];
        assert_eq!(found(&model, &charged), [CheckedProperty::RemainingAccurate], "{model:?}");
        let denial = ObservedCall { hits: 6, ..denied(60) };
        let denied = [&sound[..2], &[denial]].concat();
        assert_eq!(found(&model, &denied), [CheckedProperty::NoUnjustifiedDenial], "{model:?}");
    }
    // A repeated reserve need not begin the TTL of a permit anew.
    let model = in_flight(2);
    let both = [reserved(1, 20, 2, 0), repeat(1, TTL / 2, 2, 0)];
    for after in [reserve(2, TTL + 100, 2), denied(TTL + 100)] {
        assert_eq!(found(&model, &[&both[..], &[after]].concat()), []);
    }
}

#[test]
fn an_end_of_a_hold_that_has_ended_changes_nothing() {
    for model in models(10) {
        for by in [HoldEnd::Commit, HoldEnd::Cancel] {
            let first = [reserved(1, 20, 4, 6), end(1, by, 40, 0, 10)];
            let again = |remaining| [&first[..], &[end_again(1, 60, 3, remaining)]].concat();
            assert_eq!(found(&model, &again(10)), [], "{model:?}");
            let remaining = [CheckedProperty::RemainingAccurate];
            assert_eq!(found(&model, &again(7)), remaining, "{model:?}");
            let then = |call: ObservedCall| [&again(10)[..], &[call]].concat();
            assert_eq!(found(&model, &then(reserved(2, 80, 10, 0))), [], "{model:?}");
            let denied = found(&model, &then(ObservedCall { hits: 10, ..denied(80) }));
            assert_eq!(denied, [CheckedProperty::NoUnjustifiedDenial], "{model:?}");
        }
    }
}

#[test]
fn a_commit_of_an_extended_hold_is_not_charged_in_addition() {
    let model = hourly(10);
    let commit = end(1, HoldEnd::Commit, TTL + 100, 3, 7);
    let extended = [reserved(1, 20, 4, 6), extend(1, TTL / 2, 6), commit.clone()];
    assert_eq!(found(&model, &extended), []);
    let denial = ObservedCall { hits: 6, ..denied(TTL + 200) };
    let unextended = [reserved(1, 20, 4, 6), commit, denial.clone()];
    assert_eq!(found(&model, &unextended), []);
    let denied = [&extended[..], &[denial]].concat();
    assert_eq!(found(&model, &denied), [CheckedProperty::NoUnjustifiedDenial]);
}

#[test]
fn a_commit_after_the_ttl_may_be_charged_in_addition() {
    let model = hourly(10);
    let late = end(1, HoldEnd::Commit, TTL + 100, 3, 3);
    assert_eq!(
        found(&model, &[reserved(1, 20, 4, 6), late.clone(), denied(TTL + 200)]),
        [CheckedProperty::NoUnjustifiedDenial]
    );
    assert_eq!(found(&model, &[reserved(1, 20, 4, 6), late]), []);
}

#[test]
fn a_request_about_an_open_hold_is_never_denied() {
    for model in models(10) {
        for change in [end(1, HoldEnd::Commit, 40, 1, 0), extend(1, 40, 0), repeat(1, 40, 10, 0)] {
            let answer = ObservedAnswer::Denied { remaining: Some(0), reset: None };
            let calls = [reserved(1, 20, 10, 0), ObservedCall { answer, ..change }];
            assert_eq!(found(&model, &calls), [CheckedProperty::NoUnjustifiedDenial], "{model:?}");
        }
    }
}

#[test]
fn a_denial_by_another_limit_charges_nothing_for_long() {
    let [aligned, rolling, draining] = [
        aligned(2, 3600 * SECOND),
        CounterBound::Rolling { limit: 2, period: 3600 * SECOND, grain: 0 },
        CounterBound::Draining { burst: 2, limit: 1, period: 3600 * SECOND },
    ];
    let other = ObservedCall {
        answer: ObservedAnswer::DeniedByOther,
        ..call(20, 30, 2, ObservedAnswer::Late)
    };
    for bound in [aligned, rolling, draining] {
        // It may be taken back after the answer, if counters are in different places.
        assert_eq!(violated(&bound, &[other.clone(), denied(60)]), []);
        let after = 4 * SECOND;
        let charged = [other.clone(), denied(after)];
        assert_eq!(violated(&bound, &charged), [CheckedProperty::NoUnjustifiedDenial]);
        let charged = [other.clone(), admitted(after, 0)];
        assert_eq!(violated(&bound, &charged), [CheckedProperty::RemainingAccurate]);
        let always = CounterModel { charges_denied: true, ..model(&bound) };
        assert_eq!(found(&always, &[other.clone(), denied(after)]), []);
    }
}
