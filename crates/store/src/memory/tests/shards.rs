//! Shards: their parts of the counters, keys with the same hash bits, and bytes that are counted.

use std::collections::HashMap;

use super::super::budget::MemoryBudget;
use super::*;

#[test]
fn counters_are_spread_over_all_shards() {
    let bench = bench(64 << 20, 64 << 20);
    let limit = fixed(1, 60);
    let count = usize::from(SHARDS) * 100;
    for number in 0..count {
        hit(&bench, "d", &number.to_string(), &limit);
    }
    let lens = || bench.store.shards.iter().map(|shard| shard.lock().len());
    assert_eq!((lens().sum::<usize>(), bench.store.is_empty()), (count, false));
    assert!(lens().all(|len| (50..200).contains(&len)), "{:?}", lens().collect::<Vec<_>>());
}

/// Returns two names whose keys have the same bits in a table: of the 64 of a hash, 32.
fn names_of_same_bits() -> [Vec<u8>; 2] {
    let mut names = HashMap::new();
    let found = (0u32..).find_map(|number| {
        let name = number.to_be_bytes().to_vec();
        let [tag, .., high, middle, low] = CounterKey::of("d", &name).hash().to_be_bytes();
        let other = names.insert([tag, high, middle, low], name.clone());
        other.map(|other| [other, name])
    });
    found.unwrap()
}

#[test]
fn keys_with_the_same_bits_in_the_table_have_counters_of_their_own() {
    let names = names_of_same_bits();
    let keys = names.each_ref().map(|name| CounterKey::of("d", name));
    let limit = fixed(1, 60);
    let budget = MemoryBudget::new(1 << 20, 1 << 20);
    let mut shard = Shard::default();
    let expires = Timestamp::from_micros(START);
    shard.insert(&budget, &keys[0], limit.unused(), expires);
    assert_eq!(shard.find(&keys[1]), None);
    shard.insert(&budget, &keys[1], limit.unused(), expires);
    let [first, second] = keys.map(|key| shard.find(&key).unwrap());
    assert_ne!(first, second);
    // Whichever of them is the candidate of both.
    for (key, number) in [(&keys[0], first), (&keys[1], second)] {
        let candidate = shard.candidate(key).unwrap();
        assert!([first, second].contains(&candidate));
        assert_eq!([first, second].map(|one| shard.confirm(one, key)), [Some(number); 2]);
    }
}

#[test]
fn the_bytes_of_counters_cover_their_entries_keys_and_tables() {
    let bench = bench(64 << 20, 64 << 20);
    let limit = fixed(1, 60);
    let count = 50_000;
    for number in 0..count {
        hit(&bench, "d", &format!("{number:08}"), &limit);
    }
    let tables: usize = bench.store.shards.iter().map(|shard| shard.lock().table_bytes()).sum();
    // Of the allocator: at least 16 bytes for a key, and what rounds its length up.
    let keys = count * (16 + "00000000".len());
    // As many entries as fit a page of 8 KiB.
    let budget = MemoryBudget::new(1 << 20, 1 << 20);
    let mut shard = Shard::default();
    shard.insert(&budget, &CounterKey::of("d", b"a"), limit.unused(), Timestamp::EPOCH);
    let entry = (8 << 10) / (shard.entries() + 1);
    let least = tables + keys + count * entry;
    let used = bench.store.used_bytes();
    assert!((least..2 * least).contains(&used), "{used} bytes for {least}");
}

#[test]
fn a_counter_that_never_expires_is_kept_at_the_last_instant_and_others_are_not() {
    let limit = fixed(1, 60);
    let budget = MemoryBudget::new(1 << 20, 1 << 20);
    let mut shard = Shard::default();
    let end = Timestamp::from_micros(u64::MAX);
    for (name, expires) in [(b"a", end), (b"b", Timestamp::from_micros(START))] {
        shard.insert(&budget, &CounterKey::of("d", name), limit.unused(), expires);
    }
    let all = shard.entries();
    assert_eq!((shard.sweep(&budget, all, end), shard.len()), (1, 1));
    assert_eq!(shard.hand(), 0, "after the last entry");
    assert_eq!(shard.sweep(&budget, all, end), 0);
    assert!(shard.find(&CounterKey::of("d", b"a")).is_some());
}

#[test]
fn a_shard_has_one_account_of_a_domain_however_many_counters_it_has() {
    let limit = fixed(1, 60);
    let budget = MemoryBudget::new(1 << 20, 1 << 20);
    let mut shard = Shard::default();
    for domain in ["d", "e"] {
        for name in [b"a", b"b", b"c"] {
            let key = CounterKey::of(domain, name);
            shard.insert(&budget, &key, limit.unused(), Timestamp::EPOCH);
        }
    }
    // Those of the budget, of the shard, and this one.
    assert_eq!(["d", "e"].map(|domain| Arc::strong_count(&budget.account(domain))), [3, 3]);
}
