#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

mod as_backend;
mod expiry;
mod full;
mod holds;
mod lend;
mod shards;
mod tallies;

use std::sync::Arc;

use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::{Charge, Limit, OnStoreError};

use super::*;
use crate::clock::ManualClock;
use crate::tests::{self, check, gcra, log};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_780_000_000 * SECOND;

struct MemoryFixture {
    store: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
}

fn bench(max_bytes: usize, domain_max_bytes: usize) -> MemoryFixture {
    let clock = Arc::new(ManualClock::default());
    clock.set(Timestamp::from_micros(START));
    MemoryFixture {
        store: MemoryStore::new(Bounds { max_bytes, domain_max_bytes }, Arc::clone(&clock)),
        clock,
    }
}

fn fixed(limit: u32, seconds: u64) -> Limit {
    tests::fixed(&[(limit, seconds)], Charge::Admitted, OnStoreError::Error)
}

impl MemoryFixture {
    /// Removes the counters that have expired after this many seconds.
    fn sweep_after(&self, seconds: u64) {
        self.clock.set(Timestamp::from_micros(START + seconds * SECOND));
        (0..16).for_each(|_| self.store.sweep());
    }
}

/// Decides a request, and returns for each counter `true` if it allows the hits; `None` for a store
/// error.
fn ask<C: Clock>(
    store: &MemoryStore<C>,
    domain: &str,
    wanted: &[(&str, &Limit, Hits)],
) -> Vec<Option<bool>> {
    let checks = wanted.iter().map(|(name, limit, hits)| Check {
        key: CounterKey::of(domain, name.as_bytes()),
        hits: *hits,
        ..check(name.as_bytes(), limit)
    });
    let checks: Vec<_> = checks.collect();
    store
        .decide_now(&checks, Prior::Open)
        .into_iter()
        .map(|outcome| outcome.ok().map(|o| o.allowed))
        .collect()
}

fn hit(bench: &MemoryFixture, domain: &str, name: &str, limit: &Limit) -> Option<bool> {
    ask(&bench.store, domain, &[(name, limit, Hits::Charge(1))])[0]
}

#[test]
fn a_scan_lists_every_key_once() {
    let bench = bench(64 << 20, 64 << 20);
    let limit = fixed(1, 60);
    let count = usize::from(SHARDS) * 200;
    for number in 0..count {
        assert_eq!(hit(&bench, "d", &number.to_string(), &limit), Some(true));
    }
    let mut keys = std::collections::HashSet::new();
    let mut listed = 0;
    let mut part = bench.store.scan(None);
    loop {
        listed += part.keys.len();
        keys.extend(part.keys.iter().map(|key| key.bytes().to_vec()));
        let Some(next) = part.next else { break };
        part = bench.store.scan(Some(next));
        assert!(part.keys.len() <= 100);
    }
    assert_eq!((listed, keys.len()), (count, count));
}

#[test]
fn one_denial_leaves_every_counter_of_the_request_as_it_was() {
    let bench = bench(1 << 20, 1 << 20);
    let few = fixed(1, 60);
    let many = fixed(9, 60);
    let both = [("many", &many, Hits::Charge(2)), ("few", &few, Hits::Charge(1))];
    assert_eq!(ask(&bench.store, "d", &both), [Some(true), Some(true)]);
    assert_eq!(ask(&bench.store, "d", &both), [Some(true), Some(false)]);
    assert_eq!(ask(&bench.store, "d", &[("many", &many, Hits::Charge(7))]), [Some(true)]);
    assert_eq!(ask(&bench.store, "d", &[("many", &many, Hits::Charge(1))]), [Some(false)]);
}

#[test]
fn the_second_check_of_one_counter_sees_the_first() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(3, 60);
    let twice = [
        ("a", &limit, Hits::Charge(2)),
        ("a", &limit, Hits::Charge(2)),
        ("a", &limit, Hits::Peek(0)),
    ];
    assert_eq!(ask(&bench.store, "d", &twice), [Some(true), Some(false), Some(true)]);
    assert_eq!(bench.store.len(), 0, "a denied request creates no counter");
}

