//! Traces of marks, ledgers, and amounts of their greatest length.

use std::iter::zip;

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::RateLimitDescriptor;

use super::{
    MS, SECOND, TraceOperation, WINDOWS, amend, changing, decide, hits, hold, in_one_slot, look,
    policy,
};
use crate::traces::{TraceCase, TraceStep};

pub(super) fn cases() -> Vec<TraceCase> {
    vec![
        hits_of_a_long_backlog_are_whole(),
        a_long_backlog_keeps_its_hits_at_a_lower_rate(),
        a_loan_that_costs_too_much_at_a_lower_rate_is_taken_back_in_part(),
        a_rate_changes_at_the_first_instant_that_is_too_long_for_the_short_form(),
        a_backlog_that_is_too_long_at_a_lower_rate_stays_as_it_is(),
        marks_are_sealed_once(),
        marks_beyond_the_most_that_are_kept_are_dropped(),
        the_first_mark_stays_sealed(),
        logs_of_windows_become_wide(),
        a_backlog_beyond_the_deepest_stays_as_it_is(),
        a_value_without_a_backlog_is_of_its_own_rate(),
        a_limit_of_another_rate_is_charged_for_its_own_denial(),
        neighbors_as_far_apart_as_a_group_may_be_are_merged(),
        as_many_marks_as_are_kept_and_one_more(),
        a_backlog_of_as_many_microseconds_as_thirds_is_taken_back(),
        logs_of_windows_have_256_entries(),
        hits_beyond_the_limits_of_windows_are_refunded(),
        a_charge_at_another_rate_has_the_mark_of_that_rate(4),
        a_charge_at_another_rate_has_the_mark_of_that_rate(20),
        the_least_backlog_since_a_charge_is_that_of_another_rate(),
        a_backlog_one_too_long_for_the_short_form_is_in_the_other(),
        a_burst_fits_a_backlog_of_another_rate_that_has_drained(),
        a_backlog_beyond_the_deepest_by_a_part_of_a_microsecond_stays_as_it_is(),
        hits_of_a_long_backlog_have_the_parts_of_both_sums(),
    ]
}

/// Their product exceeds what a double represents.
fn hits_of_a_long_backlog_are_whole() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 999983, unit: 3650d";
    in_one_slot(&[limit], vec![(0, decide([hits("k0", 30)])), (0, look("k0"))])
}

/// The time of one hit has drained, but for less than a microsecond: 29 hits and a part are left,
/// where the whole microseconds alone are less than 29 hits.
fn hits_of_a_long_backlog_have_the_parts_of_both_sums() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 999983, unit: 3650d";
    in_one_slot(&[limit], vec![(0, decide([hits("k0", 30)])), (315_365_361, look("k0"))])
}

/// Its product with either amount exceeds what a double represents.
fn a_long_backlog_keeps_its_hits_at_a_lower_rate() -> TraceCase {
    let limits = [
        "algorithm: gcra, requests_per_unit: 3, unit: 3650d, max_debt: 80, charge: always",
        "algorithm: gcra, requests_per_unit: 2, unit: 3650d, max_debt: 50, charge: always",
    ];
    let then = vec![(1, decide([hits("k0", 1)])), (0, look("k0"))];
    changing(zip(limits, [vec![(0, decide([hits("k0", 57)]))], then]))
}

/// The cost at the lower rate exceeds the longest backlog, of which the time since is subtracted.
fn a_loan_that_costs_too_much_at_a_lower_rate_is_taken_back_in_part() -> TraceCase {
    let limits = [
        "algorithm: gcra, requests_per_unit: 1000, unit: 3650d, charge: always",
        "algorithm: gcra, requests_per_unit: 1, unit: 3650d, charge: always",
    ];
    let first = vec![(0, TraceOperation::Lend("k0=a".to_owned(), 600, Charge::Always))];
    let then = vec![
        (180_216_000 * SECOND, decide([hits("k0", 1)])),
        (0, TraceOperation::TakeBack(0, u64::MAX)),
        (0, look("k0")),
    ];
    changing(zip(limits, [first, then]))
}

