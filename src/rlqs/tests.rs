//! Buckets, one report and one step at a time. Streams of proxies that behave as a stock Envoy does
//! are in the simulated worlds of `tests/kit`.
#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

mod bounds;
mod faults;

use std::time::{Duration, Instant};

use super::bucket::{BucketStep, QuotaBucket};
use super::terms::{
    Assignment, Blanket, BucketTerms, BucketUsage, ChargedLoan, LentTerms, WantResult,
};
use super::{QuotaOptions, REPORT_INTERVAL};
use crate::algorithm::Receipt;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::{Micros, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const OPTIONS: QuotaOptions = QuotaOptions { guard: super::DEFAULT_GUARD, returns: true };
/// Instant of a loan, after the start of the clock by more than a window.
const CHARGED_AT: Timestamp = Timestamp::from_micros(1_000_000_000);

fn terms(hits: u32, ttl: u64) -> LentTerms {
    LentTerms {
        lease: Lease { hits, ttl: Micros::from_secs(ttl) },
        at_once: 10_000,
        generation: 1,
        on_failure: None,
    }
}

fn charged(hits: u64, rest: u64, now: Instant) -> WantResult {
    let receipt = Receipt { at: CHARGED_AT, hits, of_grant: false };
    let window_rest = Some(Micros::from_secs(rest));
    WantResult::Charged(ChargedLoan { receipt, asked_at: now, charged_at: now, window_rest })
}

/// Opens a bucket whose proxy denied requests, so that it wants hits.
fn wanting(terms: LentTerms, denied: u64, now: Instant) -> QuotaBucket {
    let mut bucket = QuotaBucket::new(BucketTerms::Lent(terms));
    bucket.report(BucketUsage { allowed: 0, denied }, None, now, &OPTIONS);
    assert!(matches!(bucket.step(now, &OPTIONS), BucketStep::Want(_)));
    bucket
}

/// Opens a bucket, and lends it hits whose window has `rest` seconds left.
fn lent(hits: u64, rest: u64, now: Instant) -> (QuotaBucket, u64) {
    let mut bucket = wanting(terms(1_000, 15), 1, now);
    let (step, unsent) = bucket.wanted_result(charged(hits, rest, now), now, &OPTIONS);
    assert_eq!(unsent, None);
    let BucketStep::Assign(assignment @ Assignment::Loan(_, ttl)) = step else {
        panic!("{step:?}")
    };
    bucket.sent(assignment, now, &OPTIONS);
    (bucket, ttl)
}

fn report(bucket: &mut QuotaBucket, allowed: u64, covered: Instant, now: Instant) -> (u64, u64) {
    let reported = bucket.report(BucketUsage { allowed, denied: 0 }, Some(covered), now, &OPTIONS);
    (reported.afterwards, reported.returns.iter().map(|receipt| receipt.hits).sum())
}

#[test]
fn a_loan_ends_the_guard_before_its_window_in_whole_seconds() {
    let now = Instant::now();
    assert_eq!(lent(100, 60, now).1, 15, "at most the time of the section");
    assert_eq!(lent(100, 12, now).1, 10);
    let mut bucket = wanting(terms(1_000, 15), 1, now);
    let (step, unsent) = bucket.wanted_result(charged(100, 2, now), now, &OPTIONS);
    assert_eq!((step, unsent.map(|receipt| receipt.hits)), (BucketStep::Nothing, Some(100)));
    assert_eq!(bucket.due(), Some(now + 2 * SECOND), "the next window begins with a loan");
}

#[test]
fn the_time_that_a_charge_takes_shortens_its_loan() {
    let now = Instant::now();
    let mut bucket = wanting(terms(1_000, 15), 1, now);
    let later = now + Duration::from_millis(1_500);
    let (step, _) = bucket.wanted_result(charged(100, 12, now), later, &OPTIONS);
    assert!(matches!(step, BucketStep::Assign(Assignment::Loan(_, 8))), "{step:?}");
    assert_eq!(bucket.due(), Some(now + 12 * SECOND), "the end of the window");
}

#[test]
fn hits_come_back_after_the_time_the_guard_an_acknowledgement_and_a_later_report() {
    let now = Instant::now();
    let (mut bucket, ttl) = lent(100, 60, now);
    assert_eq!(ttl, 15);
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    assert_eq!(report(&mut bucket, 30, now, at(5)), (0, 0));
    assert_eq!(report(&mut bucket, 0, at(16), at(20)), (0, 0), "within the guard");
    assert_eq!(report(&mut bucket, 10, at(17), at(25)), (0, 60));
    assert_eq!(report(&mut bucket, 0, at(22), at(30)), (0, 0), "once");
}

#[test]
fn a_report_that_was_written_before_the_end_gives_nothing_back() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    // It arrives late, but the latest acknowledgement is of a PING before the end of the loan.
    let late = now + 30 * SECOND;
    assert_eq!(report(&mut bucket, 0, now + 16 * SECOND, late), (0, 0));
}

