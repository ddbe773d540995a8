//! The instants and amounts at which a bucket takes its next step.

use super::*;
use crate::rlqs::share::ProxyWant;

fn at(now: Instant, millis: u64) -> Instant {
    now + Duration::from_millis(millis)
}

/// Returns the step at an instant, of a copy: another step does not wait for this one.
fn step(make: impl FnOnce() -> QuotaBucket, when: Instant) -> BucketStep {
    make().step(when, &OPTIONS)
}

/// Returns a bucket that was denied hits at `now`, for `retry` seconds.
fn denied(retry: u64, now: Instant) -> QuotaBucket {
    let mut bucket = wanting(terms(1_000, 15), 9, now);
    let result = WantResult::Denied(Some(Micros::from_secs(retry)));
    let (step, _) = bucket.wanted_result(result, now, &OPTIONS);
    let BucketStep::Assign(assignment) = step else { panic!("{step:?}") };
    bucket.sent(assignment, now, &OPTIONS);
    bucket
}

#[test]
fn terms_with_a_counter_are_charged() {
    let charged = [BucketTerms::Shadow, BucketTerms::Lent(terms(1, 15))];
    assert!(charged.iter().all(BucketTerms::are_charged));
    assert!(![BucketTerms::Open, BucketTerms::Closed].iter().any(BucketTerms::are_charged));
}

#[test]
fn hits_are_held_until_they_are_reported_and_are_stranded_if_they_are_given_up() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    assert_eq!(bucket.held_hits(), 100);
    report(&mut bucket, 30, now, at(now, 5_000));
    assert_eq!(bucket.held_hits(), 70);
    assert_eq!(bucket.take_stranded(), 0);
    bucket.forfeit();
    assert_eq!(bucket.take_stranded(), 70);
    assert_eq!(report(&mut bucket, 0, at(now, 20_000), at(now, 25_000)), (0, 0));
}

#[test]
fn a_blanket_answer_is_renewed_at_half_its_time() {
    let now = Instant::now();
    let sent = || {
        let mut bucket = QuotaBucket::new(BucketTerms::Open);
        bucket.sent(Assignment::Blanket(Blanket::Allow, 60), now, &OPTIONS);
        bucket
    };
    assert_eq!(step(sent, at(now, 29_999)), BucketStep::Nothing);
    assert!(matches!(step(sent, at(now, 30_000)), BucketStep::Assign(_)));
}

#[test]
fn a_loan_is_renewed_six_seconds_before_its_end_or_when_it_is_used_up() {
    let now = Instant::now();
    let reported = |allowed| {
        let (mut bucket, _) = lent(100, 60, now);
        report(&mut bucket, allowed, now, at(now, 5_000));
        bucket
    };
    assert_eq!(step(|| reported(10), at(now, 8_999)), BucketStep::Nothing);
    assert!(matches!(step(|| reported(10), at(now, 9_000)), BucketStep::Want(_)));
    assert!(matches!(step(|| reported(100), at(now, 5_000)), BucketStep::Want(_)));
    // One request in 1,002 s rounds to a rate of none. There must be a hit for the next, though.
    let rare = || {
        let (mut bucket, _) = lent(1, 2_000, now);
        let later = at(now, 1_001_000);
        let receipt = Receipt { at: Timestamp::from_micros(9), hits: 1, of_grant: false };
        let loan = ChargedLoan { receipt, asked_at: later, charged_at: later, window_rest: None };
        bucket.sent(Assignment::Loan(loan, 15), later, &OPTIONS);
        report(&mut bucket, 1, now, at(now, 1_002_000));
        bucket
    };
    assert!(matches!(step(rare, at(now, 1_002_000)), BucketStep::Want(_)));
}

#[test]
fn a_loan_that_is_no_more_than_what_is_left_is_not_sent_unless_that_ends_soon() {
    let now = Instant::now();
    for (hits, millis, is_sent) in [
        (50, 1_000, false),
        (100, 1_000, false),
        (101, 1_000, true),
        (50, 8_999, false),
        (50, 9_000, true),
    ] {
        let (mut bucket, _) = lent(100, 60, now);
        let later = at(now, millis);
        let (step, unsent) = bucket.wanted_result(charged(hits, 50, later), later, &OPTIONS);
        assert_eq!(matches!(step, BucketStep::Assign(_)), is_sent, "{hits} after {millis} ms");
        assert_eq!(unsent.map(|receipt| receipt.hits), (!is_sent).then_some(hits));
    }
}

#[test]
fn a_loan_that_is_late_is_not_sent() {
    let now = Instant::now();
    let (bucket, _) = lent(100, 60, now);
    let WantResult::Charged(loan) = charged(50, 10, now) else { unreachable!() };
    // The window has 10 s left, of which the last two are the guard.
    let sent = |millis| bucket.timed(Assignment::Loan(loan, 8), at(now, millis), &OPTIONS);
    assert_eq!(sent(0), Some(Assignment::Loan(loan, 8)));
    assert_eq!(sent(7_000), Some(Assignment::Loan(loan, 1)));
    assert_eq!(sent(7_001), None);
}

