//! Traces of several counters of one request.

use super::{TraceOperation, hits, hold, in_slots, look};
use crate::rls::request;
use crate::traces::TraceCase;

pub(super) fn cases() -> Vec<TraceCase> {
    ["", "algorithm: sliding_window, ", "algorithm: sliding_log, ", "algorithm: gcra, "]
        .map(a_charge_before_a_reserve_that_another_slot_denies_is_taken_back)
        .into()
}

fn a_charge_before_a_reserve_that_another_slot_denies_is_taken_back(algorithm: &str) -> TraceCase {
    let limit = |amount: u32| {
        format!("{algorithm}requests_per_unit: {amount}, unit: hour, hold: {{ ttl: 1m }}")
    };
    let denied = request(vec![hold("reserve", "k0", "r", 3), hold("reserve", "k1", "r", 2)]);
    let charge = request(vec![hits("k0", 2)]);
    let trace = vec![(0, TraceOperation::Overlapping(vec![denied, charge])), (1, look("k0"))];
    in_slots(&[&limit(9), &limit(1)], trace)
}
