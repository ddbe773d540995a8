//! Returns after an operator has changed the counter.

use super::admitted::charged;
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::judge::Hits;
use crate::descriptor::Entry;
use crate::store::{Check, Lender as _, Store as _};

/// Lends hits, applies an amendment a second later, charges 10 hits, and returns the loan. Returns
/// the hits that are charged then.
async fn charged_after(amendment: Amendment) -> u64 {
    let mut test = TestSession::new(WIDE);
    opened(&mut test, 1).await;
    let (place, action) = test.session.pending.pop().unwrap();
    let PendingAction::Assign(Assignment::Loan(loan, _)) = action else { panic!("{action:?}") };
    assert_eq!(loan.receipt.hits, 50);
    test.clock.set(Timestamp::from_micros(BEGIN + 1_000_000));
    let service = Arc::clone(&test.session.rls);
    let snapshot = service.limiter.snapshot();
    let entry = Entry { key: b"tenant", value: b"tenant-0" };
    let target = service.limiter.bucket_target(snapshot.as_deref().unwrap(), "test", &[entry]);
    let BucketTarget::Limited(target, _) = &target else { panic!("{target:?}") };
    let check = target.check();
    let now = instant();
    test.store.store.amend(&check, amendment, now).await.unwrap();
    test.clock.set(Timestamp::from_micros(BEGIN + 2_000_000));
    let ten = Check { hits: Hits::Charge(10), ..check };
    assert!(test.store.store.lend(&ten, now).await.unwrap().receipt.is_some());
    assert!(test.session.give_back(place, loan.receipt));
    service.limiter.store().settled().await;
    charged(&service, "tenant-0").await
}

#[tokio::test(start_paused = true)]
async fn hits_lent_before_a_reset_are_not_given_back_after_it() {
    assert_eq!(charged_after(Amendment::Reset).await, 10);
}

#[tokio::test(start_paused = true)]
async fn hits_that_an_operator_refunded_are_given_back_as_far_as_they_count() {
    assert_eq!(charged_after(Amendment::Look).await, 10);
    assert_eq!(charged_after(Amendment::Refund(30)).await, 0);
    // 60 less 50 and 50: no less than nothing is charged.
    assert_eq!(charged_after(Amendment::Refund(50)).await, 0);
}
