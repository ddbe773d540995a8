//! Cases of what is stored beside the state of a counter: grants, resets, tallies and holds.

use super::holds::{TTL, change, holding, request, reserve};
use super::*;
use crate::algorithm::Receipt;
use crate::algorithm::amend::Amendment;
use crate::algorithm::hold::{HoldAction, HoldEffect};

/// Period of the limits, which begins at [`START`].
const PERIOD: u64 = 1_000_000;

/// Returns a limit of 9 a second of each algorithm with windows.
fn of_9() -> [Algorithm; 4] {
    each(&window(9, PERIOD), 10)
}

fn plain() -> [Limit; 4] {
    of_9().map(|algorithm| limit(algorithm, Charge::Admitted))
}

fn grant(limit: &Limit, state: &mut State, hits: u32, now: u64) -> bool {
    let amendment = Amendment::Grant { hits, length: Micros::new(50) };
    limit.amend(state, amendment, at(now)).unwrap().1
}

#[test]
fn a_grant_of_no_hits_ends_one_and_is_nothing_by_itself() {
    for limit in plain() {
        let mut state = limit.unused();
        limit.charge(&mut state, 3, at(0)).unwrap();
        let before = state.clone();
        assert!(!grant(&limit, &mut state, 0, 1));
        assert_eq!(state, before);
        assert!(grant(&limit, &mut state, 5, 1));
        assert!(grant(&limit, &mut state, 0, 2));
        assert_eq!(state, before);
    }
}

#[test]
fn a_grant_that_is_used_up_is_not_shown_and_still_gets_hits_back() {
    for limit in plain() {
        let mut state = limit.unused();
        grant(&limit, &mut state, 5, 0);
        limit.charge(&mut state, 9, at(0)).unwrap();
        let receipt = limit.charge(&mut state, 5, at(0)).unwrap();
        let shown = |state: &State| {
            limit.amend(&mut state.clone(), Amendment::Look, at(1)).unwrap().0.after.grant
        };
        assert_eq!(shown(&state), None);
        assert!(limit.take_back(&mut state, receipt, at(1)).unwrap());
        assert_eq!(shown(&state).map(|grant| (grant.left, grant.until)), Some((5, at(50))));
    }
}

#[test]
fn a_grant_that_has_ended_is_gone_with_the_next_write() {
    let writes: [fn(&Limit, &mut State, Receipt); 3] = [
        |limit, state, _| assert!(limit.charge(state, 2, at(50)).is_ok()),
        |limit, state, _| assert!(limit.refund(state, 2, at(50)).unwrap()),
        |limit, state, receipt| assert!(limit.take_back(state, receipt, at(50)).unwrap()),
    ];
    for limit in plain() {
        for write in writes {
            let [granted, alone] = [true, false].map(|is_granted| {
                let mut state = limit.unused();
                let receipt = limit.charge(&mut state, 3, at(0)).unwrap();
                assert!(!is_granted || grant(&limit, &mut state, 5, 0));
                write(&limit, &mut state, receipt);
                state
            });
            assert_eq!(granted, alone);
        }
    }
}

#[test]
fn a_reset_is_remembered_while_a_charge_before_it_would_count() {
    for limit in plain() {
        let mut charged = limit.unused();
        limit.charge(&mut charged, 9, at(0)).unwrap();
        let until = limit.matters_until(&charged).unwrap();
        let reset = |now| {
            let mut state = charged.clone();
            assert!(limit.amend(&mut state, Amendment::Reset, now).unwrap().1);
            state
        };
        assert_eq!(limit.matters_until(&reset(at(7))).unwrap(), until, "{limit:?}");
        assert_eq!(reset(until), limit.unused());
        let mut state = reset(at(7));
        let mut fresh = limit.unused();
        for state in [&mut state, &mut fresh] {
            limit.charge(state, 2, until).unwrap();
        }
        assert_eq!(state, fresh);
        assert!(!limit.amend(&mut limit.unused(), Amendment::Reset, at(7)).unwrap().1);
    }
}

