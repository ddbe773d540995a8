//! Traces of grants, resets, and data beside a state.

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;

use super::{
    SECOND, TraceOperation, WINDOWS, amend, decide, hits, hold, in_one_slot, in_slots, lend, look,
    policy,
};
use crate::rls::{descriptor, request};
use crate::traces::TraceCase;

pub(super) fn cases() -> Vec<TraceCase> {
    let resets = [
        "requests_per_unit: 9, unit: hour",
        "algorithm: gcra, requests_per_unit: 9, unit: hour",
        "algorithm: sliding_window, requests_per_unit: 9, unit: hour",
        "algorithm: sliding_log, requests_per_unit: 9, unit: hour",
        &format!("algorithm: sliding_window, {WINDOWS}"),
        &format!("algorithm: sliding_log, {WINDOWS}"),
    ]
    .map(a_reset_keeps_an_instant_ahead_of_the_clock_though_no_hits_are_left);
    let grants = [
        a_grant_is_over_at_its_instant(),
        a_grant_that_ends_leaves_the_reset(),
        a_used_up_grant_has_no_room_for_a_peek(),
        a_reset_forgets_the_instant_of_a_log_whose_hits_are_over(),
        a_charge_leaves_the_time_to_live_of_a_grant(),
        a_charge_is_restored_later_than_it_was_made(),
        a_caller_without_a_tally_takes_hits_back_from_the_others(),
        a_grant_of_no_hits_leaves_one_that_ends_now(),
        a_tally_of_the_first_instant_of_all_is_of_that_instant(),
        a_check_of_holds_leaves_the_time_to_live_of_the_next_counter(),
        a_charge_that_is_taken_back_leaves_an_expired_grant_for_a_clock_that_steps_back(),
    ];
    let resets_with_holds =
        ["", "algorithm: sliding_window, ", "algorithm: sliding_log, ", "algorithm: gcra, "]
            .map(a_commit_that_only_ends_a_hold_drops_an_expired_reset);
    let returns = ["k0", "k1", "k2"].map(a_return_of_a_loan_fails_if_its_counter_is_not_written);
    resets.into_iter().chain(grants).chain(resets_with_holds).chain(returns).collect()
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

/// By its instant, the reset also voids the reserves, until it has expired.
fn a_commit_that_only_ends_a_hold_drops_an_expired_reset(algorithm: &str) -> TraceCase {
    let limit = format!("{algorithm}requests_per_unit: 20, unit: minute, hold: {{ ttl: 5m }}");
    let mut trace =
        vec![(0, decide([hits("k0", 3)])), (50 * SECOND, amend("k0", Amendment::Reset))];
    trace.extend(["r", "s"].map(|id| (0, decide([hold("reserve", "k0", id, 5)]))));
    trace.extend([
        (20 * SECOND, decide([hold("commit", "k0", "r", 5)])),
        (0, decide([hold("commit", "k0", "s", 0)])),
        (0, look("k0")),
    ]);
    in_one_slot(&[&limit], trace)
}

/// In a Cluster, the first counter is charged until the slot of the second denies.
fn a_charge_that_is_taken_back_leaves_an_expired_grant_for_a_clock_that_steps_back() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (10, grant(5, 1)),
        (10, decide([hits("k1", 1)])),
        (SECOND, decide([hits("k0", 1), hits("k1", 1)])),
        (-SECOND - 15, look("k0")),
    ];
    let limits =
        [3, 1].map(|amount| format!("requests_per_unit: {amount}, unit: year, charge: admitted"));
    in_slots(&[&limits[0], &limits[1]], trace)
}

/// A look at the instant at which a grant expires, and at the one before.
fn a_grant_is_over_at_its_instant() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (0, grant(5, 100)),
        (99, look("k0")),
        (1, look("k0")),
        (0, decide([hits("k0", 1)])),
    ];
    in_one_slot(&["requests_per_unit: 1, unit: hour"], trace)
}

