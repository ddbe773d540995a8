//! The memory of counters: what a write may add is known before it, and what has ended is dropped.

use super::holds::{TTL, holding, request};
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::hold::{HoldAction, OnSettle};

fn in_windows(windows: &[(u32, u64)]) -> [Algorithm; 3] {
    let windows = || windows.iter().map(|(limit, period)| window(*limit, *period)).collect();
    [fixed(windows()), sliding(windows(), 60), log(windows())]
}

fn all() -> Vec<Algorithm> {
    let others =
        [gcra(window(99, 60_000_000), None), Algorithm::Concurrency(Concurrency::new(99).unwrap())];
    in_windows(&[(99, 60_000_000); 2]).into_iter().chain(others).collect()
}

#[test]
fn a_charge_grows_a_counter_by_what_was_known_before() {
    for algorithm in all() {
        let limit = limit(algorithm, Charge::Admitted);
        let mut state = limit.unused();
        for second in 0..40 {
            let before = state.heap_bytes();
            let growth = state.growth_bytes();
            limit.charge(&mut state, 1, at(second * 1_000_000)).unwrap();
            assert_eq!(state.heap_bytes() - before, growth, "charge {second} of {limit:?}");
        }
    }
}

#[test]
fn counts_and_marks_are_in_the_memory_of_a_counter() {
    let [fixed, _, _, gcra, _] = <[_; 5]>::try_from(all()).unwrap();
    let counter = |algorithm| {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut state = limit.unused();
        for number in 0..40 {
            let request = request(b"a", HoldAction::Reserve);
            limit.reserve(&mut state, 1, request, Recorded::default(), at(number)).unwrap();
        }
        (limit.unused().heap_bytes(), state.heap_bytes())
    };
    let (counts, windows) = counter(fixed);
    let (_, rate) = counter(gcra);
    assert_eq!(counts, 16, "a count of 8 bytes for each window");
    assert!(rate >= windows - counts + 40 * 20, "{rate} bytes with marks, {windows} without");
}

#[test]
fn windows_share_a_log_unless_a_cost_fills_only_some_of_them() {
    let bytes = |windows: &[(u32, u64)]| {
        let [.., log] = in_windows(windows);
        let limit = holding(log, OnSettle::Charge);
        let mut state = limit.unused();
        let reserve = request(b"a", HoldAction::Reserve);
        limit.reserve(&mut state, 1, reserve, Recorded::default(), at(0)).unwrap();
        let commit = request(b"a", HoldAction::Commit(3));
        limit.change_hold(&mut state, commit, Recorded::default(), at(1)).unwrap();
        state.heap_bytes()
    };
    let of_one = bytes(&[(9, 60_000)]);
    assert_eq!(bytes(&[(9, 60_000), (10, 120_000)]), of_one, "neither is full");
    assert_eq!(bytes(&[(1, 60_000), (1, 120_000)]), bytes(&[(1, 60_000)]), "both are full");
    assert!(bytes(&[(1, 60_000), (10, 120_000)]) > of_one);
}

#[test]
fn a_hold_grows_a_counter_by_at_most_what_was_known_before() {
    for algorithm in all() {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut state = limit.unused();
        let ids: Vec<_> = (0..40).map(|number| format!("{number:036}")).collect();
        let mut known = 0;
        let mut grown = 0;
        for (id, second) in ids.iter().zip(0..) {
            let request = request(id.as_bytes(), HoldAction::Reserve);
            let before = state.heap_bytes();
            let growth = state.growth_bytes() + state.holding_bytes(&request, &[]);
            limit.reserve(&mut state, 1, request, Recorded::default(), at(second * 1_000)).unwrap();
            let added = state.heap_bytes() - before;
            assert!(added <= growth, "hold {second} of {limit:?}: {added} of {growth} bytes");
            known += growth;
            grown += added;
        }
        assert!(known <= 3 * grown, "{known} for {grown} bytes of {limit:?}");
    }
}

/// Returns the bytes that holds by IDs of 16 lengths may allocate: exact in sum, although each
/// allocation is a multiple of 16 bytes.
fn holding_bytes(state: &State, entries: &[Vec<u8>]) -> usize {
    let ids = (1..=16).map(|length| vec![b'a'; length]);
    ids.map(|id| state.holding_bytes(&request(&id, HoldAction::Reserve), entries)).sum()
}