#[test]
fn a_counter_matters_until_its_grant_and_its_holds_have_ended() {
    for algorithm in of_9() {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut state = limit.unused();
        let amendment = Amendment::Grant { hits: 5, length: Micros::new(3 * TTL) };
        limit.amend(&mut state, amendment, at(0)).unwrap();
        assert_eq!(limit.matters_until(&state).unwrap(), at(3 * TTL));
        let mut state = limit.unused();
        reserve(&limit, &mut state, b"a", 1, 0);
        change(&limit, &mut state, b"a", HoldAction::Commit(1), 2 * TTL / 3);
        assert_eq!(limit.matters_until(&state).unwrap(), at(2 * TTL / 3 + TTL), "{limit:?}");
    }
}

#[test]
fn tallies_stay_with_a_counter_and_need_entries_hits_and_memory() {
    let entries = [b"user=ann".to_vec()];
    let of = |entries| Recorded { entries, may_grow: true };
    let without_memory = Recorded { entries: &entries, may_grow: false };
    for limit in plain() {
        let mut state = limit.unused();
        for (recorded, hits) in
            [(of(&[]), (1, 1)), (of(&entries), (0, 0)), (without_memory, (1, 1))]
        {
            assert!(!limit.tally(&mut state, recorded, hits.0, hits.1));
            assert_eq!(state, limit.unused());
        }
        assert!(limit.tally(&mut state, of(&entries), 0, 1));
        assert!(limit.tally(&mut state, without_memory, 3, 0));
        limit.charge(&mut state, 3, at(0)).unwrap();
        grant(&limit, &mut state, 5, 0);
        limit.charge(&mut state, 1, at(50)).unwrap();
        let tallied = state.tallies().iter().map(|tally| (tally.charged, tally.denied));
        assert_eq!(tallied.collect::<Vec<_>>(), [(3, 1)]);
    }
}

/// Replicas of two policies share a counter during a rollout that adds `hold` or removes it.
#[test]
fn a_write_under_a_limit_without_holds_keeps_them_and_a_commit_gives_back() {
    let writes: [fn(&Limit, &mut State, Receipt); 3] = [
        |limit, state, _| assert!(limit.charge(state, 1, at(3)).is_ok()),
        |limit, state, _| assert!(limit.refund(state, 1, at(3)).unwrap()),
        |limit, state, receipt| assert!(limit.take_back(state, receipt, at(3)).unwrap()),
    ];
    for (plain, holding) in
        plain().into_iter().zip(of_9().map(|one| holding(one, OnSettle::Charge)))
    {
        for write in writes {
            let left = [&plain, &holding].map(|limit| {
                let mut state = holding.unused();
                let receipt = holding.charge(&mut state, 1, at(0)).unwrap();
                reserve(&holding, &mut state, b"a", 5, 1);
                write(limit, &mut state, receipt);
                assert_eq!(state.open_holds(at(3)).len(), 1, "{limit:?}");
                let effect = change(&holding, &mut state, b"a", HoldAction::Commit(1), 4);
                assert_eq!(effect, HoldEffect::Committed { reserved: 5, cost: 1 });
                holding.report(&state, None, at(4)).unwrap().remaining
            });
            // Without marks, what gcra may have drained since counts as drained.
            assert!(left[0] == left[1] || left[0] + 1 == left[1], "{left:?} left of {holding:?}");
        }
    }
}

#[test]
fn a_commit_gives_back_nothing_that_drained_before_a_write_under_a_limit_without_holds() {
    let [.., gcra] = of_9();
    let plain = limit(gcra.clone(), Charge::Admitted);
    let holding = holding(gcra, OnSettle::Charge);
    let mut state = holding.unused();
    reserve(&holding, &mut state, b"a", 5, 0);
    let drained = 5 * PERIOD / 9 + 1;
    plain.charge(&mut state, 5, at(drained)).unwrap();
    change(&holding, &mut state, b"a", HoldAction::Commit(0), drained);
    assert_eq!(holding.report(&state, None, at(drained)).unwrap().remaining, 4);
}

#[test]
fn a_write_that_takes_nothing_leaves_a_counter_without_holds_as_it_is() {
    let receipt = Receipt { at: at(0), hits: 3, of_grant: false };
    for algorithm in of_9() {
        for limit in
            [limit(algorithm.clone(), Charge::Admitted), holding(algorithm, OnSettle::Charge)]
        {
            let mut state = limit.unused();
            assert!(!limit.refund(&mut state, 3, at(7)).unwrap(), "{limit:?}");
            assert!(!limit.take_back(&mut state, receipt, at(7)).unwrap(), "{limit:?}");
            assert_eq!(state, limit.unused());
        }
    }
}

