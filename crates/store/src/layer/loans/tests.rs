#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod failing;
mod quotas;

use tollgate_core::algorithm::amend::Amendment;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::algorithm::{Charge, OnStoreError};

use super::*;
use crate::clock::ManualClock;
use crate::tests::{self, SteppedMemory, fixed, memory_at};
use crate::{Store, clock};

const SECOND: u64 = 1_000_000;
/// The beginning of an hour.
const START: u64 = 1_779_998_400 * SECOND;
const HOUR: u64 = 3_600;
const LEASE: Lease = Lease { hits: 100, ttl: Micros::from_secs(10) };

/// A store that lends.
struct LoansFixture {
    loans: Loans<SteppedMemory>,
    store: SteppedMemory,
    clock: Arc<ManualClock>,
    metrics: Arc<StoreMetrics>,
}

fn bench() -> LoansFixture {
    let (store, clock) = memory_at(Timestamp::from_micros(START));
    let metrics = Arc::<StoreMetrics>::default();
    let loans = Loans::new(Arc::clone(&store), Arc::clone(&metrics));
    LoansFixture { loans, store, clock, metrics }
}

/// Returns a limit of an hour.
fn hourly(amount: u32) -> Limit {
    fixed(&[(amount, HOUR)], Charge::Admitted, OnStoreError::Error)
}

fn gcra(amount: u32, charge: Charge) -> Limit {
    tests::gcra(amount, HOUR).charged(charge)
}

fn check(limit: &Limit) -> Check<'_> {
    tests::check(b"a counter of some rule", limit)
}

impl LoansFixture {
    fn pass(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(clock::Clock::now(&self.clock).as_micros() + micros));
    }

    async fn lend(&self, limit: &Limit, lease: &Lease, wanted: u32) -> Lending {
        let lent = self.loans.lend(&check(limit), lease, wanted, clock::instant()).await.unwrap();
        self.loans.settled().await;
        lent
    }

    /// Charges hits of a request.
    async fn charge(&self, limit: &Limit, hits: u32) {
        let charged = Check { hits: Hits::Charge(hits), ..check(limit) };
        let outcomes = self.store.decide(&[charged], Prior::Open, clock::instant()).await;
        assert!(outcomes[0].unwrap().allowed);
    }

    /// Returns the hits that remain for requests.
    async fn left(&self, limit: &Limit) -> u64 {
        let peek = Check { hits: Hits::Peek(0), ..check(limit) };
        let outcomes = self.store.decide(&[peek], Prior::Open, clock::instant()).await;
        outcomes[0].unwrap().report.remaining
    }

    async fn grant(&self, limit: &Limit, hits: u32) {
        let grant = Amendment::Grant { hits, length: Micros::from_secs(HOUR) };
        self.store.amend(&check(limit), grant, clock::instant()).await.unwrap();
    }
}

#[tokio::test]
async fn a_block_is_charged_before_it_is_handed_over() {
    let bench = bench();
    let limit = hourly(10_000);
    let lent = bench.lend(&limit, &LEASE, 50).await;
    let Lending::Block(block) = lent else { panic!("{lent:?}") };
    assert_eq!((block.receipt.hits, block.report.remaining), (50, 9_950));
    assert_eq!(block.receipt.at, Timestamp::from_micros(START));
    assert_eq!(block.usable_for, limit.loan_time(LEASE.ttl, block.receipt.at));
    assert_eq!((bench.left(&limit).await, bench.metrics.loans.blocks.get()), (9_950, 1));
    // A limit that counts denied hits lends only what fits, too.
    let always = hourly(10_000).charged(Charge::Always);
    assert!(matches!(bench.lend(&always, &LEASE, 500).await, Lending::Block(_)));
    assert_eq!(bench.left(&limit).await, 9_850);
}

#[tokio::test]
async fn few_hits_are_left_to_requests_without_a_call_of_the_store() {
    let bench = bench();
    for (amount, wanted) in [(10_000, 3), (63, 100)] {
        let lent = bench.lend(&hourly(amount), &LEASE, wanted).await;
        assert!(matches!(lent, Lending::TooFew(None)), "{lent:?}");
    }
    assert_eq!(bench.store.len(), 0);
}

