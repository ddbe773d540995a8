//! Reports that come twice, late, or from another replica.

use std::time::{Duration, Instant};

use super::super::QuotaOptions;
use super::super::bucket::QuotaBucket;
use super::super::terms::{Blanket, BucketTerms, BucketUsage};
use super::{OPTIONS, SECOND, lent, report, terms};

#[test]
fn a_report_that_arrives_twice_gives_back_less_and_never_more() {
    let now = Instant::now();
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    for twice in [false, true] {
        let (mut bucket, _) = lent(100, 60, now);
        report(&mut bucket, 30, now, at(5));
        if twice {
            assert_eq!(report(&mut bucket, 30, now, at(5)), (0, 0));
        }
        let (_, returned) = report(&mut bucket, 0, at(17), at(20));
        assert_eq!(returned, if twice { 40 } else { 70 });
        // The report with which they were given back does not give them back again.
        assert_eq!(report(&mut bucket, 0, at(17), at(20)), (0, 0));
    }
    let (mut bucket, _) = lent(100, 60, now);
    report(&mut bucket, 80, now, at(5));
    assert_eq!(report(&mut bucket, 80, now, at(5)), (60, 0), "charged beyond the loan");
}

#[test]
fn a_late_report_after_the_return_is_charged() {
    let now = Instant::now();
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    let (mut bucket, _) = lent(100, 60, now);
    assert_eq!(report(&mut bucket, 10, at(17), at(20)), (0, 90));
    assert_eq!(report(&mut bucket, 5, at(17), at(25)), (5, 0), "of a proxy that is wrong");
}

#[test]
fn without_returns_unused_hits_stay_charged_and_are_counted() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    let options = QuotaOptions { returns: false, ..OPTIONS };
    let later = now + 20 * SECOND;
    let usage = BucketUsage { allowed: 30, denied: 0 };
    let reported = bucket.report(usage, Some(later), later, &options);
    assert_eq!((reported.spent, reported.returns.len()), (30, 0));
    assert_eq!(bucket.take_stranded(), 70);
    bucket.forfeit();
    assert_eq!(bucket.take_stranded(), 0, "once");
}

#[test]
fn a_bucket_beyond_the_bounds_is_answered_by_its_terms() {
    for (terms, deny, allow) in [
        (Some(BucketTerms::Open), Blanket::Allow, Blanket::Allow),
        (Some(BucketTerms::Shadow), Blanket::Allow, Blanket::Allow),
        (Some(BucketTerms::Closed), Blanket::Deny, Blanket::Deny),
        (Some(BucketTerms::Lent(terms(10, 15))), Blanket::Deny, Blanket::Allow),
        (None, Blanket::Deny, Blanket::Allow),
    ] {
        let answer = |otherwise| BucketTerms::answer_beyond_bounds(terms.as_ref(), otherwise).0;
        assert_eq!((answer(Blanket::Deny), answer(Blanket::Allow)), (deny, allow), "{terms:?}");
    }
}

/// The bucket of a proxy that another replica has served is new to this one.
#[test]
fn the_first_report_after_a_move_is_charged_again() {
    let now = Instant::now();
    let mut bucket = QuotaBucket::new(BucketTerms::Lent(terms(1_000, 15)));
    let reported = bucket.report(BucketUsage { allowed: 40, denied: 0 }, None, now, &OPTIONS);
    assert_eq!((reported.spent, reported.afterwards, reported.is_overrun), (0, 40, false));
}
