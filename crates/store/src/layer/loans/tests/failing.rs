//! Stores that fail.

use super::*;
use crate::layer::tests::FailingStore;
use crate::servers::ServerList;

fn failing(error: StoreError) -> (Loans<FailingStore>, Arc<StoreMetrics>) {
    let metrics = Arc::<StoreMetrics>::default();
    (Loans::new(FailingStore(error), Arc::clone(&metrics)), metrics)
}

#[tokio::test]
async fn hits_whose_charge_is_unknown_are_lost() {
    let limit = hourly(1_000);
    for (error, lost) in [
        (StoreError::Late, 50),
        (StoreError::Lost, 50),
        (StoreError::Unavailable, 0),
        (StoreError::Refused, 0),
    ] {
        let (loans, metrics) = failing(error);
        let lent = loans.lend(&check(&limit), &LEASE, 50, clock::instant()).await;
        assert!(lent.is_err_and(|found| found == error));
        assert_eq!(metrics.loans.lost.get(), lost, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn hits_that_cannot_be_taken_back_are_lost() {
    let limit = hourly(1_000);
    let receipt = Receipt { at: Timestamp::from_micros(START), hits: 40, of_grant: false };
    for error in [StoreError::Refused, StoreError::Unavailable] {
        let (loans, metrics) = failing(error);
        let begun = clock::instant();
        loans.give_back(&check(&limit), Receipt { hits: 0, ..receipt });
        loans.settled().await;
        assert_eq!(metrics.loans.lost.get(), 0);
        loans.give_back(&check(&limit), receipt);
        loans.settled().await;
        assert_eq!(metrics.loans.lost.get(), 40);
        // Only a call that was not sent is tried again.
        let passed = clock::instant().saturating_duration_since(begun);
        let is_tried_again = error == StoreError::Unavailable;
        assert_eq!(passed > STORE_TIMEOUT / 2, is_tried_again, "{passed:?}");
        assert!(passed <= STORE_TIMEOUT);
    }
}

/// As at the end of the process.
#[test]
fn hits_that_come_back_without_a_runtime_are_lost() {
    let bench = bench();
    let limit = hourly(1_000);
    let receipt = Receipt { at: Timestamp::from_micros(START), hits: 40, of_grant: false };
    bench.loans.give_back(&check(&limit), receipt);
    assert_eq!(bench.metrics.loans.lost.get(), 40);
    assert!(!bench.loans.in_background(async {}));
}

#[tokio::test]
async fn a_store_that_keeps_no_numbers_of_loans_refuses_their_return() {
    let limit = hourly(1_000);
    let (loans, _) = failing(StoreError::Late);
    let unused = Receipt { at: Timestamp::from_micros(START), hits: 40, of_grant: false };
    let returned = LoanReturn { unused, number: [7; 16], usable_for: LEASE.ttl };
    let result = loans.take_back(&check(&limit), returned, clock::instant()).await;
    assert_eq!(result, Err(StoreError::Refused));
    assert_eq!(FailingStore(StoreError::Late).servers(), ServerList::NotSupported);
}