#[test]
fn at_the_end_of_a_window_a_bucket_waits_for_the_next_one() {
    let now = Instant::now();
    // The loan was charged too late to be sent.
    let ending = |rest| {
        let mut bucket = QuotaBucket::new(BucketTerms::Lent(terms(1_000, 15)));
        for second in [0, 1] {
            let usage = BucketUsage { allowed: 0, denied: 100 };
            bucket.report(usage, None, now - second * SECOND, &OPTIONS);
        }
        bucket.step(now, &OPTIONS);
        bucket.wanted_result(charged(1, rest, now), now, &OPTIONS);
        bucket.postpone(now);
        bucket
    };
    let mut bucket = ending(2);
    assert_eq!(bucket.step(at(now, 1), &OPTIONS), BucketStep::Nothing);
    assert_eq!(bucket.due(), Some(at(now, 2_000)));
    assert!(matches!(bucket.step(at(now, 2_000), &OPTIONS), BucketStep::Want(_)));
    // Of 3 s, one is left before the guard, and of 6 s, four.
    assert_eq!(step(|| ending(3), at(now, 1)), BucketStep::Nothing);
    let [one, four, all] = wants([ending(3), ending(6), ending(60)], now);
    assert_eq!((4 * one, one < four, four < all), (four, true, true), "{one}, {four}, {all}");
}

fn wants(buckets: [QuotaBucket; 3], now: Instant) -> [u32; 3] {
    buckets.map(|mut bucket| match bucket.step(now, &OPTIONS) {
        BucketStep::Want(hits) => hits,
        other @ (BucketStep::Nothing | BucketStep::Assign(_) | BucketStep::Abandon) => {
            panic!("{other:?}")
        }
    })
}

#[test]
fn a_denial_is_renewed_before_it_ends_and_ends_with_the_window() {
    let now = Instant::now();
    let idle = || {
        let mut bucket = denied(300, now);
        bucket.report(BucketUsage::default(), None, at(now, 290_000), &OPTIONS);
        bucket
    };
    assert_eq!(step(idle, at(now, 293_999)), BucketStep::Nothing);
    let renewed = BucketStep::Assign(Assignment::Blanket(Blanket::Deny, 16));
    assert_eq!(step(idle, at(now, 294_000)), renewed);
    // A loan of the window that ends after two seconds was too late.
    let due = |millis| {
        let mut bucket = denied(300, now);
        bucket.wanted_result(charged(1, 2, now), now, &OPTIONS);
        let later = at(now, millis);
        let result = WantResult::Denied(Some(Micros::from_secs(30)));
        bucket.wanted_result(result, later, &OPTIONS);
        bucket.due()
    };
    assert_eq!(due(1_000), Some(at(now, 2_000)));
    assert_eq!(due(2_000), Some(at(now, 32_000)));
}

#[test]
fn a_denial_replaces_a_loan_that_ends_soon_only() {
    let now = Instant::now();
    let step = |millis| {
        let (mut bucket, _) = lent(100, 60, now);
        bucket.wanted_result(WantResult::Denied(None), at(now, millis), &OPTIONS).0
    };
    assert_eq!(step(8_999), BucketStep::Nothing);
    assert!(matches!(step(9_000), BucketStep::Assign(Assignment::Blanket(Blanket::Deny, _))));
}

#[test]
fn a_bucket_asks_for_a_part_of_the_limit_first_and_for_a_part_of_a_loan_if_it_is_idle() {
    let now = Instant::now();
    let bucket = |hits: u32, reports: u64| {
        let mut bucket = QuotaBucket::new(BucketTerms::Lent(terms(hits, 15)));
        for number in 0..reports {
            bucket.report(BucketUsage::default(), None, at(now, 5_000 * number), &OPTIONS);
        }
        (bucket.want(), bucket.step(at(now, 5_000), &OPTIONS))
    };
    let none = ProxyWant::default();
    assert_eq!(bucket(1_000, 1), (none, BucketStep::Want(500)));
    assert_eq!(bucket(1_000, 2), (none, BucketStep::Want(50)), "of a limit of 10,000");
    assert_eq!(bucket(100, 2), (none, BucketStep::Want(10)), "of a loan of 100");
    assert_eq!(bucket(100, 5).1, BucketStep::Want(10), "not deaf after a pause of 25 s");
    assert_eq!(bucket(100, 6).1, BucketStep::Nothing);
}

#[test]
fn a_proxy_is_expected_to_want_the_hits_of_its_last_report_and_at_most_a_loan() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    for (second, allowed, expected, left) in [(5, 50, 55, 50), (10, 5_000, 1_000, 0)] {
        let seconds = |seconds: u64| at(now, 1_000 * seconds);
        report(&mut bucket, allowed, now, seconds(second));
        let reports_at = Some(seconds(second + 5));
        assert_eq!(bucket.want(), ProxyWant { expected, left, reports_at });
    }
}

#[test]
fn an_idle_bucket_is_not_abandoned_while_its_proxy_may_hold_hits() {
    let now = Instant::now();
    for (covered, expected) in [(0, BucketStep::Nothing), (60_000, BucketStep::Abandon)] {
        let (mut bucket, _) = lent(100, 60, now);
        for number in 1..=14 {
            report(&mut bucket, 0, at(now, covered), at(now, 5_000 * number));
        }
        assert_eq!(bucket.step(at(now, 70_000), &OPTIONS), expected);
    }
}

#[test]
fn a_ping_is_awaited_from_the_end_of_a_loan_until_one_covers_it() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    // 15 s, and the guard.
    let over = at(now, 17_000);
    assert!(!bucket.awaits_ping(None, at(now, 16_999)));
    assert!(bucket.awaits_ping(None, over));
    assert!(bucket.awaits_ping(Some(at(now, 16_999)), over));
    assert!(!bucket.awaits_ping(Some(over), over));
    report(&mut bucket, 0, over, over);
    assert!(!bucket.awaits_ping(None, over), "settled");
}
