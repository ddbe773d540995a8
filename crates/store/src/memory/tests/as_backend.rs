//! The store as a backend, and the parts of a scan.

use tollgate_core::algorithm::hold::{Hold, HoldAction, HoldRequest, OnSettle};

use super::*;
use crate::backend::Backend as _;
use crate::servers::ServerList;

#[tokio::test]
async fn a_backend_in_memory_belongs_to_its_process_and_has_the_counters_of_the_store() {
    let MemoryFixture { store, clock } = bench(1 << 20, 1 << 20);
    let store = Arc::new(store);
    assert!(!store.is_shared());
    assert!(matches!(store.servers(), ServerList::InProcess));
    assert_eq!((store.len(), store.is_empty()), (0, true));
    let limit =
        fixed(9, 60).with_hold(Hold { ttl: Micros::from_secs(60), on_settle: OnSettle::Charge });
    let recorded = [b"user=ann".to_vec()];
    let hold = HoldRequest { id: b"id", action: HoldAction::Reserve, ttl: None };
    let hits = Hits::Charge(2);
    let check = Check { hits, recorded: &recorded, hold: Some(&hold), ..check(b"a", &limit) };
    store.decide_now(&[check], Prior::Open)[0].unwrap();
    let memory: &MemoryStore<_> = &store;
    let now = clock.now();
    let tallies = store.tallies(&check.key).await.unwrap();
    assert_eq!(tallies, memory.tallies(&check.key));
    assert_eq!(tallies.iter().map(|tally| tally.charged).collect::<Vec<_>>(), [2]);
    let open = store.open_holds(&check.key, now).await.unwrap();
    assert_eq!(open, memory.open_holds(&check.key, now));
    assert_eq!(open.holds.iter().map(|hold| hold.hits).collect::<Vec<_>>(), [2]);
    let part = store.scan(None).await.unwrap();
    assert_eq!(store.time_at(&part.at).await.unwrap(), now);
}

#[test]
fn a_scan_of_an_empty_store_has_a_part_of_each_shard() {
    let bench = bench(1 << 20, 1 << 20);
    let mut next = bench.store.scan(None).next;
    let mut parts = 1;
    while let Some(at) = next {
        let part = bench.store.scan(Some(at));
        assert!(part.keys.is_empty());
        next = part.next;
        parts += 1;
    }
    assert_eq!(parts, SHARDS);
}

#[test]
fn a_scan_has_no_empty_part_after_the_last_entry_of_a_shard() {
    let bench = bench(1 << 20, 1 << 20);
    let state = fixed(1, 60).unused();
    let mut shard = bench.store.shards[0].lock();
    // A part has 100 entries.
    for name in (0..u32::MAX).map(u32::to_be_bytes) {
        let key = CounterKey::of("d", &name);
        shard.insert(&bench.store.budget, &key, state.clone(), Timestamp::EPOCH);
        if shard.entries().is_multiple_of(100) {
            break;
        }
    }
    let parts = shard.entries() / 100;
    drop(shard);
    let mut at = None;
    for _ in 0..parts {
        at = bench.store.scan(at).next;
    }
    assert_eq!(at.unwrap().cursor, 1 << 32, "the first entry of the next shard");
}

#[test]
fn a_counter_matters_to_the_end_of_its_window() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(1, 60);
    let until = || bench.store.matters_until(&CounterKey::of("d", b"a"), &limit);
    assert_eq!(until(), None);
    hit(&bench, "d", "a", &limit);
    let end = (START / (60 * SECOND) + 1) * 60 * SECOND;
    assert_eq!(until(), Some(Timestamp::from_micros(end)));
}
