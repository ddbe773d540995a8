#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{JudgedBy, Outcome};
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::{Charge, Limit, OnStoreError, Receipt};

use super::*;
use crate::clock::SystemClock;
use crate::layer::tests::FailingStore;
use crate::memory::{Bounds, MemoryStore};
use crate::tests::{self, fixed};
use crate::{Lender, Lent};

type SharedMemory = Arc<MemoryStore<SystemClock>>;

/// Long enough that no block ends during a test.
const LONG: Micros = Micros::from_secs(3_600);

/// One replica.
struct ReplicaFixture {
    leases: Leases<SharedMemory>,
    store: SharedMemory,
    metrics: Arc<StoreMetrics>,
}

fn memory() -> SharedMemory {
    Arc::new(MemoryStore::new(
        Bounds { max_bytes: 1 << 26, domain_max_bytes: 1 << 26 },
        SystemClock,
    ))
}

fn replica(store: &SharedMemory) -> ReplicaFixture {
    let metrics = Arc::<StoreMetrics>::default();
    ReplicaFixture {
        leases: Leases::new(Arc::clone(store), Arc::clone(&metrics)),
        store: Arc::clone(store),
        metrics,
    }
}

fn bench() -> ReplicaFixture {
    replica(&memory())
}

/// Creates a limit with a period of a year, so that nothing expires during a test.
fn yearly(amount: u32, charge: Charge) -> Limit {
    tests::sliding(amount, 365 * 86_400).charged(charge)
}

/// Creates a charge of one hit.
fn hit<'a>(key: &'a str, limit: &'a Limit) -> Check<'a> {
    let lease = Some(Lease { hits: 100, ttl: LONG });
    Check { lease, ..tests::check(key.as_bytes(), limit) }
}

