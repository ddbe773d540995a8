#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Algorithm, Charge, OnStoreError};
use tollgate_core::descriptor::CounterKey;

use super::*;

const LEASE: Lease = Lease { hits: 100, ttl: Micros::from_secs(1) };

fn limit(amount: u32) -> Limit {
    let window = Window::new(amount, Micros::from_secs(60)).unwrap();
    let algorithm = Algorithm::Gcra(Gcra::new(window, None, None).unwrap());
    Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap()
}

fn check<'a>(key: &'a [u8], limit: &'a Limit) -> Check<'a> {
    Check {
        key: CounterKey::of("d", key),
        limit,
        hits: Hits::Charge(1),
        role: Role::Enforce,
        recorded: &[],
        lease: Some(LEASE),
        hold: None,
    }
}

fn report(remaining: u64) -> Report {
    let [reset_after, retry_after] = [7, 5].map(|seconds| Some(Micros::from_secs(seconds)));
    Report { remaining, beyond: 0, window: 0, reset_after, retry_after }
}

fn outcome(remaining: u64, by: JudgedBy) -> Outcome {
    Outcome { allowed: true, report: report(remaining), by, hold: HoldEffect::Nothing }
}

/// A table, and the time of its requests.
struct TableFixture {
    table: BlockTable,
    start: Instant,
    limit: Limit,
}

