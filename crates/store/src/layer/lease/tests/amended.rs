//! Blocks of counters that an operator amends.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use super::*;

#[tokio::test]
async fn hits_leased_before_a_reset_are_not_returned_after_it() {
    let bench = bench();
    let limit = yearly(1_000, Charge::Admitted);
    bench.heat(&hit("a", &limit)).await;
    bench.amend("a", &limit, Amendment::Reset).await;
    let other = replica(&bench.store);
    for _ in 0..200 {
        other.decide(&[CheckInput { lease: None, ..hit("a", &limit) }]).await;
    }
    bench.leases.settled().await;
    assert!(bench.metrics.leases.unused.get() > 0);
    assert_eq!(bench.left("a", &limit).await, 800);
}

#[tokio::test]
async fn blocks_that_a_grant_paid_go_back_to_it() {
    let bench = bench();
    let limit = yearly(10, Charge::Admitted);
    for _ in 0..10 {
        bench.decide(&[CheckInput { lease: None, ..hit("a", &limit) }]).await;
    }
    bench.amend("a", &limit, Amendment::Grant { hits: 1_000, length: LONG }).await;
    bench.heat(&hit("a", &limit)).await;
    bench.leases.settled().await;
    let amended = bench.amend("a", &limit, Amendment::Look).await;
    assert_eq!(amended.after.grant.map(|grant| grant.left), Some(1_000 - 8));
    assert_eq!(amended.after.windows[0].used, 10);
}
