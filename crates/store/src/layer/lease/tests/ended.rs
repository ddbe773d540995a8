//! Blocks whose windows have ended.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use tollgate_core::algorithm::fixed_window::FixedWindow;

use super::*;
use crate::layer::tests::FailingStore;

fn charge_of_eight(limit: &Limit) -> Check<'_> {
    Check {
        key: CounterKey::of("d", b"a counter of some rule"),
        limit,
        hits: Hits::Charge(8),
        role: Role::Enforce,
        recorded: &[],
        lease: None,
        hold: None,
    }
}

#[tokio::test(start_paused = true)]
async fn hits_that_count_no_more_are_not_lost_and_not_returned() {
    let window = Window::new(1_000, Micros::from_secs(60)).unwrap();
    let algorithm = Algorithm::FixedWindow(FixedWindow::new(vec![window]).unwrap());
    let limit = Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
    let metrics = Arc::<StoreMetrics>::default();
    let leases = Leases::new(FailingStore(StoreError::Refused), Arc::clone(&metrics));
    let check = charge_of_eight(&limit);
    let owned = OwnedCheck::of(&check);
    let receipt = Receipt { at: Timestamp::EPOCH, hits: 8, of_grant: false };
    let block = || Block::new(&limit, receipt, instant()..instant(), LONG);
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
    let check = charge_of_eight(&limit);
    let put_back = || {
        let receipt = Receipt { at: Timestamp::EPOCH, hits: 8, of_grant: false };
        let block = Block::new(&limit, receipt, instant()..instant(), LONG);
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
