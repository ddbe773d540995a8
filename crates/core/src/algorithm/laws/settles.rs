//! Cases of operations on holds of limits with windows.

use super::holds::{TTL, change, holding, in_windows, request, reserve};
use super::*;
use crate::algorithm::concurrency::{Concurrency, Permit};
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldList, HoldRequest, MAX_ID};
use crate::algorithm::judge::Outcome;

#[test]
fn a_cancel_takes_hits_back_and_a_settle_only_if_it_releases_them() {
    for (action, on_settle, left) in [
        (HoldAction::Settle, OnSettle::Charge, 425),
        (HoldAction::Settle, OnSettle::Release, 500),
        (HoldAction::Cancel, OnSettle::Charge, 500),
        (HoldAction::Cancel, OnSettle::Release, 500),
    ] {
        for limit in in_windows(on_settle) {
            let mut state = limit.unused();
            reserve(&limit, &mut state, b"a", 75, 0);
            assert_eq!(change(&limit, &mut state, b"a", action, 0), HoldEffect::Settled);
            let report = limit.report(&state, None, at(0)).unwrap();
            assert_eq!(report.remaining, left, "after {action:?} of {limit:?}");
        }
    }
}

#[test]
fn a_cost_without_a_hold_is_charged_once_within_its_ttl() {
    for limit in in_windows(OnSettle::Charge) {
        let mut state = limit.unused();
        let commit = HoldAction::Commit(20);
        let effects = [0, TTL - 1, TTL].map(|now| change(&limit, &mut state, b"a", commit, now));
        let unknown = HoldEffect::Unknown { cost: 20 };
        assert_eq!(effects, [unknown, HoldEffect::Nothing, unknown], "{limit:?}");
    }
}

#[test]
fn an_id_has_up_to_four_holds_which_are_looked_at_extended_and_listed_together() {
    for limit in in_windows(OnSettle::Charge) {
        let mut state = limit.unused();
        let effects = [1, 2, 3, 4, 5].map(|hits| reserve(&limit, &mut state, b"a", hits, 7));
        let repeated = Some(HoldEffect::Reserved { repeated: true });
        assert_eq!(effects[1..], [repeated, repeated, repeated, Some(HoldEffect::Unrecorded)]);
        let look = change(&limit, &mut state, b"a", HoldAction::Look, 7);
        assert_eq!(look, HoldEffect::Open { hits: 10 });
        let listed = |ends_at| {
            vec![Permit { id: b"a".as_slice().into(), hits: 10, taken_at: at(7), ends_at }]
        };
        assert_eq!(state.open_holds(at(TTL + 6)), listed(at(TTL + 7)));
        assert_eq!(state.open_holds(at(TTL + 7)), []);
        change(&limit, &mut state, b"a", HoldAction::Extend, 9);
        assert_eq!(state.open_holds(at(TTL + 8)), listed(at(TTL + 9)));
        let now = TTL + 9;
        let late = [HoldAction::Extend, HoldAction::Settle, HoldAction::Look]
            .map(|action| change(&limit, &mut state, b"a", action, now));
        assert_eq!(late, [HoldEffect::Nothing; 3]);
    }
}

#[test]
fn an_operation_on_a_hold_sets_the_instant_of_its_counter() {
    for limit in in_windows(OnSettle::Charge) {
        let mut state = limit.unused();
        reserve(&limit, &mut state, b"a", 75, 0);
        for (action, now) in [(HoldAction::Extend, 5), (HoldAction::Commit(75), 7)] {
            change(&limit, &mut state, b"a", action, now);
            assert_eq!(state.last(), at(now), "{action:?} of {limit:?}");
        }
    }
}

fn asked(limit: &Limit, state: &mut State, hold: HoldRequest<'_>, hits: u32) -> (bool, Outcome) {
    let question = Question { hold: Some(&hold), ..question(limit, Hits::Charge(hits)) };
    let mut counters = [state.clone()];
    let judged = judge(&[question], &mut counters, Prior::Open, at(0));
    let [after] = counters;
    *state = after;
    (judged.written[0], judged.outcomes[0].unwrap())
}

#[test]
fn a_reserve_that_is_denied_or_banned_is_not_written_whatever_the_charge_mode() {
    let request = request(b"a", HoldAction::Reserve);
    let [.., gcra] = in_windows(OnSettle::Charge);
    let ban = gcra.with_window(window(0, 60_000_000)).unwrap().charged(Charge::Always);
    for (limit, hits) in [(gcra, 501), (ban, 1)] {
        let mut state = limit.unused();
        let (written, outcome) = asked(&limit, &mut state, request, hits);
        assert_eq!((written, outcome.allowed, outcome.hold), (false, false, HoldEffect::Nothing));
        assert_eq!(state, limit.unused());
    }
}

#[test]
fn a_permit_that_is_sent_again_is_held_or_in_conflict_by_its_own_id() {
    let limit = holding(Algorithm::Concurrency(Concurrency::new(9).unwrap()), OnSettle::Charge);
    let mut state = limit.unused();
    for (id, hits, effect) in [
        (b"a", 3, HoldEffect::Reserved { repeated: false }),
        (b"b", 2, HoldEffect::Reserved { repeated: false }),
        (b"a", 3, HoldEffect::Held),
        (b"a", 2, HoldEffect::Conflict),
        (b"b", 2, HoldEffect::Held),
    ] {
        let (_, outcome) = asked(&limit, &mut state, request(id, HoldAction::ReserveOnce), hits);
        assert_eq!(outcome.hold, effect);
    }
}

#[test]
fn an_id_has_1_to_128_bytes() {
    let id = [0; MAX_ID + 1];
    let valid = [0, 1, 128, 129].map(|length| request(&id[..length], HoldAction::Look).is_valid());
    assert_eq!(valid, [false, true, true, false]);
}

#[test]
fn holds_are_listed_by_instant_and_id() {
    let hold =
        |id: &[u8], now| Permit { id: id.into(), hits: 1, taken_at: at(now), ends_at: at(9) };
    let holds = vec![hold(b"b", 2), hold(b"c", 1), hold(b"a", 2)];
    let list = HoldList::oldest_first(holds, 7);
    assert_eq!(list.holds, [hold(b"c", 1), hold(b"a", 2), hold(b"b", 2)]);
    assert_eq!(list.unread, 7);
}