/// A grant of no hits ends the one before, and what it leaves beside the reset has no instant.
fn a_grant_that_ends_leaves_the_reset() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (-50, amend("k0", Amendment::Reset)),
        (1, grant(5, 100)),
        (1, grant(0, 0)),
        (0, look("k0")),
        (0, decide([hits("k0", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&["requests_per_unit: 1, unit: hour"], trace)
}

/// The later grant has none to end, since the first has just ended, and writes nothing.
fn a_grant_of_no_hits_leaves_one_that_ends_now() -> TraceCase {
    let trace =
        vec![(0, decide([hits("k0", 1)])), (0, grant(5, 100)), (100, grant(0, 0)), (0, look("k0"))];
    in_one_slot(&["requests_per_unit: 9, unit: hour"], trace)
}

/// An absent counter has neither a grant nor a reset, which might be later than the epoch.
fn a_tally_of_the_first_instant_of_all_is_of_that_instant() -> TraceCase {
    let all = [hits("k0", 1), descriptor(&[("who", "ann")])];
    let trace = vec![(0, decide(all)), (0, look("k0"))];
    let limit = "requests_per_unit: 9, unit: hour, record: [who]";
    TraceCase { begin: 0, ..in_one_slot(&[limit], trace) }
}

/// A peek fits no limit that has been exceeded.
fn a_used_up_grant_has_no_room_for_a_peek() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (0, decide([hits("k0", 5)])),
        (0, grant(2, 100)),
        (0, decide([hits("k0", 0)])),
        (0, decide([hits("k0", 2)])),
        (0, decide([hits("k0", 0)])),
    ];
    in_one_slot(&["requests_per_unit: 1, unit: hour, charge: always"], trace)
}

/// A settle sets the instant of a log whose only entry is no longer in the window. Then the limit
/// loses its holds, and the clock steps back.
fn a_reset_forgets_the_instant_of_a_log_whose_hits_are_over() -> TraceCase {
    let limit = "algorithm: sliding_log, requests_per_unit: 9, unit: second";
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (5 * SECOND, decide([hold("settle", "k0", "r", 0)])),
        (-2 * SECOND, look("k0")),
        (0, amend("k0", Amendment::Reset)),
    ];
    let with_holds = format!("{limit}, hold: {{ ttl: 1m }}");
    let policies = [with_holds.as_str(), limit].map(|limit| policy(&[limit], true)).into();
    TraceCase::new(policies, trace)
}

/// The grant ends within a millisecond, and the instant of the charge is later in its own one: from
/// there, the time to live would be rounded to another end.
fn a_charge_leaves_the_time_to_live_of_a_grant() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (0, grant(5, 7_200_000_500)),
        (700, decide([hits("k0", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&[WINDOWS], trace)
}

/// As above. Each new counter with holds, before it in the same call, has its time to live set.
fn a_check_of_holds_leaves_the_time_to_live_of_the_next_counter() -> TraceCase {
    let after =
        |other| TraceOperation::Together(vec![request(vec![other]), request(vec![hits("k0", 1)])]);
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (0, grant(5, 7_200_000_500)),
        (700, after(hold("reserve", "k1", "r", 1))),
        (1, after(hold("commit", "k2", "r", 1))),
        (0, look("k0")),
    ];
    let with_holds = "requests_per_unit: 9, unit: hour, hold: { ttl: 1m }";
    in_one_slot(&["requests_per_unit: 9, unit: hour", with_holds, with_holds], trace)
}

/// Another slot denies the charge, which is the first one of its window. Then the clock steps back
/// to the window before.
fn a_charge_is_restored_later_than_it_was_made() -> TraceCase {
    let denied = request(vec![hits("k0", 1), hits("k1", 2)]);
    let trace = vec![
        (0, decide([hits("k0", 5)])),
        (SECOND, TraceOperation::Slow(denied, 1)),
        (-1, look("k0")),
    ];
    let limits = [
        "requests_per_unit: 9, unit: second, charge: admitted",
        "requests_per_unit: 1, unit: hour",
    ];
    in_slots(&limits, trace)
}

/// Another slot denies the first request. When its charge is taken back, 40 callers have more hits.
fn a_caller_without_a_tally_takes_hits_back_from_the_others() -> TraceCase {
    let who = |number: u32| descriptor(&[("who", &number.to_string())]);
    let denied = request(vec![hits("k0", 1), hits("k1", 2), who(0)]);
    let others = (1..=40).map(|number| request(vec![hits("k0", 2), who(number)]));
    let trace = vec![
        (0, TraceOperation::Overlapping(std::iter::once(denied).chain(others).collect())),
        (0, TraceOperation::Tallies("k0=a".to_owned())),
        (0, look("k0")),
    ];
    let limit = "requests_per_unit: 99, unit: hour, charge: admitted, record: [who]";
    in_slots(&[limit, "requests_per_unit: 1, unit: hour"], trace)
}

/// In step 6, a server refuses writes of some keys: of one of three counters, but not of the loan.
fn a_return_of_a_loan_fails_if_its_counter_is_not_written(key: &str) -> TraceCase {
    let limit = "requests_per_unit: 9, unit: hour";
    let mut trace = vec![(0, lend(key, 3))];
    trace.resize(6, (0, look(key)));
    trace.push((0, TraceOperation::Return(0, 2, Micros::from_secs(60))));
    in_one_slot(&[limit, limit, limit], trace)
}

fn grant(hits: u32, length: u64) -> TraceOperation {
    amend("k0", Amendment::Grant { hits, length: Micros::new(length) })
}
