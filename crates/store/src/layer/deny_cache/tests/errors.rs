//! Stores that fail.

use super::*;

#[test]
fn a_refund_without_a_reply_invalidates_a_cached_denial() {
    let limit =
        single(Algorithm::FixedWindow(FixedWindow::new(of_a_minute(2)).unwrap()), Charge::Admitted);
    let denials = denials();
    let denied = check(&limit, 1);
    let now = Instant::now();
    for (hits, is_kept) in [(0, true), (1, false)] {
        denials.record(&denied, &denial(), now, now);
        let refund = Check { hits: Hits::Refund(hits), ..denied };
        let late = Outcomes::from_iter([Err(StoreError::Late)]);
        denials.record_all(&[refund], &late, CertainDenials::All, now);
        assert_eq!(denials.find(&denied, now).is_some(), is_kept, "refund of {hits}");
    }
}

/// A store that is down.
pub(super) struct DownStore;

impl Store for DownStore {
    async fn decide(&self, checks: &[Check<'_>], _: Prior, _: Instant) -> Outcomes {
        checks.iter().map(|_| Err(StoreError::Unavailable)).collect()
    }

    async fn amend(&self, _: &Check<'_>, _: Amendment, _: Instant) -> Result<Amended, StoreError> {
        Err(StoreError::Unavailable)
    }
}

#[tokio::test]
async fn hits_of_cached_denials_that_cannot_be_written_are_counted() {
    let limit =
        single(Algorithm::FixedWindow(FixedWindow::new(of_a_minute(2)).unwrap()), Charge::Admitted);
    let denials = denials();
    let recorded = [b"user=ann".to_vec()];
    let tallied = Check { recorded: &recorded, ..check(&limit, 1) };
    denials.record(&tallied, &denial(), instant(), instant());
    let cache = DenyCache::new(DownStore, Some(Arc::clone(&denials)));
    let outcomes = cache.decide(&[tallied], Prior::Open, Instant::now()).await;
    assert!(outcomes[0].as_ref().is_ok_and(|outcome| !outcome.allowed));
    cache.settled().await;
    assert_eq!(denials.metrics.store_errors("unavailable"), 1);
}