/// A commit of the cost that was reserved leaves the backlog at the rate of before.
fn a_rate_changes_at_the_first_instant_that_is_too_long_for_the_short_form() -> TraceCase {
    let limit = |amount: u32| {
        format!("algorithm: gcra, requests_per_unit: {amount}, unit: second, hold: {{ ttl: 1m }}")
    };
    let limits = [8, 10].map(limit);
    let first = vec![(0, decide([hold("reserve", "k0", "r", 2)]))];
    let then = vec![(0, decide([hold("commit", "k0", "r", 2)])), (0, look("k0"))];
    TraceCase { begin: 1 << 52, ..changing(zip(limits, [first, then])) }
}

/// A commit of the cost that was reserved leaves it at the rate of before: 2^30 us of one hit.
fn a_backlog_one_too_long_for_the_short_form_is_in_the_other() -> TraceCase {
    let limit = |amount: u32| {
        format!("algorithm: gcra, requests_per_unit: {amount}, unit: hour, hold: {{ ttl: 2h }}")
    };
    let limits = [1, 2].map(limit);
    let first = vec![(0, decide([hold("reserve", "k0", "r", 1)]))];
    let drained = 3_600 * SECOND - (1 << 30);
    let then = vec![(drained, decide([hold("commit", "k0", "r", 1)])), (0, look("k0"))];
    changing(zip(limits, [first, then]))
}

fn a_burst_fits_a_backlog_of_another_rate_that_has_drained() -> TraceCase {
    let limits = [9, 8].map(|n| format!("algorithm: gcra, requests_per_unit: {n}, unit: second"));
    let then = vec![(SECOND, decide([hits("k0", 8)])), (0, look("k0"))];
    changing(zip(limits, [vec![(0, decide([hits("k0", 1)]))], then]))
}

/// A cost below its hold is taken back at the rate of before.
fn a_backlog_that_is_too_long_at_a_lower_rate_stays_as_it_is() -> TraceCase {
    let limit = |amount: u32| {
        format!("algorithm: gcra, requests_per_unit: {amount}, unit: 3650d, hold: {{ ttl: 1m }}")
    };
    let limits = [1_000, 1].map(limit);
    let then = vec![(SECOND, decide([hold("commit", "k0", "r", 50)])), (0, look("k0"))];
    let first = vec![(0, decide([hold("reserve", "k0", "r", 100)]))];
    changing(zip(limits, [first, then]))
}

/// The second refund of an instant finds one mark, which is sealed.
fn marks_are_sealed_once() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 9, unit: hour, hold: { ttl: 1m }";
    let trace = vec![
        (0, decide([hits("k0", 5)])),
        (1, amend("k0", Amendment::Refund(9))),
        (0, decide([hits("k0", 5)])),
        (0, amend("k0", Amendment::Refund(2))),
        (0, amend("k0", Amendment::Refund(1))),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// Returns reserves of one hit, each by an ID of its own and after a time.
fn reserves(ids: std::ops::Range<u32>, after: i64) -> impl Iterator<Item = TraceStep> {
    ids.map(move |id| (after, decide([hold("reserve", "k0", id.to_string(), 1)])))
}

/// The backlogs are too short for groups. The first charge of which the next one has a mark is
/// taken back as far as that says, and the one before it not at all.
fn marks_beyond_the_most_that_are_kept_are_dropped() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 9, hold: { ttl: 1h }";
    let mut trace: Vec<_> = reserves(0..130, SECOND - 1).collect();
    for id in ["32", "33", "34"] {
        trace.extend([(0, decide([hold("commit", "k0", id, 0)])), (0, look("k0"))]);
    }
    in_one_slot(&[limit], trace)
}