#[test]
fn a_hold_needs_room_for_entries_and_for_a_grant_if_there_is_one() {
    // An instant and a number of entries for each of four holds of an ID.
    const EXTRAS: usize = 4 * (8 + 1);
    let entries = [b"user=ann".to_vec(), b"plan=free".to_vec()];
    for algorithm in in_windows(&[(99, 60_000_000)]) {
        let limit = holding(algorithm, OnSettle::Charge);
        for is_held in [false, true] {
            let mut state = limit.unused();
            if is_held {
                let request = request(b"a", HoldAction::Reserve);
                limit.reserve(&mut state, 1, request, Recorded::default(), at(0)).unwrap();
            }
            let plain = holding_bytes(&state, &[]);
            let tallied = holding_bytes(&state, &entries);
            assert_eq!(tallied - plain, 16 * (EXTRAS + 2 + 8 + 2 + 9), "lengths and entries");
            let grant = Amendment::Grant { hits: 5, length: Micros::new(TTL) };
            limit.amend(&mut state, grant, at(0)).unwrap();
            assert_eq!(holding_bytes(&state, &[]) - plain, 16 * EXTRAS);
        }
    }
}

#[test]
fn tallies_grow_a_counter_by_at_most_what_was_known_before() {
    let [_, _, _, gcra, _] = <[_; 5]>::try_from(all()).unwrap();
    let limit = limit(gcra, Charge::Admitted);
    let mut state = limit.unused();
    let mut known = vec![];
    for number in 0..50 {
        let entries = [format!("user={number:02}").into_bytes(), b"plan=free".to_vec()];
        let before = state.heap_bytes();
        let growth = state.tallying_bytes(&entries);
        let recorded = Recorded { entries: &entries, may_grow: true };
        assert!(limit.tally(&mut state, recorded, 1, 0));
        let added = state.heap_bytes() - before;
        assert!(added <= growth, "{added} of {growth} bytes for entry {number}");
        assert!(number > 9 || added > entries[0].len(), "{added} bytes for entry {number}");
        assert_eq!(state.tallying_bytes(&entries), 0, "both are known");
        known.push(growth);
    }
    let [first, second, third, ..] = *known else { panic!("{known:?}") };
    assert!(first > second, "the first one extends the counter");
    assert_eq!(second, third);
}

#[test]
fn what_has_ended_is_dropped_by_the_next_charge() {
    let short = in_windows(&[(9, 60_000)]);
    for algorithm in short.into_iter().chain([Algorithm::Concurrency(Concurrency::new(9).unwrap())])
    {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut state = limit.unused();
        let mut after = |count: u64| {
            for number in 0..count {
                limit.charge(&mut state, 1, at(count * TTL + number * TTL)).unwrap();
            }
            state.heap_bytes()
        };
        let few = after(10);
        assert_eq!(after(1_000), few, "{limit:?}");
    }
}

#[test]
fn records_of_holds_that_have_expired_are_dropped() {
    let [limit, ..] = in_windows(&[(9, 60_000)]).map(|one| holding(one, OnSettle::Charge));
    let mut state = limit.unused();
    for number in 0..1_000 {
        let id = format!("{number:036}");
        let request = request(id.as_bytes(), HoldAction::Reserve);
        limit.reserve(&mut state, 1, request, Recorded::default(), at(number * TTL)).unwrap();
    }
    assert!(state.heap_bytes() < 2_000, "{} bytes", state.heap_bytes());
}

#[test]
fn only_a_commit_without_a_hold_needs_memory_among_operations_on_existing_holds() {
    let expected = [
        (HoldAction::Reserve, [false; 2]),
        (HoldAction::ReserveOnce, [false; 2]),
        (HoldAction::Commit(1), [true, false]),
        (HoldAction::CommitEach(1), [true, false]),
        (HoldAction::Settle, [true; 2]),
        (HoldAction::Extend, [true; 2]),
    ];
    for algorithm in all() {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut state = limit.unused();
        limit
            .reserve(&mut state, 1, request(b"a", HoldAction::Reserve), Recorded::default(), at(0))
            .unwrap();
        for (action, has) in expected {
            let known = [b"a", b"b"].map(|id| state.has_hold(&request(id, action), at(1)));
            // A permit that has no ID to find needs none either.
            let is_permit = limit.in_flight().is_some() && has[0];
            assert_eq!(known, if is_permit { [true; 2] } else { has }, "{action:?} of {limit:?}");
        }
    }
}

#[test]
fn marks_of_many_charges_are_merged_and_those_of_refunds_are_few() {
    for refunded in [0, 1] {
        let limit = holding(gcra(window(9_999, 60_000_000), None), OnSettle::Charge);
        let mut state = limit.unused();
        for now in 0..2_000 {
            limit.charge(&mut state, 3, at(now)).unwrap();
            assert_eq!(limit.refund(&mut state, refunded, at(now)).unwrap(), refunded > 0);
        }
        assert!(state.heap_bytes() < 8_000, "{} bytes", state.heap_bytes());
    }
}