impl ReplicaFixture {
    /// Decides a request, then lets background tasks run.
    async fn decide(&self, checks: &[Check<'_>]) -> Vec<Outcome> {
        self.try_decide(checks).await.into_iter().map(Result::unwrap).collect()
    }

    async fn try_decide(&self, checks: &[Check<'_>]) -> Outcomes {
        let outcomes = self.leases.decide(checks, Prior::Open, within(STORE_TIMEOUT)).await;
        tokio::task::yield_now().await;
        outcomes
    }

    /// Makes a key hot enough to have a block.
    async fn heat(&self, check: Check<'_>) {
        for _ in 0..8 {
            self.decide(&[check]).await;
        }
        assert!(self.outstanding() > 0);
    }

    /// Returns the remaining hits in the store itself.
    async fn left(&self, key: &str, limit: &Limit) -> u64 {
        let other = replica(&self.store);
        let peek = Check { hits: Hits::Peek(0), lease: None, ..hit(key, limit) };
        other.decide(&[peek]).await[0].report.remaining
    }

    fn blocks(&self) -> u64 {
        self.metrics.leases.blocks.get()
    }

    fn outstanding(&self) -> i64 {
        self.metrics.leases.outstanding.get()
    }
}

#[tokio::test]
async fn a_hot_key_is_answered_from_blocks_and_unused_hits_are_returned() {
    let bench = bench();
    let limit = yearly(10_000, Charge::Admitted);
    let mut by_block = 0;
    for taken in 1..=1_000 {
        let outcome = bench.decide(&[hit("a", &limit)]).await[0];
        assert!(outcome.allowed);
        assert_eq!(outcome.report.remaining, 10_000 - taken, "one replica alone knows exactly");
        by_block += u64::from(outcome.by == JudgedBy::Block);
    }
    let asked = 1_000 - by_block + bench.blocks();
    assert!(by_block > 950 && asked < 50, "{by_block} hits of {} blocks", bench.blocks());
    bench.leases.settled().await;
    assert_eq!(bench.left("a", &limit).await, 9_000);
    assert_eq!((bench.outstanding(), bench.metrics.leases.used.get()), (0, by_block));
    assert_eq!(bench.metrics.leases.lost.get(), 0);
    assert_eq!(
        bench.decide(&[hit("a", &limit)]).await[0].by,
        JudgedBy::Store,
        "no more blocks after the end"
    );
}

#[tokio::test]
async fn the_whole_limit_is_admitted_before_the_first_denial_by_any_replica() {
    for amount in [100, 1_000, 5_000] {
        let store = memory();
        let limit = yearly(amount, Charge::Admitted);
        let replicas = [replica(&store), replica(&store), replica(&store)];
        let mut admitted = 0;
        for replica in replicas.iter().cycle() {
            if !replica.decide(&[hit("a", &limit)]).await[0].allowed {
                break;
            }
            admitted += 1;
        }
        assert_eq!(admitted, amount);
        let by_blocks: u64 = replicas.iter().map(ReplicaFixture::blocks).sum();
        assert!(by_blocks > 0, "{amount}");
    }
}

#[tokio::test]
async fn another_descriptors_denial_gives_the_hit_back_to_the_block() {
    let many = yearly(1_000, Charge::Admitted);
    let few = yearly(1, Charge::Admitted);
    for (charge, kept) in [(Charge::Admitted, 0), (Charge::Blamed, 0), (Charge::Always, 3)] {
        let bench = bench();
        let leased = many.charged(charge);
        bench.heat(hit("a", &leased)).await;
        let one = Check { lease: None, ..hit("few", &few) };
        assert!(bench.decide(&[one]).await[0].allowed);
        for _ in 0..3 {
            let outcomes = bench.decide(&[hit("a", &leased), one]).await;
            assert_eq!([outcomes[0].allowed, outcomes[1].allowed], [true, false]);
            assert_eq!(outcomes[0].by, JudgedBy::Block);
        }
        bench.leases.settled().await;
        assert_eq!(bench.left("a", &leased).await, 1_000 - 8 - kept, "{charge:?}");
    }
}

#[tokio::test]
async fn a_request_of_several_leased_limits_is_answered_of_all_their_blocks_or_of_none() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let few = yearly(1, Charge::Admitted);
    let one = hit("a", &limit);
    let two = hit("b", &limit);
    bench.heat(one).await;
    let outcomes = bench.decide(&[one, two]).await;
    assert_eq!([outcomes[0].by, outcomes[1].by], [JudgedBy::Block, JudgedBy::Store]);
    for _ in 0..7 {
        bench.decide(&[two]).await;
    }
    let outcomes = bench.decide(&[one, two]).await;
    assert_eq!([outcomes[0].by, outcomes[1].by], [JudgedBy::Block, JudgedBy::Block]);
    assert_eq!([outcomes[0].report.remaining, outcomes[1].report.remaining], [990, 991]);
    let denied = Check { lease: None, hits: Hits::Charge(2), ..hit("few", &few) };
    let outcomes = bench.decide(&[one, denied, two]).await;
    assert_eq!([outcomes[0].report.remaining, outcomes[2].report.remaining], [990, 991]);
    bench.leases.settled().await;
    assert_eq!([bench.left("a", &limit).await, bench.left("b", &limit).await], [990, 991]);
}

#[tokio::test]
async fn a_store_that_fails_for_another_descriptor_gives_the_hit_back_too() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    bench.heat(hit("a", &limit)).await;
    // The counter exists already, with another algorithm.
    let fixed = fixed(&[(5, 60)], Charge::Admitted, OnStoreError::Error);
    bench.decide(&[Check { lease: None, ..hit("b", &limit) }]).await;
    let outcomes =
        bench.try_decide(&[hit("a", &limit), Check { lease: None, ..hit("b", &fixed) }]).await;
    assert!(outcomes[0].is_ok() && outcomes[1].is_err());
    bench.leases.settled().await;
    assert_eq!(bench.left("a", &limit).await, 992);
}

#[tokio::test]
async fn peeks_refunds_votes_and_duplicate_counters_go_to_the_store() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let one = hit("a", &limit);
    bench.heat(one).await;
    let of_store = [
        vec![Check { hits: Hits::Peek(1), ..one }],
        vec![Check { hits: Hits::Refund(1), ..one }],
        vec![Check { role: Role::Quota, ..one }],
        vec![one, one],
        vec![Check { lease: None, ..one }],
        vec![Check { hits: Hits::Charge(500), ..one }],
    ];
    for asked in of_store {
        let outcomes = bench.decide(&asked).await;
        assert!(outcomes.iter().all(|outcome| outcome.by == JudgedBy::Store));
    }
    let in_shadow = Check { role: Role::Shadow, ..one };
    assert_eq!(bench.decide(&[in_shadow]).await[0].by, JudgedBy::Block);
}

