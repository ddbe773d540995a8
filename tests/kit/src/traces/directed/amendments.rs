//! Traces of grants, resets, and data beside a state.

use tollgate::algorithm::amend::Amendment;

use super::{SECOND, amend, decide, hits, in_one_slot, look};
use crate::traces::TraceCase;

pub(super) fn cases() -> Vec<TraceCase> {
    let windows =
        "windows: [{ requests_per_unit: 2, unit: second }, { requests_per_unit: 9, unit: hour }]";
    [
        "requests_per_unit: 9, unit: hour",
        "algorithm: gcra, requests_per_unit: 9, unit: hour",
        "algorithm: sliding_window, requests_per_unit: 9, unit: hour",
        "algorithm: sliding_log, requests_per_unit: 9, unit: hour",
        &format!("algorithm: sliding_window, {windows}"),
        &format!("algorithm: sliding_log, {windows}"),
    ]
    .map(a_reset_keeps_an_instant_ahead_of_the_clock_though_no_hits_are_left)
    .into()
}

/// Refunds empty the counter. Its reset is earlier, and then the clock steps back.
fn a_reset_keeps_an_instant_ahead_of_the_clock_though_no_hits_are_left(limit: &str) -> TraceCase {
    let mut trace = vec![
        (0, decide([hits("k0", 1)])),
        (0, amend("k0", Amendment::Refund(1))),
        (-50, amend("k0", Amendment::Reset)),
    ];
    for step in [-10, 20, 40, SECOND] {
        trace.extend([(step, decide([hits("k0", 1)])), (0, look("k0"))]);
    }
    in_one_slot(&[limit], trace)
}
