//! A full store: what takes no memory is answered, the rest is refused, and what was reserved in
//! vain is given back.

use tollgate_core::algorithm::hold::{Hold, HoldAction, HoldRequest, OnSettle};

use super::*;

/// Performs an operation on a hold. Returns `true` if it is allowed; `None` for a store error.
fn hold(bench: &MemoryFixture, limit: &Limit, id: &[u8], action: HoldAction) -> Option<bool> {
    let hold = HoldRequest { id, action, ttl: None };
    let hits = if hold.is_on_existing() { Hits::Refund(0) } else { Hits::Charge(1) };
    let check = Check { hits, hold: Some(&hold), ..check(b"held", limit) };
    bench.store.decide_now(&[check], Prior::Open)[0].as_ref().ok().map(|outcome| outcome.allowed)
}

fn amended(bench: &MemoryFixture, name: &str, limit: &Limit, amendment: Amendment) -> bool {
    bench.store.amend_now(&check(name.as_bytes(), limit), amendment).is_ok()
}

#[test]
fn a_full_store_answers_what_takes_no_memory_and_refuses_the_rest() {
    let bench = bench(256 << 10, 256 << 10);
    let [limit, ban] = [9, 0].map(|hits| fixed(hits, 3600));
    let held =
        limit.clone().with_hold(Hold { ttl: Micros::from_secs(3600), on_settle: OnSettle::Charge });
    assert_eq!(hold(&bench, &held, b"a", HoldAction::Reserve), Some(true));
    while hit(&bench, "d", &bench.store.len().to_string(), &limit).is_some() {}
    let ask = |wanted: &[(&str, &Limit, Hits)]| ask(&bench.store, "d", wanted);
    assert_eq!(ask(&[("new", &limit, Hits::Charge(1))]), [None]);
    assert_eq!(ask(&[("new", &limit, Hits::Peek(1))]), [Some(true)]);
    assert_eq!(ask(&[("new", &limit, Hits::Refund(1))]), [Some(true)]);
    let known = ("1", &limit, Hits::Charge(1));
    assert_eq!(ask(&[known, ("new", &ban, Hits::Charge(1))]), [Some(true), Some(false)]);
    assert_eq!(hold(&bench, &held, b"b", HoldAction::Reserve), None);
    assert_eq!(hold(&bench, &held, b"b", HoldAction::Commit(1)), None);
    assert_eq!(hold(&bench, &held, b"a", HoldAction::Commit(1)), Some(true));
    assert!(amended(&bench, "new", &limit, Amendment::Look));
    assert!(amended(&bench, "new", &limit, Amendment::Reset));
    let grant = Amendment::Grant { hits: 1, length: Micros::from_secs(60) };
    assert!(!amended(&bench, "new", &limit, grant));
    assert!(bench.store.used_bytes() <= 256 << 10);
}

#[test]
fn memory_that_a_denied_charge_or_a_reset_does_not_take_is_given_back() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = log(256, 3600);
    // The log has no room for another entry: one more would double it.
    assert!((0..256).all(|_| hit(&bench, "d", "log", &limit) == Some(true)));
    let full = bench.store.used_bytes();
    assert_eq!(hit(&bench, "d", "log", &limit), Some(false));
    assert_eq!(bench.store.used_bytes(), full);
    assert!(amended(&bench, "log", &limit, Amendment::Reset));
    let reset = bench.store.used_bytes();
    assert!(reset < full - 256 * 8, "{reset} bytes after a reset, {full} before");
}

/// The hand keeps up with counters that come and go, even if no sweep is called.
#[test]
fn new_counters_remove_those_that_have_expired() {
    let bench = bench(64 << 20, 64 << 20);
    let limit = fixed(1, 1);
    for second in 0..300 {
        bench.clock.set(Timestamp::from_micros(START + second * SECOND));
        assert!((0..100).all(|n| hit(&bench, "d", &format!("{second} {n}"), &limit).is_some()));
    }
    // A counter is kept for a minute, and to the end of its window and of a tick of two seconds.
    let live = 100 * (60 + 1 + 2);
    assert!(bench.store.len() < 2 * live, "{} of {live} counters", bench.store.len());
}
