//! Requests that are answered in part or not at all, and events that invalidate denials.

use super::*;

type Cache = DenyCache<SteppedMemory>;

fn cache(denials: &Arc<DenialTable>) -> Cache {
    DenyCache::new(memory_at(NOW).0, Some(Arc::clone(denials)))
}

fn with_key<'a>(key: &'a [u8], check: Check<'a>) -> Check<'a> {
    Check { key: CounterKey::of("d", key), ..check }
}

/// Decides a request, and returns for each check its source and `true` if it is allowed.
fn decide(cache: &Cache, checks: &[Check<'_>]) -> Vec<(JudgedBy, bool)> {
    let decided = cache.decide(checks, Prior::Open, Instant::now()).now_or_never().unwrap();
    decided.into_iter().map(Result::unwrap).map(|outcome| (outcome.by, outcome.allowed)).collect()
}

const BY_STORE: (JudgedBy, bool) = (JudgedBy::Store, true);
const DENIED_BY_STORE: (JudgedBy, bool) = (JudgedBy::Store, false);
const CACHED: (JudgedBy, bool) = (JudgedBy::Memory, false);

#[test]
fn votes_and_counters_that_occur_twice_are_judged_by_the_store() {
    let denials = denials();
    let cache = cache(&denials);
    let limit = fixed(1, Charge::Admitted);
    let one = check(&limit, 1);
    assert_eq!(decide(&cache, &[one]), [BY_STORE]);
    assert_eq!(decide(&cache, &[one; 2]), [DENIED_BY_STORE; 2], "not cached");
    assert_eq!(decide(&cache, &[one]), [DENIED_BY_STORE]);
    assert_eq!(decide(&cache, &[one]), [CACHED]);
    assert_eq!(decide(&cache, &[one; 2]), [DENIED_BY_STORE; 2]);
    for role in [Role::Quota, Role::QuotaShadow] {
        assert_eq!(decide(&cache, &[Check { role, ..one }]), [DENIED_BY_STORE]);
    }
    assert_eq!(decide(&cache, &[Check { role: Role::Shadow, ..one }]), [CACHED]);
    assert_eq!(denials.metrics.deny_cache_hits.get(), 2);
    assert_eq!(denials.metrics.deny_cache_misses.get(), 8);
}

#[test]
fn nothing_is_charged_beside_a_cached_denial() {
    for (role, left) in [(Role::Enforce, 9), (Role::Shadow, 8)] {
        let denials = denials();
        let cache = cache(&denials);
        let [few, many] = [fixed(1, Charge::Admitted), fixed(10, Charge::Admitted)];
        let one = Check { role, ..check(&few, 1) };
        let other = with_key(b"other", check(&many, 1));
        decide(&cache, &[one]);
        decide(&cache, &[one]);
        assert_eq!(decide(&cache, &[other, one]), [BY_STORE, CACHED]);
        let outcome = cache.decide(&[other], Prior::Open, Instant::now()).now_or_never();
        assert_eq!(outcome.unwrap()[0].unwrap().report.remaining, left, "{role:?}");
    }
}

#[test]
fn an_amendment_and_hits_that_come_back_invalidate_a_denial_and_a_look_does_not() {
    let limit = fixed(1, Charge::Admitted);
    let one = check(&limit, 1);
    let receipt = Receipt { at: NOW, hits: 1, of_grant: false };
    let now = Instant::now;
    for (amendment, is_kept) in [
        (Some(Amendment::Look), true),
        (Some(Amendment::Reset), false),
        (Some(Amendment::Refund(1)), false),
        (Some(Amendment::Grant { hits: 1, length: Micros::from_secs(9) }), false),
        (None, false),
    ] {
        let cache = cache(&denials());
        decide(&cache, &[one]);
        decide(&cache, &[one]);
        match amendment {
            Some(amendment) => {
                cache.amend(&one, amendment, now()).now_or_never().unwrap().unwrap();
            }
            None => cache.take_back(&one, receipt, now()).now_or_never().unwrap().unwrap(),
        }
        let expected = if is_kept { CACHED } else { BY_STORE };
        assert_eq!(decide(&cache, &[one]), [expected], "{amendment:?}");
    }
}

#[tokio::test]
async fn only_charges_that_are_tallied_are_written_beside_a_cached_denial() {
    let recorded = [b"user=ann".to_vec()];
    let limit = fixed(1, Charge::Admitted);
    for (recorded, hits, is_written) in [
        (recorded.as_slice(), Hits::Charge(1), true),
        (recorded.as_slice(), Hits::Peek(1), false),
        (&[], Hits::Charge(1), false),
    ] {
        let denials = denials();
        let cache = DenyCache::new(errors::DownStore, Some(Arc::clone(&denials)));
        denials.record(&check(&limit, 1), &denial(), instant(), instant());
        let asked = Check { recorded, hits, ..check(&limit, 1) };
        let outcomes = cache.decide(&[asked], Prior::Open, Instant::now()).await;
        assert_eq!(outcomes[0].unwrap().by, JudgedBy::Memory);
        cache.settled().await;
        let errors = denials.metrics.store_errors("unavailable");
        assert_eq!(errors, u64::from(is_written), "{hits:?}");
        assert_eq!(denials.metrics.dropped_charges.get(), 0);
    }
}

#[test]
fn tallied_charges_that_cannot_be_written_are_counted() {
    let recorded = [b"user=ann".to_vec()];
    let limit = fixed(1, Charge::Admitted);
    let denials = denials();
    let cache = cache(&denials);
    let one = check(&limit, 1);
    let tallied = Check { recorded: &recorded, ..one };
    decide(&cache, &[one]);
    decide(&cache, &[one]);
    assert_eq!(decide(&cache, &[tallied]), [CACHED], "without a runtime");
    assert_eq!(denials.metrics.dropped_charges.get(), 1);
}

#[test]
fn only_denials_that_are_certain_are_cached() {
    use CertainDenials::{All, AllButPerSecond, IrrevocableOnly};
    for (seconds, charge, certain, is_cached) in [
        (1, Charge::Admitted, All, true),
        (1, Charge::Admitted, AllButPerSecond, false),
        (60, Charge::Admitted, AllButPerSecond, true),
        (1, Charge::Always, AllButPerSecond, true),
        (60, Charge::Admitted, IrrevocableOnly, false),
        (60, Charge::Always, IrrevocableOnly, true),
    ] {
        let denials = denials();
        let limit = tests::fixed(&[(2, seconds)], charge, OnStoreError::Error);
        let one = check(&limit, 1);
        let outcomes = Outcomes::from_iter([Ok(denial())]);
        let now = instant();
        denials.record_all(&[one], &outcomes, certain, now);
        assert_eq!(denials.find(&one, now).is_some(), is_cached, "{seconds} {charge:?}");
    }
}

#[test]
fn denials_by_a_share_of_bans_and_of_no_hits_are_not_cached() {
    let limit = fixed(2, Charge::Admitted);
    let ban = fixed(0, Charge::Admitted);
    let now = instant();
    let by_share = Outcome { by: JudgedBy::Share(StoreError::Late), ..denial() };
    let allowed = Outcome { allowed: true, ..denial() };
    let no_wait = Report { retry_after: Some(Micros::ZERO), ..denial().report };
    let no_wait = Outcome { report: no_wait, ..denial() };
    for (asked, outcome) in [
        (check(&limit, 1), by_share),
        (check(&limit, 1), allowed),
        (check(&limit, 1), no_wait),
        (check(&limit, 0), denial()),
        (check(&ban, 1), denial()),
    ] {
        let denials = denials();
        let outcomes = Outcomes::from_iter([Ok(outcome)]);
        denials.record_all(&[asked], &outcomes, CertainDenials::All, now);
        let wanted = Check { hits: Hits::Charge(1), ..asked };
        assert!(denials.find(&wanted, now).is_none(), "{asked:?} {outcome:?}");
        assert!(denials.find(&Check { limit: &limit, ..wanted }, now).is_none());
    }
}

#[test]
fn a_denial_is_of_its_amounts_and_its_time_only() {
    let [two, three] = [fixed(2, Charge::Admitted), fixed(3, Charge::Admitted)];
    let metrics = Arc::<StoreMetrics>::default();
    let denials = DenialTable::new(Duration::from_secs(1), metrics);
    let now = instant();
    denials.record(&check(&two, 1), &denial(), now, now);
    let at = |millis| now + Duration::from_millis(millis);
    let found = |limit, millis| denials.find(&check(limit, 1), at(millis)).is_some();
    assert_eq!([found(&two, 999), found(&two, 1_000), found(&three, 0)], [true, false, false]);
    // A denial without a time to retry is of the hits until the counter resets.
    let report = Report { retry_after: None, reset_after: Some(Micros::new(9)), ..denial().report };
    let never = Outcome { report, ..denial() };
    denials.record(&check(&two, 2), &never, at(1_000), at(1_000));
    let micros = |micros| at(1_000) + Duration::from_micros(micros);
    let found = |hits, us| denials.find(&check(&two, hits), micros(us)).is_some();
    assert_eq!([found(2, 8), found(2, 9), found(1, 8)], [true, false, false]);
}