#[test]
fn a_write_that_takes_nothing_under_a_limit_without_holds_leaves_a_counter_with_them_as_it_is() {
    let receipt = Receipt { at: at(0), hits: 0, of_grant: false };
    for (plain, holding) in
        plain().into_iter().zip(of_9().map(|one| holding(one, OnSettle::Charge)))
    {
        let mut state = holding.unused();
        reserve(&holding, &mut state, b"a", 5, 0);
        let before = state.clone();
        assert!(!plain.refund(&mut state, 0, at(1)).unwrap());
        assert!(!plain.take_back(&mut state, receipt, at(1)).unwrap());
        assert_eq!(state, before, "{plain:?}");
    }
}

#[test]
fn a_take_back_takes_nothing_of_no_hits_or_of_a_charge_that_no_longer_counts() {
    let counts = [PERIOD, PERIOD + PERIOD / 10, PERIOD, 333_334];
    for (algorithm, counts) in of_9().into_iter().zip(counts) {
        let plain = limit(algorithm.clone(), Charge::Admitted);
        for limit in [plain, holding(algorithm, OnSettle::Charge)] {
            for (hits, later, took) in [(3, counts - 1, true), (3, counts, false), (0, 1, false)] {
                let mut state = limit.unused();
                let receipt = limit.charge(&mut state, 3, at(0)).unwrap();
                let receipt = Receipt { hits, ..receipt };
                let is_taken = limit.take_back(&mut state, receipt, at(later)).unwrap();
                assert_eq!(is_taken, took, "{hits} hits after {later} us of {limit:?}");
                assert_eq!(state.last(), if took { at(later) } else { at(0) });
            }
        }
    }
}

#[test]
fn of_a_charge_from_before_the_marks_what_has_not_drained_is_taken_back() {
    let [.., gcra] = of_9();
    let without = limit(gcra.clone(), Charge::Admitted);
    let with = holding(gcra, OnSettle::Charge);
    let mut state = without.unused();
    let receipt = without.charge(&mut state, 3, at(0)).unwrap();
    let later = with.charge(&mut state, 3, at(5)).unwrap();
    assert!(with.take_back(&mut state, receipt, at(6)).unwrap());
    assert!(with.take_back(&mut state, later, at(6)).unwrap());
    assert!(!with.take_back(&mut state, Receipt { hits: 0, ..later }, at(6)).unwrap());
    let request = request(b"a", HoldAction::Look);
    assert!(with.change_hold(&mut state, request, Recorded::default(), at(6)).is_ok());
    let receipt = without.charge(&mut state, 3, at(7)).unwrap();
    with.charge(&mut state, 1, at(8)).unwrap();
    let drained = 3 * PERIOD;
    assert!(!with.take_back(&mut state, receipt, at(7 + drained)).unwrap(), "it has drained");
}

#[test]
fn marks_stay_when_a_charge_from_before_them_is_taken_back() {
    let [.., gcra] = of_9();
    let without = limit(gcra.clone(), Charge::Admitted);
    let with = holding(gcra, OnSettle::Charge);
    let mut state = without.unused();
    let receipt = without.charge(&mut state, 5, at(0)).unwrap();
    reserve(&with, &mut state, b"a", 4, 1);
    assert!(with.refund(&mut state, 6, at(2)).unwrap());
    with.charge(&mut state, 5, at(3)).unwrap();
    assert!(with.take_back(&mut state, receipt, at(4)).unwrap());
    change(&with, &mut state, b"a", HoldAction::Commit(0), 5);
    let remaining = with.report(&state, None, at(5)).unwrap().remaining;
    assert_eq!(remaining, 6, "the hits of the hold were refunded, those after it are not its own");
}

#[test]
fn marks_stay_without_a_hold_and_all_of_a_later_charge_comes_back() {
    let [.., gcra] = of_9();
    let limit = holding(gcra, OnSettle::Charge);
    let mut state = limit.unused();
    limit.charge(&mut state, 3, at(0)).unwrap();
    let receipt = limit.charge(&mut state, 2, at(2 * PERIOD / 9)).unwrap();
    let drained = at(3 * PERIOD / 9 + 1);
    assert!(limit.take_back(&mut state, receipt, drained).unwrap());
    assert_eq!(limit.report(&state, None, drained).unwrap().remaining, 9);
}
