//! Expired counters: found by sweeps, which do not search in vain, and gone from the tables.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A shard that is full for as long as its counters live refuses without searching itself: 100
/// refusals a call, each with a search of 128 entries, delayed the calls of others by 100 ms.
#[test]
fn a_full_store_is_searched_only_once_a_counter_can_have_expired() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1, 3600);
    let refuse = |count: u32| {
        assert!((0..count).all(|n| hit(&bench, "d", &format!("more {n}"), &limit).is_none()))
    };
    while hit(&bench, "d", &format!("counter {}", bench.store.len()), &limit).is_some() {}
    // Each shard has been searched once by then.
    refuse(10_000);
    let hands =
        || -> Vec<u32> { bench.store.shards.iter().map(|shard| shard.lock().hand()).collect() };
    let before = hands();
    refuse(10_000);
    assert_eq!(hands(), before);
    bench.clock.set(Timestamp::from_micros(START + 7_300 * SECOND));
    assert_eq!(hit(&bench, "d", "more 1", &limit), Some(true));
}

/// A new counter that needs room may remove expired counters of later checks of its request.
#[test]
fn counters_that_are_removed_for_another_of_their_request_are_charged_anew() {
    let bench = bench(256 << 10, 256 << 10);
    let limit = fixed(1, 3600);
    while hit(&bench, "d", &format!("counter {}", bench.store.len()), &limit).is_some() {}
    bench.clock.set(Timestamp::from_micros(START + 7_300 * SECOND));
    let old = (0..500).map(|number| format!("counter {number}"));
    let names: Vec<String> = std::iter::once("new".to_owned()).chain(old).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), &limit, Hits::Charge(1))).collect();
    assert!(ask(&bench.store, "d", &all).iter().all(|allowed| *allowed == Some(true)));
    for name in &names {
        assert_eq!(hit(&bench, "d", name, &limit), Some(false), "{name}");
    }
}

/// Counters that come and go leave marks of removed entries in the tables, which would double for
/// them and never shrink.
#[test]
fn tables_do_not_grow_while_the_number_of_counters_does_not() {
    let bench = bench(64 << 20, 64 << 20);
    let limit = fixed(1, 1);
    for second in 0..300 {
        bench.clock.set(Timestamp::from_micros(START + second * SECOND));
        assert!((0..480).all(|n| hit(&bench, "d", &format!("{second} {n}"), &limit).is_some()));
        bench.store.sweep();
    }
    let [mut counters, mut bytes] = [0, 0];
    for shard in &bench.store.shards {
        let shard = shard.lock();
        counters += shard.len();
        bytes += shard.table_bytes();
    }
    assert!(
        counters > 20_000 && bytes <= 24 * counters,
        "{bytes} bytes of tables for {counters} counters"
    );
}

proptest! {
    /// Sweeping all entries removes all expired counters, whatever was written and swept before.
    #[test]
    fn no_expired_counter_is_overlooked(steps in vec((0..40u32, 1..90u64, 0..300usize, 0..9u64), 1..200)) {
        let bench = bench(1 << 20, 1 << 20);
        let mut now = START;
        let mut expiries = HashMap::new();
        for (name, period, swept, elapsed) in steps {
            let limit = fixed(1_000_000, period);
            let name = format!("{name} of {period}");
            prop_assert_eq!(hit(&bench, "d", &name, &limit), Some(true));
            let end = (now / (period * SECOND) + 1) * period * SECOND;
            expiries.insert(name, end + GRACE.get());
            for shard in &bench.store.shards {
                shard.lock().sweep(&bench.store.budget, swept, Timestamp::from_micros(now));
            }
            now += elapsed * SECOND;
            bench.clock.set(Timestamp::from_micros(now));
        }
        for shard in &bench.store.shards {
            let mut shard = shard.lock();
            let all = shard.entries();
            shard.sweep(&bench.store.budget, all, Timestamp::from_micros(now));
        }
        // A counter is kept until the end of the tick, of about two seconds, in which it expires.
        let alive = expiries.values().filter(|expires| **expires > now).count();
        let kept = expiries.values().filter(|expires| **expires + (1 << 21) > now).count();
        prop_assert!((alive..=kept).contains(&bench.store.len()), "{} of {alive} to {kept}", bench.store.len());
    }
}