/// Charges without a hold leave no mark, so that the one before a refund is the first one.
fn the_first_mark_stays_sealed() -> TraceCase {
    let rate = "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1000";
    let with_hold = format!("{rate}, hold: {{ ttl: 1h }}");
    let mut then = vec![
        (0, decide([hold("reserve", "k0", "r", 3)])),
        (MS, amend("k0", Amendment::Refund(9))),
        (0, decide([hits("k0", 5)])),
        (0, amend("k0", Amendment::Refund(1))),
    ];
    then.extend(reserves(0..130, MS));
    then.extend([(0, decide([hold("commit", "k0", "r", 0)])), (0, look("k0"))]);
    changing(zip([rate, &with_hold], [vec![(0, decide([hits("k0", 9)]))], then]))
}

/// The cost is in the newest entry of the window that is full.
fn logs_of_windows_become_wide() -> TraceCase {
    let limit = format!("algorithm: sliding_log, {WINDOWS}, hold: {{ ttl: 1m }}");
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (1, decide([hold("reserve", "k0", "r", 1)])),
        (1, decide([hold("commit", "k0", "r", u32::MAX.into())])),
        (1, look("k0")),
        (SECOND, decide([hold("commit", "k0", "s", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// Returns a limit of three hits a second that charges beyond its burst.
fn with_debt(burst: u32, debt: u32) -> String {
    let rate = "algorithm: gcra, requests_per_unit: 3, unit: second";
    format!("{rate}, burst: {burst}, max_debt: {debt}, charge: always")
}

/// Three hits take a second, more than two, whose part of a microsecond is larger.
fn a_backlog_beyond_the_deepest_stays_as_it_is() -> TraceCase {
    let limits = [5, 0].map(|debt| with_debt(2, debt));
    let then = vec![(0, decide([hits("k0", 1)])), (0, look("k0"))];
    changing(zip(limits, [vec![(0, decide([hits("k0", 3)]))], then]))
}

/// Of 1,666,666 2/3 us for five hits, 333,333 2/3 are left. One hit takes 333,333 1/3.
fn a_backlog_beyond_the_deepest_by_a_part_of_a_microsecond_stays_as_it_is() -> TraceCase {
    let limits = [4, 0].map(|debt| with_debt(1, debt));
    let then = vec![(1_333_333, decide([hits("k0", 1)])), (0, look("k0"))];
    changing(zip(limits, [vec![(0, decide([hits("k0", 5)]))], then]))
}

/// Its bits after those of the limit are the same as of a backlog at the limit below.
fn a_value_without_a_backlog_is_of_its_own_rate() -> TraceCase {
    let limits = [9, 8].map(|n| format!("algorithm: gcra, requests_per_unit: {n}, unit: second"));
    let first = vec![(0, decide([hits("k0", 1)])), (0, amend("k0", Amendment::Refund(1)))];
    let then = vec![(0, look("k0")), (0, decide([hits("k0", 1)]))];
    changing(zip(limits, [first, then]))
}

/// The request is denied, so that only its denied hits are charged.
fn a_limit_of_another_rate_is_charged_for_its_own_denial() -> TraceCase {
    let both = |amount: u32| {
        let rate = format!("algorithm: gcra, requests_per_unit: {amount}, unit: hour, burst: 2");
        policy(&[&format!("{rate}, charge: blamed"), "requests_per_unit: 9, unit: hour"], true)
    };
    let trace = vec![
        (0, decide([hits("k0", 2)])),
        (0, look("k0")),
        (1, decide([hits("k0", 1), hits("k1", 1)])),
        (0, look("k0")),
    ];
    TraceCase::new([9, 8].map(both).into(), trace)
}

/// 129 marks of equal distances, of which four are the longest of a group. A group leaves less of
/// the backlog than the cost of the charge before it.
fn neighbors_as_far_apart_as_a_group_may_be_are_merged() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 9, hold: { ttl: 1h }";
    let mut trace = vec![(0, decide([hold("reserve", "k0", "first", 5)]))];
    trace.extend(reserves(0..128, SECOND - 1));
    for id in ["60", "61", "62", "63"] {
        trace.extend([(0, decide([hold("commit", "k0", id, 0)])), (0, look("k0"))]);
    }
    in_one_slot(&[limit], trace)
}

/// Of 129 marks, 33 become one. The first one is then dropped, and its backlog of 0 is that of the
/// next one, so that no part of the first charge is left.
fn as_many_marks_as_are_kept_and_one_more() -> TraceCase {
    let limit =
        "algorithm: gcra, requests_per_unit: 1000, unit: second, burst: 1200, hold: { ttl: 1h }";
    let reserve = |number: u32| {
        let (after, hits) = match number {
            0 => (0, 1100),
            1 => (SECOND, 1),
            2..34 => (MS - 1, 1),
            34 => (MS - 1, 1000),
            _ => (SECOND - 1, 1000),
        };
        (after, decide([hold("reserve", "k0", number.to_string(), hits)]))
    };
    let mut trace: Vec<_> = (0..129).map(reserve).collect();
    trace.extend([(0, decide([hold("commit", "k0", "0", 0)])), (0, look("k0"))]);
    in_one_slot(&[limit], trace)
}

/// A hit costs 333,333 1/3 us, of which 1 1/3 are left.
fn a_backlog_of_as_many_microseconds_as_thirds_is_taken_back() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 3, unit: second, hold: { ttl: 1m }";
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (333_332, decide([hold("commit", "k0", "r", 0)])),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// A cost past the limit is added to the newest of 256 entries in the window that is full, and is
/// the 256th in the other one.
fn logs_of_windows_have_256_entries() -> TraceCase {
    let windows = "windows: [{ requests_per_unit: 300, unit: minute }, { requests_per_unit: 256, unit: hour }]";
    let limit = format!("algorithm: sliding_log, {windows}, hold: {{ ttl: 1h }}");
    let mut all = vec![hold("reserve", "k0", "r", 1)];
    all.resize(255, hits("k0", 1));
    let mut trace = vec![(0, decide([hits("k0", 1)])), (120 * SECOND, look("k0"))];
    // More descriptors are not allowed.
    trace.extend(all.chunks(64).map(|some| (0, decide(some))));
    trace.extend([(1, decide([hold("commit", "k0", "r", 2)])), (0, look("k0"))]);
    in_one_slot(&[&limit], trace)
}

/// Each window has a log of its own. A refund is allowed though its hits would not fit.
fn hits_beyond_the_limits_of_windows_are_refunded() -> TraceCase {
    let limit = format!("algorithm: sliding_log, {WINDOWS}, hold: {{ ttl: 1m }}");
    let refund = RateLimitDescriptor { is_negative_hits: true, ..hits("k0", 1) };
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (1, decide([hold("reserve", "k0", "r", 1)])),
        (1, decide([hold("commit", "k0", "r", 10)])),
        (1, decide([refund])),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// The first charge, of hits that cost thirds of a microsecond, is taken back as far as the mark of
/// the second one says.
fn a_charge_at_another_rate_has_the_mark_of_that_rate(amount: u32) -> TraceCase {
    let limits = [3, amount].map(|amount| {
        let rate = format!("requests_per_unit: {amount}, unit: second, burst: 20");
        format!("algorithm: gcra, {rate}, hold: {{ ttl: 1m }}")
    });
    let first = vec![(0, decide([hold("reserve", "k0", "r", 4)]))];
    let then = vec![
        (1, decide([hold("reserve", "k0", "s", 1)])),
        (1, decide([hold("commit", "k0", "r", 1)])),
        (0, look("k0")),
    ];
    changing(zip(limits, [first, then]))
}

/// Nothing was charged at the lower rate before the take-back.
fn the_least_backlog_since_a_charge_is_that_of_another_rate() -> TraceCase {
    let limits = [8, 4].map(|amount| {
        let rate = format!("requests_per_unit: {amount}, unit: second, burst: 20");
        format!("algorithm: gcra, {rate}, hold: {{ ttl: 1m }}")
    });
    let first = vec![(0, decide([hold("reserve", "k0", "r", 4)]))];
    let then = vec![(1, decide([hold("commit", "k0", "r", 0)])), (0, look("k0"))];
    changing(zip(limits, [first, then]))
}
