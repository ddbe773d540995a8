#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod amended;
mod asked;
mod ended;

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{JudgedBy, Outcome};
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::quota::{Report, Window};
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError, Receipt};
use tollgate_core::descriptor::{CounterKey, Identity, KeyBuffer};

use super::*;
use crate::Lent;
use crate::clock::SystemClock;
use crate::memory::{Bounds, MemoryStore};

type SharedMemory = Arc<MemoryStore<SystemClock>>;

/// Long enough that no block ends during a test.
const LONG: Micros = Micros::from_secs(3_600);

/// One replica.
struct ReplicaFixture {
    leases: Leases<SharedMemory>,
    store: SharedMemory,
    metrics: Arc<StoreMetrics>,
}

/// One check of a request.
#[derive(Clone)]
struct CheckInput<'a> {
    key: &'a str,
    in_one_slot: bool,
    limit: &'a Limit,
    hits: Hits,
    role: Role,
    recorded: Vec<Vec<u8>>,
    lease: Option<Lease>,
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
    let windows = vec![Window::new(amount, Micros::from_secs(365 * 86_400)).unwrap()];
    let algorithm =
        Algorithm::SlidingWindow(SlidingWindow::new(windows, 60, Estimate::Strict).unwrap());
    Limit::new(algorithm, charge, OnStoreError::Error).unwrap()
}

/// Creates a charge of one hit.
fn hit<'a>(key: &'a str, limit: &'a Limit) -> CheckInput<'a> {
    let lease = Some(Lease { hits: 100, ttl: LONG });
    CheckInput {
        key,
        in_one_slot: false,
        limit,
        hits: Hits::Charge(1),
        role: Role::Enforce,
        recorded: vec![],
        lease,
    }
}