#[tokio::test]
async fn near_the_limit_a_block_is_cut_and_the_rest_comes_back() {
    for (charged, block, left) in [(840, Some(10), 150), (938, None, 62), (950, None, 50)] {
        let bench = bench();
        let limit = hourly(1_000);
        bench.charge(&limit, charged).await;
        let (hits, report) = match bench.lend(&limit, &LEASE, 500).await {
            Lending::Block(block) => (Some(block.receipt.hits), block.report),
            Lending::TooFew(report) => (None, report.unwrap()),
            Lending::Denied(..) => panic!("{charged}"),
        };
        assert_eq!((hits, report.remaining, bench.left(&limit).await), (block, left, left));
        assert_eq!(bench.metrics.loans.blocks.get(), u64::from(block.is_some()));
    }
}

#[tokio::test]
async fn a_holder_denies_only_for_as_long_as_no_request_of_one_hit_fits() {
    let millis = |millis: u64| Micros::new(millis * 1_000);
    let several = fixed(&[(1_000, HOUR), (2_000, HOUR)], Charge::Always, OnStoreError::Error);
    for (limit, ttl, denied) in [
        (hourly(1_000), millis(10_000), Some(millis(1_000))),
        (hourly(1_000), millis(200), Some(millis(200))),
        (hourly(1_000).charged(Charge::Always), millis(200), Some(millis(200))),
        // 3.6 s for a hit.
        (gcra(1_000, Charge::Admitted), millis(10_000), Some(millis(1_000))),
        (gcra(1_000, Charge::Blamed), millis(10_000), None),
        (several, millis(10_000), None),
        (tests::sliding(1_000, HOUR), millis(10_000), None),
    ] {
        let bench = bench();
        bench.charge(&limit, 1_000).await;
        match bench.lend(&limit, &Lease { ttl, ..LEASE }, 500).await {
            Lending::Denied(report, time) => {
                assert_eq!((report.remaining, Some(time)), (0, denied), "{limit:?}")
            }
            Lending::TooFew(report) => {
                assert_eq!((report.unwrap().remaining, None), (0, denied), "{limit:?}")
            }
            Lending::Block(block) => panic!("{block:?}"),
        }
    }
}

/// The time of one hit is derived from that of a block, and may be a microsecond less.
#[test]
fn a_denial_of_no_time_is_none() {
    let rate = gcra(1_000, Charge::Admitted);
    let of = |retry_after| tests::outcome(false, Some(Micros::new(retry_after))).report;
    let nine_hits = 9 * 3_600_000;
    let denied = |retry_after| denied_for(&rate, 10, &of(retry_after), LEASE.ttl);
    assert_eq!([nine_hits, nine_hits + 1].map(denied), [None, Some(Micros::new(1))]);
}

#[tokio::test]
async fn hits_that_no_holder_may_admit_come_back() {
    let bench = bench();
    let limit = hourly(1_000);
    bench.charge(&limit, 1_000).await;
    bench.grant(&limit, 900).await;
    assert!(matches!(bench.lend(&limit, &LEASE, 50).await, Lending::TooFew(Some(_))));
    bench.charge(&limit, 900).await;
    // At the end of a window.
    let bench = self::bench();
    bench.pass(HOUR * SECOND - 1);
    assert!(matches!(bench.lend(&limit, &LEASE, 50).await, Lending::TooFew(Some(_))));
    assert_eq!(bench.left(&limit).await, 1_000);
    assert_eq!(bench.metrics.loans.blocks.get(), 0);
}

#[tokio::test]
async fn a_return_is_accepted_once_and_until_five_seconds_after_the_loan() {
    let limit = hourly(1_000);
    for (passed, first, second, left) in [
        (0, Returned::Accepted, Returned::Repeated, 990),
        (15 * SECOND - 1, Returned::Accepted, Returned::Repeated, 990),
        (15 * SECOND, Returned::Late, Returned::Late, 950),
    ] {
        let bench = bench();
        let Lending::Block(block) = bench.lend(&limit, &LEASE, 50).await else { panic!() };
        let unused = Receipt { hits: 40, ..block.receipt };
        let returned = LoanReturn { unused, number: [7; 16], usable_for: LEASE.ttl };
        bench.pass(passed);
        for result in [first, second] {
            let found = bench.loans.take_back(&check(&limit), returned, clock::instant()).await;
            assert_eq!(found, Ok(result), "{passed}");
        }
        assert_eq!(bench.left(&limit).await, left);
        let other = LoanReturn { number: [8; 16], ..returned };
        bench.clock.set(Timestamp::from_micros(START - 1));
        let found = bench.loans.take_back(&check(&limit), other, clock::instant()).await;
        assert_eq!(found, Ok(Returned::Late), "ahead of the clock");
    }
}
