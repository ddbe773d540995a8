//! Traces of windows, logs and rates.

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;

use super::{SECOND, WINDOWS, amend, decide, hits, hold, in_one_slot, look};
use crate::traces::{TraceCase, TraceOperation};

pub(super) fn cases() -> Vec<TraceCase> {
    vec![
        a_window_of_a_log_is_full_without_the_entry_that_ends_now(),
        a_weighted_bucket_counts_whole_until_the_period_after_it_begins(),
        a_backlog_may_exceed_the_room_by_a_part_of_a_microsecond(),
        an_entry_counts_for_the_last_microsecond_of_its_period(),
        a_backlog_may_be_less_than_the_deepest_by_a_part_of_a_microsecond(),
        a_counter_whose_hits_were_refunded_has_room_for_the_most_hits(),
    ]
}

/// A cost past the limit is added to the newest entry in the windows that are full. An entry that
/// is exactly one period old is not in the window.
fn a_window_of_a_log_is_full_without_the_entry_that_ends_now() -> TraceCase {
    let limit = format!("algorithm: sliding_log, {WINDOWS}, hold: {{ ttl: 1m }}");
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (SECOND / 2, decide([hold("reserve", "k0", "r", 1)])),
        (SECOND / 2, decide([hold("commit", "k0", "r", 3)])),
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

/// A take-back drops entries that no longer count.
fn an_entry_counts_for_the_last_microsecond_of_its_period() -> TraceCase {
    let limit = "algorithm: sliding_log, requests_per_unit: 9, unit: second";
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (10, TraceOperation::Lend("k0=a".to_owned(), 2, Charge::Admitted)),
        (SECOND - 11, TraceOperation::TakeBack(0, 1)),
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