impl ReplicaFixture {
    /// Decides a request, then lets background tasks run.
    async fn decide(&self, asked: &[CheckInput<'_>]) -> Vec<Outcome> {
        self.try_decide(asked).await.into_iter().map(Result::unwrap).collect()
    }

    async fn try_decide(&self, asked: &[CheckInput<'_>]) -> Vec<Result<Outcome, StoreError>> {
        let mut keys = KeyBuffer::default();
        let of_key = |ask: &CheckInput<'_>| {
            keys.begin();
            keys.push(ask.key.as_bytes());
            let range = keys.finish(&Identity::of([b"rule".as_slice()]), None);
            keys.key("d", &range).bytes().to_vec()
        };
        let bytes: Vec<Vec<u8>> = asked.iter().map(of_key).collect();
        let check = |(ask, bytes)| {
            let CheckInput { in_one_slot, limit, hits, role, ref recorded, lease, .. } =
                *(ask as &'_ CheckInput<'_>);
            let key = CounterKey::of("d", bytes as &Vec<u8>).in_one_slot(in_one_slot);
            Check { key, limit, hits, role, recorded, lease, hold: None }
        };
        let checks: Vec<Check<'_>> = asked.iter().zip(&bytes).map(check).collect();
        let outcomes = self.leases.decide(&checks, Prior::Open, within(STORE_TIMEOUT)).await;
        tokio::task::yield_now().await;
        outcomes.to_vec()
    }

    /// Makes a key hot enough to have a block.
    async fn heat(&self, ask: &CheckInput<'_>) {
        for _ in 0..8 {
            self.decide(std::slice::from_ref(ask)).await;
        }
        assert!(self.outstanding() > 0);
    }

    /// Returns the remaining hits in the store itself.
    async fn left(&self, key: &str, limit: &Limit) -> u64 {
        let other = replica(&self.store);
        let peek = CheckInput { hits: Hits::Peek(0), lease: None, ..hit(key, limit) };
        other.decide(&[peek]).await[0].report.remaining
    }

    async fn amend(&self, key: &str, limit: &Limit, amendment: Amendment) -> Amended {
        let mut keys = KeyBuffer::default();
        keys.begin();
        keys.push(key.as_bytes());
        let range = keys.finish(&Identity::of([b"rule".as_slice()]), None);
        let key = keys.key("d", &range);
        let check = Check {
            key,
            limit,
            hits: Hits::Peek(0),
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: None,
        };
        self.leases.amend(&check, amendment, within(STORE_TIMEOUT)).await.unwrap()
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
async fn cold_keys_have_no_blocks() {
    let bench = bench();
    let limit = yearly(10_000, Charge::Admitted);
    for _ in 0..7 {
        for key in ["a", "b", "c"] {
            assert_eq!(bench.decide(&[hit(key, &limit)]).await[0].by, JudgedBy::Store);
        }
    }
    let once: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    for key in &once {
        bench.decide(&[hit(key, &limit)]).await;
    }
    assert_eq!(bench.blocks(), 0);
}

#[tokio::test]
async fn a_hot_key_keeps_its_place_among_many_that_come_once() {
    let bench = bench();
    let limit = yearly(100_000, Charge::Admitted);
    let once: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let mut by_block = 0;
    for key in &once {
        bench.decide(&[hit(key, &limit)]).await;
        by_block += u64::from(bench.decide(&[hit("hot", &limit)]).await[0].by == JudgedBy::Block);
    }
    assert!(by_block > 19_000, "{by_block} of 20000");
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
        bench.heat(&hit("a", &leased)).await;
        let one = CheckInput { lease: None, ..hit("few", &few) };
        assert!(bench.decide(std::slice::from_ref(&one)).await[0].allowed);
        for _ in 0..3 {
            let outcomes = bench.decide(&[hit("a", &leased), one.clone()]).await;
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
    bench.heat(&one).await;
    let outcomes = bench.decide(&[one.clone(), two.clone()]).await;
    assert_eq!([outcomes[0].by, outcomes[1].by], [JudgedBy::Block, JudgedBy::Store]);
    for _ in 0..7 {
        bench.decide(std::slice::from_ref(&two)).await;
    }
    let outcomes = bench.decide(&[one.clone(), two.clone()]).await;
    assert_eq!([outcomes[0].by, outcomes[1].by], [JudgedBy::Block, JudgedBy::Block]);
    assert_eq!([outcomes[0].report.remaining, outcomes[1].report.remaining], [990, 991]);
    let denied = CheckInput { lease: None, hits: Hits::Charge(2), ..hit("few", &few) };
    let outcomes = bench.decide(&[one, denied, two]).await;
    assert_eq!([outcomes[0].report.remaining, outcomes[2].report.remaining], [990, 991]);
    bench.leases.settled().await;
    assert_eq!([bench.left("a", &limit).await, bench.left("b", &limit).await], [990, 991]);
}

#[tokio::test]
async fn a_store_that_fails_for_another_descriptor_gives_the_hit_back_too() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    bench.heat(&hit("a", &limit)).await;
    // The counter exists already, with another algorithm.
    let window = Window::new(5, Micros::from_secs(60)).unwrap();
    let fixed = Algorithm::FixedWindow(FixedWindow::new(vec![window]).unwrap());
    let fixed = Limit::new(fixed, Charge::Admitted, OnStoreError::Error).unwrap();
    bench.decide(&[CheckInput { lease: None, ..hit("b", &limit) }]).await;
    let outcomes =
        bench.try_decide(&[hit("a", &limit), CheckInput { lease: None, ..hit("b", &fixed) }]).await;
    assert!(outcomes[0].is_ok() && outcomes[1].is_err());
    bench.leases.settled().await;
    assert_eq!(bench.left("a", &limit).await, 992);
}

#[tokio::test]
async fn peeks_refunds_votes_and_duplicate_counters_go_to_the_store() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let one = hit("a", &limit);
    bench.heat(&one).await;
    let of_store = [
        vec![CheckInput { hits: Hits::Peek(1), ..one.clone() }],
        vec![CheckInput { hits: Hits::Refund(1), ..one.clone() }],
        vec![CheckInput { role: Role::Quota, ..one.clone() }],
        vec![one.clone(), one.clone()],
        vec![CheckInput { lease: None, ..one.clone() }],
        vec![CheckInput { hits: Hits::Charge(500), ..one.clone() }],
    ];
    for asked in of_store {
        let outcomes = bench.decide(&asked).await;
        assert!(outcomes.iter().all(|outcome| outcome.by == JudgedBy::Store));
    }
    let in_shadow = CheckInput { role: Role::Shadow, ..one };
    assert_eq!(bench.decide(&[in_shadow]).await[0].by, JudgedBy::Block);
}

#[tokio::test]
async fn another_amount_ends_a_block() {
    let bench = bench();
    let many = yearly(1_000, Charge::Admitted);
    let few = yearly(8, Charge::Admitted);
    bench.heat(&hit("a", &many)).await;
    assert!(!bench.decide(&[hit("a", &few)]).await[0].allowed);
    assert_eq!(bench.decide(&[hit("a", &many)]).await[0].by, JudgedBy::Store);
}

#[tokio::test]
async fn a_block_is_of_no_counter_beside_the_others_of_its_domain_but_its_own() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    for in_one_slot in [false, true] {
        let one = CheckInput { in_one_slot, ..hit("a", &limit) };
        bench.heat(&one).await;
        assert_eq!(bench.decide(std::slice::from_ref(&one)).await[0].by, JudgedBy::Block);
        let other = CheckInput { in_one_slot: !in_one_slot, ..one };
        assert_eq!(bench.decide(&[other]).await[0].by, JudgedBy::Store);
    }
}

#[tokio::test]
async fn a_block_serves_only_the_callers_it_is_recorded_for() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let of =
        |name: &str| CheckInput { recorded: vec![name.as_bytes().to_vec()], ..hit("a", &limit) };
    bench.heat(&of("user=ann")).await;
    assert_eq!(bench.decide(&[of("user=bob")]).await[0].by, JudgedBy::Store);
    assert_eq!(bench.decide(&[of("user=ann")]).await[0].by, JudgedBy::Block);
}

