//! Faults between proxies and the service, with the hits over the limit: none, or a written bound.

use std::time::{Duration, Instant};

use super::super::bucket::QuotaBucket;
use super::super::stream::StreamEnd;
use super::super::terms::{Blanket, BucketTerms, BucketUsage};
use super::super::{QuotaOptions, REPORT_INTERVAL};
use super::proxy::ProxyWorld;
use super::{OPTIONS, SECOND, lent, report, terms};

const LIMIT: u64 = 3_000;
const PERIOD: u64 = 30;
const SIZE: u32 = 600;
/// Requests of each proxy per second: two of them use up the limit.
const DEMAND: u64 = 80;

/// Runs a world from an instant on, with requests of these proxies in each second.
fn run(world: &mut ProxyWorld, proxies: &[usize], from: Instant, seconds: u64) -> Instant {
    for second in 0..seconds {
        proxies.iter().for_each(|proxy| world.request(*proxy, DEMAND));
        world.run(from + Duration::from_secs(second), SECOND);
    }
    from + Duration::from_secs(seconds)
}

#[test]
fn answers_held_back_while_reports_flow_exceed_the_limit_by_their_own_hits_at_most() {
    let now = Instant::now();
    for (seconds, is_late) in [(1, false), (3, true), (10, true)] {
        let mut world = ProxyWorld::new(LIMIT, PERIOD, SIZE);
        let proxies = [world.connect(), world.connect()];
        let end = run(&mut world, &proxies, now, 20);
        world.hold_back(Duration::from_secs(seconds));
        let end = run(&mut world, &proxies, end, 60);
        let is_ended = world.ends().contains(&StreamEnd::Unacknowledged);
        assert_eq!((is_ended, world.late_hits() > 0), (is_late, is_late), "{seconds} s");
        assert!(world.over() <= world.late_hits(), "{} over, {seconds} s", world.over());
        world.hold_back(Duration::ZERO);
        run(&mut world, &proxies, end, 60);
        let windows = world.admitted_by_window();
        let last = windows[windows.len() - 1];
        assert!(last > LIMIT / 2 && last <= LIMIT, "{seconds} s: {windows:?}");
        assert!(world.over() <= world.late_hits(), "{} over, {seconds} s", world.over());
        let (charged, admitted) = world.sums();
        assert!(charged >= admitted, "{seconds} s: {charged} charged, {admitted} admitted");
    }
}

#[test]
fn a_stream_that_moves_to_another_replica_admits_nothing_beyond_the_limit() {
    let now = Instant::now();
    for moved_after in 1..20 {
        let mut world = ProxyWorld::new(LIMIT, PERIOD, SIZE);
        let proxies = [world.connect(), world.connect()];
        let mut end = now;
        for round in 0..8 {
            end = run(&mut world, &proxies, end, moved_after);
            world.move_to_other_replica(proxies[round % 2]);
        }
        assert_eq!(world.over(), 0, "after {moved_after} s: {:?}", world.admitted_by_window());
        assert!(world.has_charged_all(), "after {moved_after} s");
        assert!(world.sums().1 > 0);
    }
}

#[test]
fn a_proxy_that_allows_all_without_an_assignment_is_over_by_what_is_charged_afterwards() {
    let now = Instant::now();
    let mut world = ProxyWorld::new(LIMIT, PERIOD, SIZE);
    let proxies = [world.connect(), world.connect()];
    world.allow_without_assignment(proxies[0]);
    // Before the first answer, and in the last seconds of each window.
    let end = run(&mut world, &proxies, now, 65);
    let without_faults = world.afterwards;
    assert!(without_faults > 0);
    assert!(world.over() <= without_faults, "{} over", world.over());
    // While the store fails, loans run out.
    world.fail_store(true);
    let end = run(&mut world, &proxies, end, 40);
    world.fail_store(false);
    let end = run(&mut world, &proxies, end, 60);
    world.run(end, 2 * REPORT_INTERVAL);
    assert!(world.afterwards > without_faults + 10 * DEMAND);
    assert!(world.over() <= world.afterwards, "{} over", world.over());
    let (charged, admitted) = world.sums();
    assert!(charged >= admitted, "{charged} charged, {admitted} admitted");
}

#[test]
fn a_proxy_suspended_for_a_minute_admits_what_it_had_not_read_at_most() {
    let now = Instant::now();
    for begins_at in 1..40 {
        let mut world = ProxyWorld::new(LIMIT, PERIOD, SIZE);
        let proxies = [world.connect(), world.connect()];
        let suspended_at = run(&mut world, &proxies, now, begins_at);
        world.suspend(proxies[0], suspended_at, 60 * SECOND);
        let end = run(&mut world, &proxies, suspended_at, 60);
        assert!(!world.ends().is_empty(), "its stream has ended");
        let before = world.returned;
        world.run(end, SECOND);
        assert_eq!(world.returned, before, "nothing comes back of a stream that has ended");
        run(&mut world, &proxies, end + SECOND, 60);
        assert!(world.over() <= world.late_hits(), "suspended after {begins_at} s");
        let (charged, admitted) = world.sums();
        assert!(charged >= admitted, "{charged} charged, {admitted} admitted");
    }
}

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