#[tokio::test]
async fn a_block_that_does_not_fit_is_not_charged_whatever_the_mode() {
    let all = yearly(1_000, Charge::Admitted);
    for charge in [Charge::Admitted, Charge::Blamed, Charge::Always, Charge::Afterwards] {
        let bench = bench();
        let limit = all.charged(charge);
        for _ in 0..7 {
            bench.decide(&[hit("a", &limit)]).await;
        }
        // Another replica takes nearly all of what this one knows to be left.
        let other = replica(&bench.store);
        let most = Check { hits: Hits::Charge(990), lease: None, ..hit("a", &limit) };
        assert!(other.decide(&[most]).await[0].allowed, "{charge:?}");
        assert!(bench.decide(&[hit("a", &limit)]).await[0].allowed, "{charge:?}");
        assert_eq!((bench.blocks(), bench.left("a", &limit).await), (0, 2), "{charge:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_its_hits_back_to_their_blocks() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let checks = [hit("a", &limit)];
    bench.heat(checks[0]).await;
    let request = TakenOfBlocks::take(&bench.leases, &checks);
    assert!(request.taken.iter().all(Option::is_some));
    drop(request);
    bench.leases.settled().await;
    assert_eq!((bench.metrics.leases.used.get(), bench.metrics.leases.lost.get()), (0, 0));
}

/// Returns a block of 8 hits that were charged just now.
fn block_of_eight(limit: &Limit) -> Block {
    let receipt = Receipt { at: Timestamp::EPOCH, hits: 8, of_grant: false };
    Block::new(limit, receipt, instant()..instant(), LONG)
}

#[tokio::test(start_paused = true)]
async fn hits_that_count_no_more_are_not_lost_and_not_returned() {
    let limit = fixed(&[(1_000, 60)], Charge::Admitted, OnStoreError::Error);
    let metrics = Arc::<StoreMetrics>::default();
    let leases = Leases::new(FailingStore(StoreError::Refused), Arc::clone(&metrics));
    let owned = OwnedCheck::of(&hit("a", &limit));
    let block = || block_of_eight(&limit);
    let ended = block();
    tokio::time::advance(Duration::from_secs(61)).await;
    for (block, hits, lost) in [(ended, 8, 0), (block(), 0, 0), (block(), 8, 8)] {
        leases.table.give_back(&owned, &block, hits).await;
        assert_eq!(metrics.leases.lost.get(), lost);
    }
}

#[test]
fn hits_of_an_ended_block_are_lost_only_if_no_task_can_return_them() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let check = Check { hits: Hits::Charge(8), ..hit("a", &limit) };
    let put_back = || {
        let block = block_of_eight(&limit);
        block.close();
        let report = limit.report(&limit.unused(), None, Timestamp::EPOCH).unwrap();
        let hold = HoldEffect::Nothing;
        let outcome = Outcome { allowed: true, report, by: JudgedBy::Block, hold };
        bench.leases.put_back(&check, &mut TakenHits { block: Arc::new(block), outcome });
        bench.metrics.leases.lost.get()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(async { put_back() }), 0);
    runtime.block_on(bench.leases.under_way.settled());
    assert_eq!(bench.metrics.leases.lost.get(), 0);
    assert_eq!(put_back(), 8, "without a runtime");
}

/// A store that answers a second after it has lent.
struct SlowLender(SharedMemory);

impl Store for SlowLender {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        self.0.decide(checks, prior, deadline).await
    }

    async fn amend(&self, _: &Check<'_>, _: Amendment, _: Instant) -> Result<Amended, StoreError> {
        Err(StoreError::Refused)
    }

    fn now(&self) -> Timestamp {
        Store::now(&self.0)
    }
}

impl Lender for SlowLender {
    async fn lend(&self, check: &Check<'_>, deadline: Instant) -> Result<Lent, StoreError> {
        let lent = self.0.lend(check, deadline).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        lent
    }

    async fn take_back(&self, _: &Check<'_>, _: Receipt, _: Instant) -> Result<(), StoreError> {
        Err(StoreError::Refused)
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_block_begins_with_its_call() {
    let limit = yearly(1_000, Charge::Admitted);
    let leases = Leases::new(SlowLender(memory()), Arc::default());
    let lease = Some(Lease { hits: 100, ttl: Micros::from_secs(3) });
    let checks = [Check { lease, ..hit("a", &limit) }];
    let judged_by = async || {
        let outcomes = leases.decide(&checks, Prior::Open, within(STORE_TIMEOUT)).await;
        outcomes[0].unwrap().by
    };
    for _ in 0..8 {
        assert_eq!(judged_by().await, JudgedBy::Store);
    }
    for (ms, by) in [(2_999, JudgedBy::Block), (1, JudgedBy::Store)] {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        assert_eq!(judged_by().await, by);
    }
}