#[test]
fn the_time_to_the_end_is_counted_from_the_answer() {
    let mut leases = BlockTable::default();
    let limit = yearly(1_000, Charge::Admitted);
    let sent = Instant::now();
    let lease = Lease { hits: 100, ttl: LONG };
    let key = CounterKey::of("d", b"a counter of some rule");
    let check = Check {
        key,
        limit: &limit,
        hits: Hits::Charge(1),
        role: Role::Enforce,
        recorded: &[],
        lease: Some(lease),
        hold: None,
    };
    let report = Report {
        remaining: 900,
        beyond: 0,
        window: 0,
        reset_after: Some(Micros::new(1_000)),
        retry_after: None,
        ban_window_ends_after: None,
    };
    let mut ask = || {
        let wanted = leases.take(&check, &lease, sent).wanted;
        leases.record(
            &check,
            Ok(&Outcome { allowed: true, report, by: JudgedBy::Store, hold: HoldEffect::Nothing }),
        );
        wanted
    };
    let wanted = (0..8).find_map(|_| ask());
    assert_eq!(wanted, Some(8));
    let receipt = Receipt { at: Timestamp::EPOCH, hits: 8, of_grant: false };
    let at = |us| sent + Duration::from_micros(us);
    let block = Arc::new(Block::new(&limit, receipt, sent..at(100), LONG));
    assert!(leases.record_block(
        &OwnedCheck::of(&check),
        Ok(&Lent { report, receipt: Some(receipt) }),
        Some(&block)
    ));
    let taken = leases.take(&check, &lease, at(150)).taken.unwrap();
    assert_eq!(taken.outcome.report.reset_after, Some(Micros::new(950)));
}
