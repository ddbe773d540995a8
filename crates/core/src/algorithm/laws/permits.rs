//! Cases of permits.

use super::holds::{TTL, change, holding, request, reserve};
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest, OnSettle};
use crate::algorithm::quota::WindowUsage;

/// Returns a limit of permits that end after [`TTL`], with its unused counter.
fn permits(in_flight: u32) -> (Limit, State) {
    let limit =
        holding(Algorithm::Concurrency(Concurrency::new(in_flight).unwrap()), OnSettle::Charge);
    let state = limit.unused();
    (limit, state)
}

fn remaining(limit: &Limit, state: &State, now: u64) -> u64 {
    limit.report(state, None, at(now)).unwrap().remaining
}

#[test]
fn a_refund_takes_nothing_of_a_permit_that_ends_at_that_instant() {
    let (limit, mut state) = permits(9);
    for (id, ttl) in [(b"a", 2 * TTL), (b"b", TTL)] {
        let request =
            HoldRequest { ttl: Some(Micros::new(ttl)), ..request(id, HoldAction::Reserve) };
        limit.reserve(&mut state, 3, request, Recorded::default(), at(0)).unwrap();
    }
    assert!(limit.refund(&mut state, 1, at(TTL)).unwrap());
    assert_eq!(remaining(&limit, &state, TTL), 7, "it takes a hit of the permit that is left");
}

#[test]
fn a_permit_is_taken_back_until_the_instant_at_which_it_ends() {
    for (now, took) in [(TTL - 1, true), (TTL, false)] {
        let (limit, mut state) = permits(9);
        let receipt = limit.charge(&mut state, 3, at(0)).unwrap();
        assert_eq!(limit.take_back(&mut state, receipt, at(now)).unwrap(), took);
        assert_eq!(remaining(&limit, &state, now), 9);
    }
}

#[test]
fn a_take_back_ends_the_permit_of_its_instant_that_has_no_id() {
    let (limit, mut state) = permits(9);
    let receipt = limit.charge(&mut state, 3, at(0)).unwrap();
    reserve(&limit, &mut state, b"a", 3, 0);
    limit.charge(&mut state, 3, at(1)).unwrap();
    assert!(limit.take_back(&mut state, receipt, at(1)).unwrap());
    let left = state.open_holds(at(1));
    let left: Vec<_> = left.iter().map(|permit| (&*permit.id, permit.taken_at)).collect();
    assert_eq!(left, [(b"a".as_slice(), at(0)), (b"".as_slice(), at(1))]);
}

#[test]
fn permits_are_extended_by_their_id() {
    let (limit, mut state) = permits(9);
    reserve(&limit, &mut state, b"a", 3, 0);
    assert_eq!(change(&limit, &mut state, b"b", HoldAction::Extend, 7), HoldEffect::Nothing);
    assert_eq!(change(&limit, &mut state, b"a", HoldAction::Extend, 7), HoldEffect::Extended);
    assert_eq!(remaining(&limit, &state, TTL + 6), 6);
    assert_eq!(remaining(&limit, &state, TTL + 7), 9);
    let late = change(&limit, &mut state, b"a", HoldAction::Extend, TTL + 7);
    assert_eq!(late, HoldEffect::Nothing, "it has ended");
}

#[test]
fn a_take_back_prefers_a_permit_that_no_refund_has_taken_from() {
    let (limit, mut state) = permits(12);
    let receipts = [5, 5].map(|hits| limit.charge(&mut state, hits, at(0)).unwrap());
    assert!(limit.refund(&mut state, 2, at(0)).unwrap());
    assert!(limit.take_back(&mut state, receipts[1], at(0)).unwrap());
    assert_eq!(remaining(&limit, &state, 0), 9, "the whole one is gone, 3 hits of the other left");
}