#[test]
fn hits_of_a_replaced_loan_come_back_and_those_of_its_successor_do_not() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    let later = now + 5 * SECOND;
    let at = CHARGED_AT + Micros::from_secs(4);
    let receipt = Receipt { at, hits: 50, of_grant: false };
    // In the same window, which the first loan saw with 60 s left.
    let window_rest = Some(Micros::from_secs(56));
    let loan = ChargedLoan { receipt, asked_at: later, charged_at: later, window_rest };
    report(&mut bucket, 40, now, later);
    bucket.sent(Assignment::Loan(loan, 15), later, &OPTIONS);
    // Of 150 lent hits, 45 are used, and 50 may still be.
    let covered = now + 7 * SECOND;
    assert_eq!(report(&mut bucket, 5, covered, now + 10 * SECOND), (0, 55));
}

#[test]
fn hits_admitted_beyond_all_loans_are_charged_afterwards() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    let usage = BucketUsage { allowed: 130, denied: 0 };
    let reported = bucket.report(usage, None, now + REPORT_INTERVAL, &OPTIONS);
    assert_eq!((reported.spent, reported.afterwards, reported.is_overrun), (100, 30, true));
    let mut fresh = QuotaBucket::new(BucketTerms::Lent(terms(1_000, 15)));
    let reported = fresh.report(usage, None, now, &OPTIONS);
    assert_eq!((reported.afterwards, reported.is_overrun), (130, false), "of another replica");
    let (mut within, _) = lent(130, 60, now);
    let reported = within.report(usage, None, now + REPORT_INTERVAL, &OPTIONS);
    assert_eq!((reported.spent, reported.afterwards, reported.is_overrun), (130, 0, false));
}

#[test]
fn a_changed_limit_replaces_the_assignment_and_the_rest_of_it_comes_back() {
    let now = Instant::now();
    let changed = BucketTerms::Lent(LentTerms { generation: 2, ..terms(10, 15) });
    let (mut bucket, _) = lent(100, 60, now);
    bucket.set_terms(BucketTerms::Lent(terms(1_000, 15)), true, now);
    assert_eq!(bucket.due(), Some(now + 60 * SECOND), "the same terms");
    bucket.set_terms(changed, true, now);
    assert_eq!(bucket.due(), Some(now));
    assert_eq!(bucket.step(now, &OPTIONS), BucketStep::Want(10));
    let (step, _) = bucket.wanted_result(WantResult::Denied(None), now, &OPTIONS);
    assert!(matches!(step, BucketStep::Assign(Assignment::Blanket(Blanket::Deny, 10))), "{step:?}");
    let late = now + 60 * SECOND;
    for (is_same_counter, rest) in [(true, 70), (false, 0)] {
        for terms in [changed, BucketTerms::Closed] {
            let (mut bucket, _) = lent(100, 60, now);
            bucket.set_terms(terms, is_same_counter, now);
            assert_eq!(report(&mut bucket, 30, late, late), (0, rest), "{terms:?}");
            assert_eq!(bucket.take_stranded(), if is_same_counter { 0 } else { 100 });
        }
    }
}

#[test]
fn in_shadow_mode_hits_of_a_loan_of_the_same_counter_are_not_charged_again() {
    let now = Instant::now();
    for (is_same_counter, afterwards) in [(true, 10), (false, 110)] {
        let (mut bucket, _) = lent(100, 60, now);
        bucket.set_terms(BucketTerms::Shadow, is_same_counter, now);
        let usage = BucketUsage { allowed: 110, denied: 0 };
        let reported = bucket.report(usage, None, now + REPORT_INTERVAL, &OPTIONS);
        assert_eq!(reported.afterwards, afterwards);
    }
}

