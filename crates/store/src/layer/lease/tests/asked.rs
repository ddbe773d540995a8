//! Blocks that are leased in the background.

use super::*;

#[tokio::test]
async fn a_store_that_cannot_lend_gets_one_call_per_request() {
    let full =
        Arc::new(MemoryStore::new(Bounds { max_bytes: 0, domain_max_bytes: 0 }, SystemClock));
    let bench = replica(&full);
    let limit = yearly(1_000, Charge::Admitted);
    for _ in 0..20 {
        assert_eq!(bench.try_decide(&[hit("a", &limit)]).await, [Err(StoreError::NoRoom)]);
    }
    assert_eq!(bench.blocks(), 0);
}

#[tokio::test]
async fn a_block_is_leased_once_while_its_answer_is_awaited() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let one = [hit("a", &limit)];
    for _ in 0..7 {
        bench.decide(&one).await;
    }
    assert_eq!(bench.blocks(), 0);
    tokio::join!(bench.decide(&one), bench.decide(&one), bench.decide(&one));
    assert_eq!(bench.blocks(), 1);
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
        let most = CheckInput { hits: Hits::Charge(990), lease: None, ..hit("a", &limit) };
        assert!(other.decide(&[most]).await[0].allowed, "{charge:?}");
        assert!(bench.decide(&[hit("a", &limit)]).await[0].allowed, "{charge:?}");
        assert_eq!((bench.blocks(), bench.left("a", &limit).await), (0, 2), "{charge:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_its_hits_back_to_their_blocks() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    let lease = Some(Lease { hits: 100, ttl: LONG });
    let checks = [Check { lease, ..crate::tests::check(b"a counter of some rule", &limit) }];
    for _ in 0..8 {
        bench.leases.decide(&checks, Prior::Open, within(STORE_TIMEOUT)).await;
        tokio::task::yield_now().await;
    }
    let request = TakenOfBlocks::take(&bench.leases, &checks);
    assert!(request.taken.iter().all(Option::is_some));
    drop(request);
    bench.leases.settled().await;
    assert_eq!((bench.metrics.leases.used.get(), bench.metrics.leases.lost.get()), (0, 0));
}