#[test]
fn a_permit_is_gone_with_a_write_at_the_instant_at_which_it_ends() {
    let (limit, mut state) = permits(9);
    limit.charge(&mut state, 3, at(0)).unwrap();
    limit.charge(&mut state, 2, at(TTL)).unwrap();
    let mut fresh = limit.unused();
    limit.charge(&mut fresh, 2, at(TTL)).unwrap();
    assert_eq!(state, fresh);
}

#[test]
fn denied_hits_fit_once_enough_permits_have_ended() {
    let (limit, mut state) = permits(5);
    for (id, hits, ttls) in [(b"a", 2, 3), (b"b", 1, 1), (b"c", 2, 2)] {
        let ttl = Some(Micros::new(ttls * TTL));
        let request = HoldRequest { ttl, ..request(id, HoldAction::Reserve) };
        limit.reserve(&mut state, hits, request, Recorded::default(), at(0)).unwrap();
    }
    let report = |hits, now| limit.report(&state, Some(hits), at(now)).unwrap();
    let waits = [1, 2, 5, 6].map(|hits| report(hits, 0).retry_after.map(Micros::get));
    assert_eq!(waits, [Some(TTL), Some(2 * TTL), Some(3 * TTL), None]);
    assert_eq!(report(1, TTL).retry_after, Some(Micros::ZERO));
    assert_eq!(report(1, TTL).reset_after, Some(Micros::new(2 * TTL)));
    assert_eq!(limit.matters_until(&state).unwrap(), at(3 * TTL));
    assert_eq!([5, 6].map(|hits| limit.allows(&state, hits, at(3 * TTL)).unwrap()), [true, false]);
    let looked = limit.amend(&mut state, Amendment::Look, at(0)).unwrap().0.after.windows;
    let expected = WindowUsage {
        used: 5,
        remaining: 0,
        reset_after: Micros::new(3 * TTL),
        retry_after: Some(Micros::new(TTL)),
    };
    assert_eq!(looked, [expected]);
}

#[test]
fn a_refund_takes_the_newest_permits_first() {
    let (limit, mut state) = permits(9);
    assert!(!limit.refund(&mut state, 1, at(0)).unwrap());
    reserve(&limit, &mut state, b"a", 3, 0);
    reserve(&limit, &mut state, b"b", 2, 0);
    assert!(limit.refund(&mut state, 4, at(1)).unwrap());
    let left = state.open_holds(at(1));
    assert_eq!(left.iter().map(|permit| (&*permit.id, permit.hits)).next(), Some((&b"a"[..], 1)));
    assert_eq!((left.len(), remaining(&limit, &state, 1)), (1, 8));
}

#[test]
fn a_permit_is_looked_at_and_ended_by_its_id_until_its_ttl() {
    let (limit, mut state) = permits(9);
    reserve(&limit, &mut state, b"a", 3, 0);
    reserve(&limit, &mut state, b"a", 2, 1);
    let look = |state: &mut State, id, now| change(&limit, state, id, HoldAction::Look, now);
    assert_eq!(look(&mut state, b"a", TTL - 1), HoldEffect::Open { hits: 5 });
    assert_eq!(look(&mut state, b"a", TTL), HoldEffect::Open { hits: 2 });
    assert_eq!(look(&mut state, b"b", 1), HoldEffect::Nothing);
    assert_eq!(change(&limit, &mut state, b"a", HoldAction::Cancel, TTL), HoldEffect::Settled);
    assert_eq!(change(&limit, &mut state, b"a", HoldAction::Cancel, TTL), HoldEffect::Nothing);
    assert_eq!(remaining(&limit, &state, TTL), 9);
}

#[test]
fn an_id_counts_in_the_memory_of_its_permit() {
    let (limit, state) = permits(9);
    let bytes = |id| {
        let mut state = state.clone();
        let before = state.heap_bytes();
        let request = request(id, HoldAction::Reserve);
        let expected = state.holding_bytes(&request, &[]);
        limit.reserve(&mut state, 1, request, Recorded::default(), at(0)).unwrap();
        assert_eq!(state.heap_bytes() - before, expected);
        expected
    };
    assert_eq!(bytes(b"four") - bytes(b""), 4 + 16);
}
