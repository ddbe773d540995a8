//! Tallies of the callers of a counter.

use super::*;

/// Charges one hit, recorded for some entries.
fn hit_for(bench: &MemoryFixture, name: &str, limit: &Limit, entries: &[&str]) -> Option<bool> {
    let recorded: Vec<Vec<u8>> = entries.iter().map(|entry| entry.as_bytes().to_vec()).collect();
    let check = Check { recorded: &recorded, ..check(name.as_bytes(), limit) };
    bench.store.decide_now(&[check], Prior::Open).pop().unwrap().ok().map(|outcome| outcome.allowed)
}

/// Returns the charged and denied hits of each entry.
fn tallies(bench: &MemoryFixture, name: &str) -> Vec<(String, u64, u64)> {
    let tallies = bench.store.tallies(&CounterKey::of("d", name.as_bytes())).into_iter();
    tallies
        .map(|tally| (String::from_utf8(tally.entry.into()).unwrap(), tally.charged, tally.denied))
        .collect()
}

#[test]
fn tallies_go_with_their_counter_and_their_memory_counts() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(2, 60);
    hit(&bench, "d", "a", &limit);
    let plain = bench.store.used_bytes();
    assert_eq!(hit_for(&bench, "a", &limit, &["user=ann", "path=/a"]), Some(true));
    let recorded = bench.store.used_bytes();
    assert!(recorded > plain);
    for _ in 0..3 {
        assert_eq!(hit_for(&bench, "a", &limit, &["user=ann", "path=/a"]), Some(false));
    }
    assert_eq!(bench.store.used_bytes(), recorded, "known entries take no more");
    assert_eq!(tallies(&bench, "a"), [("path=/a".to_owned(), 1, 3), ("user=ann".to_owned(), 1, 3)]);
    assert_eq!(hit_for(&bench, "denied", &fixed(2, 60), &[]), Some(true), "no entries, no tallies");
    assert!(
        tallies(&bench, "denied").is_empty()
            && bench.store.used_bytes() - recorded <= plain + "denied".len()
    );
    for number in 0..200 {
        hit_for(&bench, "a", &limit, &[&format!("user={number}")]);
    }
    assert!(bench.store.used_bytes() < recorded + 4_000, "{}", bench.store.used_bytes());
    bench.sweep_after(125);
    assert_eq!((bench.store.len(), bench.store.used_bytes(), tallies(&bench, "a")), (0, 0, vec![]));
}

#[test]
fn a_denied_hit_of_a_new_counter_is_tallied_and_kept_for_a_minute() {
    let bench = bench(1 << 20, 1 << 20);
    let none = fixed(0, 60);
    let few = fixed(3, 60);
    let tallied = vec![("user=ann".to_owned(), 0, 5)];
    let recorded = [b"user=ann".to_vec()];
    let hits = Hits::Charge(5);
    let check = Check { hits, recorded: &recorded, ..check(b"a", &few) };
    assert!(!bench.store.decide_now(&[check], Prior::Open)[0].as_ref().unwrap().allowed);
    // A peek, a request that another limit denies, and a ban tally no hits.
    bench.store.decide_now(&[Check { hits: Hits::Peek(5), ..check }], Prior::Open);
    bench.store.decide_now(&[Check { hits: Hits::Charge(1), ..check }], Prior::Denied);
    bench.store.decide_now(&[Check { limit: &none, ..check }], Prior::Open);
    bench.sweep_after(59);
    assert_eq!(tallies(&bench, "a"), tallied);
    bench.store.amend_now(&check, Amendment::Reset).unwrap();
    assert_eq!(tallies(&bench, "a"), []);
}

#[test]
fn a_full_store_tallies_known_callers() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1_000, 365 * 86_400);
    let year = fixed(1, 365 * 86_400);
    assert_eq!(hit_for(&bench, "a", &limit, &["user=ann"]), Some(true));
    assert_eq!(hit_for(&bench, "plain", &limit, &[]), Some(true));
    for number in 0..50_000 {
        hit(&bench, "d", &number.to_string(), &year);
    }
    for user in ["user=ann", "user=bob", "user=cy"] {
        assert_eq!(hit_for(&bench, "a", &limit, &[user]), Some(true), "{user}");
    }
    assert_eq!(tallies(&bench, "a"), [("user=ann".to_owned(), 2, 0), (String::new(), 2, 0)]);
    assert_eq!(hit_for(&bench, "plain", &limit, &["user=ann"]), Some(true));
    assert_eq!(tallies(&bench, "plain"), []);
    assert!(bench.store.used_bytes() <= (1 << 20) + 100);
}