#[test]
fn a_step_that_finds_no_room_waits_although_it_is_due() {
    let now = Instant::now();
    let (mut bucket, _) = lent(100, 60, now);
    bucket.set_terms(BucketTerms::Closed, false, now);
    for second in 0..3 {
        let now = now + second * SECOND;
        bucket.postpone(now);
        assert_eq!(bucket.due(), Some(now + Duration::from_millis(100)));
    }
    bucket.postpone(now);
    assert_eq!(bucket.due(), Some(now + Duration::from_millis(100)), "the sooner of both");
}

#[test]
fn blanket_answers_are_renewed_by_reports() {
    let now = Instant::now();
    for (terms, blanket) in [
        (BucketTerms::Open, Blanket::Allow),
        (BucketTerms::Shadow, Blanket::Allow),
        (BucketTerms::Closed, Blanket::Deny),
    ] {
        let mut bucket = QuotaBucket::new(terms);
        let usage = BucketUsage { allowed: 3, denied: 0 };
        let reported = bucket.report(usage, None, now, &OPTIONS);
        assert_eq!(reported.afterwards, if terms == BucketTerms::Shadow { 3 } else { 0 });
        let assignment = Assignment::Blanket(blanket, 60);
        assert_eq!(bucket.step(now, &OPTIONS), BucketStep::Assign(assignment));
        bucket.sent(assignment, now, &OPTIONS);
        assert_eq!(bucket.step(now + 29 * SECOND, &OPTIONS), BucketStep::Nothing);
        assert_eq!(bucket.step(now + 31 * SECOND, &OPTIONS), BucketStep::Assign(assignment));
    }
}

#[test]
fn a_denial_lasts_until_hits_may_fit_and_is_then_replaced() {
    let now = Instant::now();
    let mut bucket = wanting(terms(1_000, 15), 9, now);
    let denied = WantResult::Denied(Some(Micros::from_secs(40)));
    let (step, _) = bucket.wanted_result(denied, now, &OPTIONS);
    let assignment = Assignment::Blanket(Blanket::Deny, 50);
    assert_eq!((step, bucket.due()), (BucketStep::Assign(assignment), Some(now + 40 * SECOND)));
    bucket.sent(assignment, now, &OPTIONS);
    // A report with denied requests: others may have given hits back.
    let later = now + 5 * SECOND;
    bucket.report(BucketUsage { allowed: 0, denied: 9 }, None, later, &OPTIONS);
    assert!(matches!(bucket.step(later, &OPTIONS), BucketStep::Want(_)));
    let denied = WantResult::Denied(Some(Micros::from_secs(35)));
    assert_eq!(bucket.wanted_result(denied, later, &OPTIONS).0, BucketStep::Nothing, "as it is");
    bucket.report(BucketUsage::default(), None, later, &OPTIONS);
    assert_eq!(bucket.step(now + 39 * SECOND, &OPTIONS), BucketStep::Nothing);
    assert!(matches!(bucket.step(now + 40 * SECOND, &OPTIONS), BucketStep::Want(_)));
}

#[test]
fn without_the_store_a_loan_runs_out_and_then_the_policy_decides() {
    let now = Instant::now();
    for (on_failure, expected) in [
        (None, BucketStep::Nothing),
        (Some(Blanket::Allow), BucketStep::Assign(Assignment::Blanket(Blanket::Allow, 7))),
        (Some(Blanket::Deny), BucketStep::Assign(Assignment::Blanket(Blanket::Deny, 7))),
    ] {
        let mut bucket = wanting(LentTerms { on_failure, ..terms(1_000, 15) }, 9, now);
        let (step, _) = bucket.wanted_result(charged(100, 60, now), now, &OPTIONS);
        let BucketStep::Assign(assignment) = step else { panic!("{step:?}") };
        bucket.sent(assignment, now, &OPTIONS);
        for (seconds, expected) in [(12, BucketStep::Nothing), (13, expected)] {
            let later = now + Duration::from_secs(seconds);
            report(&mut bucket, 60, now, later);
            assert!(matches!(bucket.step(later, &OPTIONS), BucketStep::Want(_)));
            let (step, _) = bucket.wanted_result(WantResult::Failed, later, &OPTIONS);
            let retry = Some(later + SECOND);
            assert_eq!((step, bucket.due()), (expected, retry), "after {seconds} s");
            bucket.postpone(later);
        }
    }
}
