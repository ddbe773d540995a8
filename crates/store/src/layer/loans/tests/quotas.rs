//! Loans to proxies.

use super::super::quota::{QuotaLending, UnlentHits};
use super::*;

impl LoansFixture {
    /// Lends to a proxy, whose share of `left` hits is that of `share`.
    async fn lend_quota(
        &self,
        limit: &Limit,
        wanted: u32,
        share: impl Fn(u64) -> u64 + Send,
    ) -> QuotaLending {
        let share = move |left, _| share(left);
        let lent = self.loans.lend_quota(&check(limit), wanted, share, clock::instant()).await;
        self.loans.settled().await;
        lent.unwrap()
    }

    async fn charge_admitted(&self, limit: &Limit, hits: u64) {
        let admitted = UnlentHits::new(&check(limit), hits);
        self.loans.charge_admitted(&admitted, clock::instant()).await.unwrap();
    }
}

fn log(amount: u32) -> Limit {
    tests::log(amount, HOUR)
}

/// Returns the hits that were lent.
fn hits(lent: QuotaLending) -> Option<u64> {
    match lent {
        QuotaLending::Lent { receipt, .. } => Some(receipt.hits),
        QuotaLending::Denied(_) => None,
    }
}

#[tokio::test]
async fn a_proxy_has_its_share_and_the_rest_of_the_charge_comes_back() {
    for (wanted, charged, parts, lent) in [
        (100, 0, 2, Some(100)),
        (100, 0, 25, Some(40)),
        (100, 0, 2_000, None),
        // Of the 50 that remain.
        (100, 950, 2, Some(25)),
        (100, 950, 1, Some(50)),
        (100, 950, 2_000, None),
    ] {
        let bench = bench();
        let limit = hourly(1_000);
        if charged > 0 {
            bench.charge(&limit, charged).await;
        }
        let found = bench.lend_quota(&limit, wanted, |left| left / parts).await;
        assert_eq!(hits(found), lent, "{wanted} {charged} {parts}");
        if lent.is_none() {
            assert_eq!(found, QuotaLending::Denied(None), "others have the hits");
        }
        let left = 1_000 - u64::from(charged) - lent.unwrap_or(0);
        assert_eq!(bench.left(&limit).await, left);
    }
}

#[tokio::test]
async fn hits_that_do_not_fit_are_not_charged_for_a_proxy_whatever_the_charge_mode() {
    let bench = bench();
    let limit = hourly(1_000).charged(Charge::Always);
    bench.charge(&limit, 950).await;
    assert_eq!(hits(bench.lend_quota(&limit, 100, |left| left).await), Some(50));
    let refund = Check { hits: Hits::Refund(1), ..check(&limit) };
    bench.store.decide(&[refund], Prior::Open, clock::instant()).await;
    assert_eq!(bench.left(&limit).await, 1);
}

#[tokio::test]
async fn the_end_of_the_shortest_window_is_in_the_answer() {
    let bench = bench();
    let limit = fixed(&[(1_000, HOUR), (900, 60)], Charge::Admitted, OnStoreError::Error);
    bench.pass(20 * SECOND);
    let rests = std::sync::Mutex::new(Vec::new());
    let share = |left, rest| {
        rests.lock().unwrap().push((left, rest));
        left
    };
    let lent = bench.loans.lend_quota(&check(&limit), 10, share, clock::instant()).await.unwrap();
    let rest = Some(Micros::from_secs(40));
    assert!(matches!(lent, QuotaLending::Lent { window_rest, .. } if window_rest == rest));
    assert_eq!(*rests.lock().unwrap(), [(900, rest)]);
    let rate = gcra(1_000, Charge::Admitted);
    let lent = self::bench().lend_quota(&rate, 10, |left| left).await;
    assert!(matches!(lent, QuotaLending::Lent { window_rest: None, .. }), "{lent:?}");
}

#[tokio::test]
async fn a_proxy_waits_for_one_hit_if_that_is_known_and_five_seconds_at_most_otherwise() {
    for (limit, retry) in [
        (hourly(1_000), Micros::from_secs(HOUR)),
        (gcra(1_000, Charge::Admitted), Micros::new(3_600_000)),
        (tests::sliding(1_000, HOUR), Micros::from_secs(5)),
    ] {
        let bench = bench();
        bench.charge(&limit, 1_000).await;
        let lent = bench.lend_quota(&limit, 100, |left| left).await;
        let QuotaLending::Denied(Some(time)) = lent else { panic!("{lent:?}") };
        assert!(time.get().abs_diff(retry.get()) <= 1, "{time} {limit:?}");
    }
    // Others took what remained meanwhile.
    let bench = bench();
    let limit = hourly(1_000);
    bench.charge(&limit, 950).await;
    let lent = bench.lend_quota(&limit, 100, |left| left + 1).await;
    assert_eq!(lent, QuotaLending::Denied(Some(Micros::from_secs(HOUR))));
}

#[tokio::test]
async fn hits_of_a_grant_are_not_lent_to_a_proxy() {
    let bench = bench();
    let limit = hourly(1_000);
    bench.charge(&limit, 1_000).await;
    bench.grant(&limit, 900).await;
    assert_eq!(bench.lend_quota(&limit, 100, |_| 100).await, QuotaLending::Denied(None));
    bench.charge(&limit, 900).await;
}

#[tokio::test]
async fn admitted_hits_are_charged_whether_they_fit_or_not() {
    for (limit, admitted, left) in [
        (hourly(100), 30, 70),
        (hourly(100), 150, 0),
        (log(100), 30, 70),
        (log(100), 150, 0),
        (log(100), u64::MAX, 0),
    ] {
        let bench = bench();
        bench.charge_admitted(&limit, admitted).await;
        assert_eq!(bench.left(&limit).await, left, "{admitted} {limit:?}");
    }
    // Hits beyond the limit count, so that refunds do not admit more.
    let bench = bench();
    let limit = hourly(100);
    bench.charge_admitted(&limit, 150).await;
    let refund = Check { hits: Hits::Refund(50), ..check(&limit) };
    bench.store.decide(&[refund], Prior::Open, clock::instant()).await;
    assert_eq!(bench.left(&limit).await, 0);
}

#[tokio::test]
async fn work_in_the_background_is_awaited_at_the_end() {
    let bench = bench();
    let limit = hourly(100);
    let store = Arc::clone(&bench.store);
    let owned = OwnedCheck::of(&check(&limit));
    assert!(bench.loans.in_background(async move {
        tokio::task::yield_now().await;
        store.decide(&[owned.check()], Prior::Open, clock::instant()).await;
    }));
    bench.loans.settled().await;
    assert_eq!(bench.left(&limit).await, 99);
}

#[tokio::test]
async fn admitted_hits_beyond_a_full_log_leave_it_as_it_is() {
    let bench = bench();
    let limit = log(100);
    bench.charge(&limit, 100).await;
    bench.pass(600 * SECOND);
    bench.charge_admitted(&limit, 30).await;
    let peek = Check { hits: Hits::Peek(0), ..check(&limit) };
    let outcomes = bench.store.decide(&[peek], Prior::Open, clock::instant()).await;
    assert_eq!(outcomes[0].unwrap().report.reset_after, Some(Micros::from_secs(HOUR - 600)));
}
