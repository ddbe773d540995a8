//! Traces of windows, logs and rates.

use super::{SECOND, decide, hits, hold, in_one_slot, look};
use crate::traces::TraceCase;

pub(super) fn cases() -> Vec<TraceCase> {
    vec![a_window_of_a_log_is_full_without_the_entry_that_ends_now()]
}

/// A cost past the limit is added to the newest entry in the windows that are full. An entry that
/// is exactly one period old is not in the window.
fn a_window_of_a_log_is_full_without_the_entry_that_ends_now() -> TraceCase {
    let windows =
        "windows: [{ requests_per_unit: 2, unit: second }, { requests_per_unit: 9, unit: hour }]";
    let limit = format!("algorithm: sliding_log, {windows}, hold: {{ ttl: 1m }}");
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