#[test]
fn a_peek_and_a_refund_create_no_counter() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(3, 60);
    ask(&bench.store, "d", &[("a", &limit, Hits::Peek(0)), ("b", &limit, Hits::Refund(2))]);
    assert_eq!((bench.store.len(), bench.store.used_bytes()), (0, 0));
}

#[test]
fn a_flood_of_new_keys_is_refused_and_resets_no_live_counter() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1, 3600);
    assert_eq!(hit(&bench, "d", "live", &limit), Some(true));
    let answers: Vec<_> =
        (0..50_000).map(|n| hit(&bench, "d", &format!("flood {n}"), &limit)).collect();
    assert_eq!(answers.first(), Some(&Some(true)));
    assert_eq!(answers.last(), Some(&None), "no room");
    assert!(bench.store.used_bytes() <= 1 << 20);
    assert_eq!(hit(&bench, "d", "live", &limit), Some(false));
}

#[test]
fn expired_counters_make_room() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1, 1);
    let fill = |from: u32| {
        (from..from + 20_000).filter_map(|n| hit(&bench, "d", &format!("{n:06}"), &limit)).count()
    };
    let first = fill(0);
    assert!(first < 20_000);
    bench.clock.set(Timestamp::from_micros(START + 64 * SECOND));
    assert_eq!(fill(100_000), first, "as many as at first");
}

#[test]
fn a_sweep_forgets_the_expired_and_keeps_the_rest() {
    let bench = bench(8 << 20, 8 << 20);
    let short = fixed(1, 1);
    let long = fixed(1, 3600);
    for n in 0..1_000 {
        hit(&bench, "d", &format!("short {n}"), &short);
        hit(&bench, "d", &format!("long {n}"), &long);
    }
    bench.sweep_after(64);
    assert_eq!(bench.store.len(), 1_000);
    assert_eq!(hit(&bench, "d", "long 7", &long), Some(false));
}

#[test]
fn no_domain_takes_more_than_its_share() {
    let bench = bench(1 << 20, 1 << 19);
    let limit = fixed(1, 3600);
    let fill = |domain: &str| {
        (0..20_000).filter_map(|n| hit(&bench, domain, &format!("{domain}{n}"), &limit)).count()
    };
    let greedy = fill("greedy");
    assert!(bench.store.used_bytes() <= 1 << 19);
    assert!(fill("other").abs_diff(greedy) < greedy / 10);
}

#[test]
fn every_byte_that_was_taken_is_given_back() {
    let bench = bench(8 << 20, 8 << 20);
    let log = log(1_000, 1);
    let windows = tests::fixed(&[(500, 1), (900, 2)], Charge::Always, OnStoreError::Error);
    for n in 0..3_000 {
        let a = format!("log {}", n % 7);
        let b = format!("windows {}", n % 5);
        ask(&bench.store, "d", &[(&a, &log, Hits::Charge(1)), (&b, &windows, Hits::Charge(1))]);
    }
    assert!(bench.store.used_bytes() > 7 * 400 * size_of::<u64>());
    bench.sweep_after(120);
    assert_eq!((bench.store.len(), bench.store.used_bytes()), (0, 0));
}

#[test]
fn a_counter_that_cannot_grow_is_refused_and_not_reset() {
    let bench = bench(1 << 20, 1 << 20);
    let [log, gcra] = [log(10_000, 3600), gcra(5, 3600)];
    let before = (0..10).filter_map(|_| hit(&bench, "d", "log", &log)).count();
    let fitting = (0..20_000).filter_map(|n| hit(&bench, "d", &n.to_string(), &gcra)).count();
    assert!(before == 10 && fitting < 20_000);
    let grown = (0..10_000).filter_map(|_| hit(&bench, "d", "log", &log)).count();
    assert!(grown < 100, "{grown} entries more in a full store");
    assert_eq!(ask(&bench.store, "d", &[("log", &log, Hits::Peek(0))]), [Some(true)]);
    assert!(bench.store.used_bytes() <= 1 << 20);
}

