//! Traces of several counters of one request.

use tollgate::algorithm::hold::HoldAction;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::{TraceOperation, decide, hits, hold, in_one_slot, in_slots, look};
use crate::rls::{descriptor, request};
use crate::traces::rules::{RandomRule, text_of};
use crate::traces::{TraceCase, TracedHoldCall};

/// Limits with holds of one counter each.
const HOLDING: [&str; 4] = [
    "requests_per_unit: 9, unit: hour, hold: { ttl: 1m, on_settle: release }",
    "algorithm: sliding_log, requests_per_unit: 9, unit: hour, hold: { ttl: 1m, on_settle: release }",
    "algorithm: gcra, requests_per_unit: 9, unit: hour, hold: { ttl: 1m, on_settle: release }",
    "algorithm: concurrency, in_flight: 9, hold: { ttl: 1m }",
];

pub(super) fn cases() -> Vec<TraceCase> {
    let algorithms =
        ["", "algorithm: sliding_window, ", "algorithm: sliding_log, ", "algorithm: gcra, "];
    let mut cases: Vec<_> =
        algorithms.map(a_charge_before_a_reserve_that_another_slot_denies_is_taken_back).into();
    cases.extend(HOLDING.map(a_retried_call_for_a_counter_that_is_named_twice_changes_nothing));
    cases.extend(HOLDING.map(a_conflict_denies_the_request_in_shadow_mode));
    cases.extend(HOLDING.map(a_cancel_ends_a_hold_for_each_time_that_it_names_the_counter));
    for operation in ["settle", "commit"] {
        let ends = |limit| a_request_that_ends_a_hold_of_an_id_twice_ends_one(operation, limit);
        cases.extend(HOLDING.map(ends));
    }
    cases.extend([a_refund_has_no_vote(), a_request_is_denied_by_a_limit_that_cannot_be_read()]);
    cases
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

fn a_retried_call_for_a_counter_that_is_named_twice_changes_nothing(limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0", "k0"], 2)),
        (1, call(HoldAction::ReserveOnce, &["k0", "k0"], 2)),
        (1, call(HoldAction::ReserveOnce, &["k0", "k1", "k0"], 3)),
        (1, call(HoldAction::ReserveOnce, &["k0"], 4)),
        (0, open_holds()),
        (0, look("k1")),
    ];
    in_one_slot(&[limit, limit], trace)
}

/// The counters of a call have other hits than before, and that denies although no limit does.
fn a_conflict_denies_the_request_in_shadow_mode(limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0"], 2)),
        (1, call(HoldAction::ReserveOnce, &["k0", "k1", "k0"], 3)),
        (0, look("k1")),
    ];
    let modes = Modes { shadow: true, ..Modes::default() };
    TraceCase { modes, ..in_one_slot(&[limit, limit], trace) }
}

fn a_cancel_ends_a_hold_for_each_time_that_it_names_the_counter(limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0", "k0", "k0"], 2)),
        (1, call(HoldAction::Cancel, &["k0", "k0"], 0)),
        (0, open_holds()),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

fn a_request_that_ends_a_hold_of_an_id_twice_ends_one(operation: &str, limit: &str) -> TraceCase {
    let end = || hold(operation, "k0", "r", 1);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (1, decide([hold("reserve", "k0", "r", 3)])),
        (1, decide([end(), end()])),
        (0, open_holds()),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// A request is denied, and charges nothing, if all of its limits in quota mode deny; one that only
/// has a refund is none of them.
fn a_refund_has_no_vote() -> TraceCase {
    let refund = RateLimitDescriptor { is_negative_hits: true, ..hits("k1", 1) };
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (1, decide([hits("k0", 1), refund, hits("k2", 1), descriptor(&[("who", "ann")])])),
        (0, look("k2")),
    ];
    let rule = |mode| {
        let limit = "requests_per_unit: 1, unit: hour, charge: admitted, record: [who]".to_owned();
        RandomRule { limit, mode }
    };
    let quota = "    quota_mode: true\n";
    let policies = vec![text_of(&[rule(quota), rule(quota), rule("")], true)];
    TraceCase { policies, ..in_one_slot(&[], trace) }
}

/// The fourth step meets a value that is cut, and its limit denies if the store fails: the request
/// charges no other counter.
fn a_request_is_denied_by_a_limit_that_cannot_be_read() -> TraceCase {
    let all = || decide([hits("k0", 1), hits("k1", 1), descriptor(&[("who", "ann")])]);
    let one = || decide([hits("k0", 1)]);
    let limits = [
        "requests_per_unit: 9, unit: hour, on_store_error: deny, record: [who]",
        "requests_per_unit: 9, unit: hour, charge: admitted",
    ];
    in_one_slot(&limits, vec![(0, one()), (1, one()), (1, one()), (1, all()), (0, look("k1"))])
}

/// Returns a call for the holds of an ID at the counters of some keys.
fn call(action: HoldAction, keys: &[&str], hits: u32) -> TraceOperation {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "a")])).collect();
    TraceOperation::Hold(request(descriptors), TracedHoldCall { id: "r", action, hits, ttl: None })
}

fn open_holds() -> TraceOperation {
    TraceOperation::OpenHolds("k0=a".to_owned())
}
