//! Traces of windows, logs and rates.

use tollgate::algorithm::amend::Amendment;

use super::{SECOND, WINDOWS, amend, decide, hits, hold, in_one_slot, lend, look};
use crate::traces::{TraceCase, TraceOperation};

pub(super) fn cases() -> Vec<TraceCase> {
    vec![
        a_window_of_a_log_is_full_until_its_first_entry_ends(0),
        a_window_of_a_log_is_full_until_its_first_entry_ends(1),
        a_weighted_bucket_counts_whole_until_the_period_after_it_begins(),
        a_backlog_may_exceed_the_room_by_a_part_of_a_microsecond(),
        a_take_back_drops_the_entry_before_if_it_is_over(SECOND - 1),
        a_backlog_may_be_less_than_the_deepest_by_a_part_of_a_microsecond(),
        a_counter_whose_hits_were_refunded_has_room_for_the_most_hits(),
        a_window_that_began_at_the_last_write_keeps_its_hits(),
        a_charge_that_begins_a_window_is_taken_back(),
        a_log_is_charged_without_the_entry_that_no_longer_counts(),
        a_take_back_drops_the_entry_before_if_it_is_over(SECOND),
        a_take_back_spares_later_hits_though_its_own_were_refunded(),
        a_take_back_keeps_entries_before_it("algorithm: sliding_log"),
        a_take_back_keeps_entries_before_it("algorithm: sliding_window"),
        a_cost_past_both_windows_reports_the_longer_one("algorithm: sliding_log"),
        a_cost_past_both_windows_reports_the_longer_one("algorithm: sliding_window"),
        a_reply_has_room_for_some_hits_beyond_a_limit(),
    ]
}

/// A cost past the limit is added to the newest entry in the windows that are full. An entry that
/// is exactly one period old is not in the window; one that is younger by `early` us is.
fn a_window_of_a_log_is_full_until_its_first_entry_ends(early: i64) -> TraceCase {
    let limit = format!("algorithm: sliding_log, {WINDOWS}, hold: {{ ttl: 1m }}");
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (SECOND / 2, decide([hold("reserve", "k0", "r", 1)])),
        (SECOND / 2 - early, decide([hold("commit", "k0", "r", 3)])),
        (0, look("k0")),
        (SECOND / 2, look("k0")),
        (SECOND / 2, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// The last look is at a part of the second bucket, while the value still has the first.
fn a_weighted_bucket_counts_whole_until_the_period_after_it_begins() -> TraceCase {
    let limit = "algorithm: sliding_window, requests_per_unit: 9, unit: 10s, buckets: 10, estimate: weighted";
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (SECOND, decide([hits("k0", 4)])),
        (9 * SECOND, look("k0")),
        (SECOND + SECOND / 2, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// Of 666,666 2/3 us for two hits, 333,333 2/3 are left, where there is room for one hit if 333,333
/// 1/3 are.
fn a_backlog_may_exceed_the_room_by_a_part_of_a_microsecond() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 3, unit: second, burst: 2";
    let trace = vec![
        (0, decide([hits("k0", 2)])),
        (333_333, decide([hits("k0", 1)])),
        (1, decide([hits("k0", 1)])),
    ];
    in_one_slot(&[limit], trace)
}

/// A take-back drops entries that no longer count: those of at least a period.
fn a_take_back_drops_the_entry_before_if_it_is_over(age: i64) -> TraceCase {
    let limit = "algorithm: sliding_log, requests_per_unit: 9, unit: second";
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (10, lend("k0", 2)),
        (age - 10, TraceOperation::TakeBack(0, 1)),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// Two hits take 666,666 2/3 us. Three of them, less what has drained, 666,666 us.
fn a_backlog_may_be_less_than_the_deepest_by_a_part_of_a_microsecond() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 3, unit: second, burst: 2, max_debt: 0";
    let trace =
        vec![(0, decide([hits("k0", 2)])), (333_334, decide([hits("k0", 1)])), (0, look("k0"))];
    in_one_slot(&[limit], trace)
}

/// The totals of its ledger do not begin at 0, and begin there again if the most hits are added.
fn a_counter_whose_hits_were_refunded_has_room_for_the_most_hits() -> TraceCase {
    let limit =
        "algorithm: sliding_window, requests_per_unit: 4294967295, unit: second, buckets: 1";
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (2 * SECOND, decide([hits("k0", 1)])),
        (0, amend("k0", Amendment::Refund(1))),
        (0, decide([hits("k0", u32::MAX.into())])),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// The first instant of all traces begins a second.
fn a_window_that_began_at_the_last_write_keeps_its_hits() -> TraceCase {
    let limit = "requests_per_unit: 9, unit: second";
    let trace = vec![(0, decide([hits("k0", 1)])), (0, decide([hits("k0", 1)])), (0, look("k0"))];
    in_one_slot(&[limit], trace)
}

/// The same instant.
fn a_charge_that_begins_a_window_is_taken_back() -> TraceCase {
    let trace = vec![(0, lend("k0", 2)), (1, TraceOperation::TakeBack(0, 1)), (0, look("k0"))];
    in_one_slot(&["requests_per_unit: 9, unit: second"], trace)
}

fn a_log_is_charged_without_the_entry_that_no_longer_counts() -> TraceCase {
    let limit = "algorithm: sliding_log, requests_per_unit: 9, unit: second";
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (10, decide([hits("k0", 2)])),
        (SECOND - 5, decide([hits("k0", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// One of the two hits of a loan is refunded, so that one is left to take back.
fn a_take_back_spares_later_hits_though_its_own_were_refunded() -> TraceCase {
    let limit = "algorithm: sliding_log, requests_per_unit: 20, unit: hour";
    let trace = vec![
        (0, decide([hits("k0", 3)])),
        (1, lend("k0", 2)),
        (1, amend("k0", Amendment::Refund(1))),
        (1, decide([hits("k0", 2)])),
        (1, TraceOperation::TakeBack(0, 2)),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// There are fewer entries before the loan than after it, so that those before are rewritten.
fn a_take_back_keeps_entries_before_it(algorithm: &str) -> TraceCase {
    let limit = format!("{algorithm}, requests_per_unit: 20, unit: hour");
    let charge = || (120 * SECOND, decide([hits("k0", 1)]));
    let mut trace = vec![charge(), charge()];
    trace.push((120 * SECOND, lend("k0", 1)));
    trace.extend([charge(), charge(), charge(), charge()]);
    trace.extend([(1, TraceOperation::TakeBack(0, 1)), (0, look("k0"))]);
    in_one_slot(&[&limit], trace)
}

/// Of two windows without room, the longer one binds an admitted request.
fn a_cost_past_both_windows_reports_the_longer_one(algorithm: &str) -> TraceCase {
    let limit = format!("{algorithm}, {WINDOWS}, hold: {{ ttl: 1m }}");
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (1, decide([hold("commit", "k0", "r", 10)])),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// There are 567 billion of them, and room for 550.
fn a_reply_has_room_for_some_hits_beyond_a_limit() -> TraceCase {
    let most = || decide(vec![hits("k0", u32::MAX.into()); 44]);
    let mut trace = vec![(0, most()), (0, most()), (0, most())];
    trace.extend([(1, decide([hits("k0", 1)])), (0, look("k0"))]);
    in_one_slot(&["requests_per_unit: 9, unit: hour, charge: always"], trace)
}