#[test]
fn concurrent_requests_admit_exactly_the_limit() {
    let store =
        MemoryStore::new(Bounds { max_bytes: 1 << 20, domain_max_bytes: 1 << 20 }, SystemClock);
    let limit = fixed(1_000, 365 * 86_400);
    let other = fixed(5_000, 365 * 86_400);
    let admitted: usize = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let store = &store;
            let limit = &limit;
            let other = &other;
            scope.spawn(move || {
                // Half of the threads list the counters in reverse order, which must not deadlock.
                let mut wanted = [("a", limit, Hits::Charge(1)), ("b", other, Hits::Charge(1))];
                wanted.rotate_left(thread % 2);
                (0..1_000)
                    .filter(|_| {
                        ask(store, "d", &wanted).iter().all(|allowed| *allowed == Some(true))
                    })
                    .count()
            })
        };
        let threads: Vec<_> = (0..8).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1_000);
    assert_eq!(
        ask(&store, "d", &[("b", &other, Hits::Charge(4_000))]),
        [Some(true)],
        "b was charged 1,000 times"
    );
    assert_eq!(ask(&store, "d", &[("b", &other, Hits::Charge(1))]), [Some(false)]);
}

#[test]
fn a_counter_that_is_amended_takes_more_room_and_gives_it_back() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1, 60);
    let amend = |name: &str, amendment| {
        bench.store.amend_now(&check(name.as_bytes(), &limit), amendment).unwrap().after
    };
    amend("a", Amendment::Look);
    amend("a", Amendment::Reset);
    amend("a", Amendment::Refund(1));
    assert_eq!(
        (bench.store.len(), bench.store.used_bytes()),
        (0, 0),
        "only a grant makes a counter"
    );
    hit(&bench, "d", "a", &limit);
    let plain = bench.store.used_bytes();
    amend("a", Amendment::Grant { hits: 2, length: Micros::from_secs(30) });
    assert!(bench.store.used_bytes() > plain);
    let admitted = [(); 4].map(|()| hit(&bench, "d", "a", &limit));
    assert_eq!(admitted, [Some(true), Some(true), Some(false), Some(false)]);
    bench.clock.set(Timestamp::from_micros(START + 30 * SECOND));
    assert_eq!(hit(&bench, "d", "a", &limit), Some(true));
    assert_eq!(bench.store.used_bytes(), plain, "with nothing granted it is plain again");
    amend("b", Amendment::Grant { hits: 2, length: Micros::from_secs(200) });
    bench.sweep_after(285);
    assert_eq!(bench.store.len(), 1, "kept for a minute after the grant");
    bench.sweep_after(295);
    assert_eq!((bench.store.len(), bench.store.used_bytes()), (0, 0));
}

#[test]
fn live_counters_are_kept_and_expired_ones_forgotten_in_any_century() {
    // Before, around and after the last second that fits four bytes, 2106-02-07, and early in 2200.
    for begin in [
        START,
        (1 << 32) * SECOND - 30 * SECOND,
        (1 << 32) * SECOND + SECOND,
        7_258_118_400 * SECOND,
    ] {
        let bench = bench(1 << 20, 1 << 20);
        let limit = fixed(1, 3600);
        let hit_after = |seconds: i64| {
            bench
                .clock
                .set(Timestamp::from_micros(begin.saturating_add_signed(seconds * 1_000_000)));
            (0..16).for_each(|_| bench.store.sweep());
            hit(&bench, "d", "a", &limit)
        };
        assert_eq!(hit_after(0), Some(true));
        // The clock steps back and jumps ahead.
        for seconds in [1, -10, 60, 1_500, 30] {
            assert_eq!(hit_after(seconds), Some(false), "{seconds} s after {begin}");
        }
        bench.sweep_after((begin - START) / SECOND + 3_600 + 60 + 5);
        assert_eq!((bench.store.len(), bench.store.used_bytes()), (0, 0), "{begin}");
    }
}
