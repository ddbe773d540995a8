//! Stores that fail.

use super::*;

#[test]
fn a_refund_without_a_reply_invalidates_a_cached_denial() {
    let limit = fixed(2, Charge::Admitted);
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

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}