impl TableFixture {
    fn new() -> Self {
        Self { table: BlockTable::default(), start: Instant::now(), limit: limit(60_000) }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// Takes a hit, and records that 10,000 are left. Returns the size of the block to lease.
    fn request(&mut self, key: &[u8], ms: u64) -> Option<u32> {
        let now = self.at(ms);
        let check = check(key, &self.limit);
        let looked = self.table.take(&check, &LEASE, now);
        if looked.taken.is_none() {
            self.table.record(&check, Ok(&outcome(10_000, JudgedBy::Store)));
        }
        looked.wanted
    }

    /// Returns the number of the request that wants a block, of at most 30.
    fn hot_after(&mut self, key: &[u8], ms: u64) -> Option<usize> {
        (1..=30).find(|_| self.request(key, ms).is_some())
    }

    fn take(&mut self, hits: u32, ms: u64) -> Option<TakenHits> {
        let now = self.at(ms);
        let check = Check { hits: Hits::Charge(hits), ..check(b"a", &self.limit) };
        self.table.take(&check, &LEASE, now).taken
    }

    /// Records a block of 8 hits that was asked for at an instant, for a second, and was answered
    /// after 100 ms.
    fn lend(&mut self, key: &[u8], ms: u64) -> bool {
        let under_way = self.at(ms)..self.at(ms + 100);
        let block = Arc::new(Block::lent(8, under_way, Duration::from_secs(1)));
        let lent = Lent { report: report(10_000), receipt: None };
        let check = OwnedCheck::of(&check(key, &self.limit));
        self.table.record_block(&check, Ok(&lent), Some(&block))
    }
}

/// Returns two keys that share an entry.
fn colliding() -> (Vec<u8>, Vec<u8>) {
    let limit = limit(1);
    let place = |key: &[u8]| hash(&check(key, &limit)) % (ENTRIES as u64);
    let other = |number: &u32| place(&number.to_be_bytes()) == place(b"a");
    (b"a".to_vec(), (0..).find(other).unwrap().to_be_bytes().to_vec())
}

#[test]
fn a_key_wants_one_block_once_it_is_requested_often_enough_in_a_ttl() {
    for (ms, wanted) in [(999, Some(9)), (1_000, Some(8)), (1_999, Some(8)), (2_000, None)] {
        let mut fixture = TableFixture::new();
        let limit = limit(60_000);
        let peek = Check { hits: Hits::Peek(1), ..check(b"a", &limit) };
        assert!((0..9).all(|_| fixture.table.take(&peek, &LEASE, fixture.start).wanted.is_none()));
        for _ in 0..8 {
            let now = fixture.start;
            assert!(fixture.table.take(&check(b"a", &limit), &LEASE, now).wanted.is_none());
        }
        fixture.table.record(&check(b"a", &limit), Ok(&outcome(10_000, JudgedBy::Store)));
        assert_eq!(fixture.request(b"a", ms), wanted, "at {ms} ms");
        assert!(wanted.is_none() || fixture.request(b"a", ms).is_none(), "it is asked for");
    }
    assert_eq!(TableFixture::new().hot_after(b"a", 0), Some(8));
}

#[test]
fn what_another_than_the_store_decided_does_not_say_what_is_left() {
    let mut fixture = TableFixture::new();
    let limit = limit(60_000);
    let check = check(b"a", &limit);
    for _ in 0..9 {
        assert_eq!(fixture.table.take(&check, &LEASE, fixture.start).wanted, None);
        let by_share = outcome(10_000, JudgedBy::Share(StoreError::Late));
        fixture.table.record(&check, Ok(&outcome(10_000, JudgedBy::Store)));
        fixture.table.record(&check, Ok(&by_share));
    }
    fixture.table.record(&check, Ok(&outcome(10_000, JudgedBy::Store)));
    assert_eq!(fixture.table.take(&check, &LEASE, fixture.start).wanted, Some(10));
}

#[test]
fn hits_are_taken_from_blocks_and_reported_with_what_is_left_of_them() {
    let mut fixture = TableFixture::new();
    fixture.hot_after(b"a", 0);
    assert!(!fixture.lend(b"b", 0), "no block of it is wanted");
    assert!(fixture.lend(b"a", 0));
    assert!(fixture.take(9, 0).is_none());
    let taken = fixture.take(3, 900).unwrap().outcome;
    assert_eq!((taken.allowed, taken.by, taken.hold), (true, JudgedBy::Block, HoldEffect::Nothing));
    let reset_after = Some(Micros::new(6_200_000));
    assert_eq!(taken.report, Report { reset_after, retry_after: None, ..report(10_005) });
    assert!(fixture.take(5, 999).is_some() && fixture.take(1, 999).is_none());
}

#[test]
fn a_key_has_two_blocks_at_most_and_ended_ones_make_room() {
    let mut fixture = TableFixture::new();
    fixture.hot_after(b"a", 0);
    assert!(fixture.lend(b"a", 0));
    assert_eq!((0..4).find(|_| fixture.request(b"a", 0).is_some()), None, "4 of 8 are left");
    assert_eq!(fixture.hot_after(b"a", 0), Some(2), "a quarter is left");
    assert!(fixture.lend(b"a", 0));
    assert!(!fixture.lend(b"a", 0));
    assert_eq!((0..2).find(|_| fixture.request(b"a", 999).is_some()), None, "two are enough");
    assert!(fixture.hot_after(b"a", 1_000).is_some());
    assert!(fixture.lend(b"a", 1_000));
}

#[test]
fn a_block_serves_its_own_counter_limit_and_callers_only() {
    let [limit, lower] = [60_000, 59_999].map(limit);
    let recorded = [b"user=bob".to_vec()];
    let own = check(b"a", &limit);
    let beside = Check { key: own.key.in_one_slot(true), ..own };
    for other in [beside, Check { limit: &lower, ..own }, Check { recorded: &recorded, ..own }] {
        let mut fixture = TableFixture::new();
        fixture.hot_after(b"a", 0);
        assert!(fixture.lend(b"a", 0));
        let now = fixture.start;
        let [own, other] = [own, other].map(|check| fixture.table.take(&check, &LEASE, now).taken);
        assert!(own.is_some() && other.is_none(), "{other:?}");
    }
}

#[test]
fn a_key_that_is_lent_nothing_asks_again_once_hits_are_left() {
    let mut fixture = TableFixture::new();
    fixture.hot_after(b"a", 0);
    let check = OwnedCheck::of(&check(b"a", &fixture.limit));
    assert!(!fixture.table.record_block(&check, Err(&StoreError::Late), None));
    assert_eq!(fixture.request(b"a", 0), None, "none are known to be left");
    assert_eq!(fixture.request(b"a", 0), Some(10));
}

#[test]
fn a_key_takes_the_entry_of_another_once_that_is_requested_less() {
    let (one, other) = colliding();
    for (requests, after) in [(0, 8), (1, 8), (2, 9), (3, 10)] {
        let mut fixture = TableFixture::new();
        assert!((0..requests).all(|_| fixture.request(&one, 0).is_none()));
        assert_eq!(fixture.hot_after(&other, 0), Some(after), "after {requests} of the other");
    }
}

#[test]
fn a_key_with_a_block_keeps_its_entry_until_it_has_ended() {
    let (one, other) = colliding();
    let mut fixture = TableFixture::new();
    fixture.hot_after(&one, 0);
    assert_eq!(fixture.hot_after(&other, 0), None, "a block is asked for");
    assert!(fixture.lend(&one, 1_999));
    assert_eq!(fixture.hot_after(&other, 2_998), None);
    assert_eq!(fixture.hot_after(&other, 2_999), Some(8));
}

#[test]
fn keys_with_the_same_recorded_entries_have_a_demand_of_their_own() {
    let mut fixture = TableFixture::new();
    let recorded: Vec<Vec<u8>> = (0..200u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let limit = limit(60_000);
    let now = fixture.start;
    let mut wanted = |key: &[u8]| {
        let check = Check { recorded: &recorded, ..check(key, &limit) };
        let looked = fixture.table.take(&check, &LEASE, now);
        fixture.table.record(&check, Ok(&outcome(10_000, JudgedBy::Store)));
        looked.wanted
    };
    assert!((0..7).all(|_| wanted(b"a").is_none()));
    assert_eq!(wanted(b"b"), None, "the first request of another key");
}
