//! Traces of holds and permits.

use super::{TraceOperation, decide, hold, in_one_slot};
use crate::rls::descriptor;
use crate::traces::TraceCase;

pub(super) fn cases() -> Vec<TraceCase> {
    [
        "requests_per_unit: 9, unit: hour",
        "algorithm: gcra, requests_per_unit: 9, unit: hour",
        "algorithm: concurrency, in_flight: 9",
    ]
    .map(a_limit_with_holds_records_entries_of_a_counter_that_is_named_twice)
    .into()
}

fn a_limit_with_holds_records_entries_of_a_counter_that_is_named_twice(rate: &str) -> TraceCase {
    let trace = [["r", "s"], ["t", "u"]].into_iter().flat_map(|ids| {
        let reserve = |id, hits| hold("reserve", "k0", id, hits);
        let all = [reserve(ids[0], 3), reserve(ids[1], 2), descriptor(&[("who", "ann")])];
        [(1, decide(all)), (0, TraceOperation::Tallies("k0=a".to_owned()))]
    });
    in_one_slot(&[&format!("{rate}, hold: {{ ttl: 1m }}, record: [who]")], trace.collect())
}
