//! Traces of several counters of one request.

use tollgate::algorithm::hold::HoldAction;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::{SECOND, TraceOperation, decide, hits, hold, in_one_slot, in_slots, look, open_holds};
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
    cases.extend(algorithms.map(denied_hits_of_an_unused_counter_are_recorded));
    cases.extend(HOLDING.map(a_retried_call_for_a_counter_that_is_named_twice_changes_nothing));
    for keys in [&["k0", "k1", "k0"][..], &["k0", "k1"]] {
        cases
            .extend(HOLDING.map(|limit| a_conflict_denies_the_request_in_shadow_mode(keys, limit)));
    }
    cases.extend(HOLDING.map(a_cancel_ends_a_hold_for_each_time_that_it_names_the_counter));
    for operation in ["settle", "commit"] {
        let ends = |limit| a_request_that_ends_a_hold_of_an_id_twice_ends_one(operation, limit);
        cases.extend(HOLDING.map(ends));
        let ends = |limit| a_request_that_ends_a_hold_twice_has_the_room_of_one(operation, limit);
        cases.extend(HOLDING.map(ends));
    }
    cases.extend(
        algorithms.map(a_denied_hold_is_gone_if_its_counter_has_the_same_value_as_with_the_hold),
    );
    cases.extend(HOLDING.map(a_settle_beside_a_commit_of_its_id_does_nothing));
    cases.extend([
        a_refund_has_no_vote(),
        a_refund_of_a_limit_with_holds_has_no_vote(&["k2"]),
        a_refund_of_a_limit_with_holds_has_no_vote(&["k2", "k2"]),
        a_request_is_denied_by_a_limit_that_cannot_be_read(),
        a_quota_that_cannot_be_read_votes_against_a_request(),
        a_counter_that_cannot_be_read_is_not_restored(""),
        a_counter_that_cannot_be_read_is_not_restored(", hold: { ttl: 1m }"),
        a_request_after_one_that_names_a_counter_twice_keeps_lifetimes(),
        a_counter_with_holds_that_is_named_twice_is_restored(),
        a_denied_reserve_that_cannot_be_recorded_is_denied(),
        a_denied_reserve_alone_that_cannot_be_recorded_is_denied(),
        a_peek_of_no_hits_asks_for_none(),
        a_value_of_4096_bytes_is_restored(116, -SECOND),
        // This one is too long by a byte.
        a_value_of_4096_bytes_is_restored(117, 0),
    ]);
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

/// The same charge at the same instant makes that value.
fn a_denied_hold_is_gone_if_its_counter_has_the_same_value_as_with_the_hold(
    algorithm: &str,
) -> TraceCase {
    let limit = format!("{algorithm}requests_per_unit: 100, unit: hour, hold: {{ ttl: 1m }}");
    let trace = vec![
        (0, decide([hits("k1", 1)])),
        (0, decide([hold("reserve", "k0", "r", 5), hits("k1", 1)])),
        (0, decide([hits("k0", 5)])),
        (0, decide([hold("commit", "k0", "r", 2)])),
        (0, look("k0")),
    ];
    in_slots(&[&limit, "requests_per_unit: 1, unit: year"], trace)
}

fn a_retried_call_for_a_counter_that_is_named_twice_changes_nothing(limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0", "k0"], 2)),
        (1, call(HoldAction::ReserveOnce, &["k0", "k0"], 2)),
        (1, call(HoldAction::ReserveOnce, &["k0", "k1", "k0"], 3)),
        (1, call(HoldAction::ReserveOnce, &["k0"], 4)),
        (0, open_holds("k0")),
        (0, look("k1")),
    ];
    in_one_slot(&[limit, limit], trace)
}

/// The counters of a call have other hits than before, and that denies although no limit does.
fn a_conflict_denies_the_request_in_shadow_mode(keys: &[&str], limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0"], 2)),
        (1, call(HoldAction::ReserveOnce, keys, 3)),
        (0, look("k1")),
    ];
    let modes = Modes { shadow: true, ..Modes::default() };
    TraceCase { modes, ..in_one_slot(&[limit, limit], trace) }
}

fn a_cancel_ends_a_hold_for_each_time_that_it_names_the_counter(limit: &str) -> TraceCase {
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, &["k0", "k0", "k0"], 2)),
        (1, call(HoldAction::Cancel, &["k0", "k0"], 0)),
        (0, open_holds("k0")),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// Alone, beside another counter, and beside one that is named twice and records.
fn a_settle_beside_a_commit_of_its_id_does_nothing(limit: &str) -> TraceCase {
    let limit = limit.replace(": 9,", ": 90,");
    let other = || hits("k1", 1);
    let mut trace = Vec::new();
    for others in [vec![], vec![other()], vec![other(), other(), descriptor(&[("who", "ann")])]] {
        for order in [["commit", "settle"], ["settle", "commit"]] {
            let both = |id| order.map(|operation| hold(operation, "k0", id, 3));
            let request = |id| (1, decide([&both(id)[..], &others].concat()));
            let reserve = decide([hold("reserve", "k0", "r", 5)]);
            // What the IDs had before has expired.
            trace.extend([(61 * SECOND, reserve), request("r"), request("r"), request("s")]);
            trace.push((0, look("k0")));
        }
    }
    in_one_slot(&[&limit, "requests_per_unit: 99, unit: hour, record: [who]"], trace)
}

fn a_request_that_ends_a_hold_of_an_id_twice_ends_one(operation: &str, limit: &str) -> TraceCase {
    let end = || hold(operation, "k0", "r", 1);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (1, decide([hold("reserve", "k0", "r", 3)])),
        (1, decide([end(), end()])),
        (0, open_holds("k0")),
        (0, look("k0")),
    ];
    in_one_slot(&[limit], trace)
}

/// Of two holds of four hits, one ends, so that six hits do not fit.
fn a_request_that_ends_a_hold_twice_has_the_room_of_one(operation: &str, limit: &str) -> TraceCase {
    let end = || hold(operation, "k0", "r", 0);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 4)])),
        (1, decide([hold("reserve", "k0", "r", 4)])),
        (1, decide([end(), end(), hold("reserve", "k0", "s", 6)])),
        (0, open_holds("k0")),
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
    TraceCase::new(policies, trace)
}

/// The same where the limit of the refund keeps holds, or checks name a counter twice.
fn a_refund_of_a_limit_with_holds_has_no_vote(charged: &[&str]) -> TraceCase {
    let refund = RateLimitDescriptor { is_negative_hits: true, ..hits("k1", 1) };
    let mut all = vec![hits("k0", 1), refund];
    all.extend(charged.iter().map(|key| hits(key, 1)));
    let trace = vec![(0, decide([hits("k0", 1)])), (1, decide(all)), (0, look("k2"))];
    let rule = |options, mode| {
        let limit = format!("requests_per_unit: 1, unit: hour, charge: admitted{options}");
        RandomRule { limit, mode }
    };
    let quota = "    quota_mode: true\n";
    let rules = [rule("", quota), rule(", hold: { ttl: 1m }", quota), rule("", "")];
    TraceCase::new(vec![text_of(&rules, true)], trace)
}

/// The first step first meets a full server.
fn a_denied_reserve_that_cannot_be_recorded_is_denied() -> TraceCase {
    let who = descriptor(&[("who", "ann")]);
    let all = [hold("reserve", "k0", "r", 10), hits("k1", 1), who];
    let limits = [
        "requests_per_unit: 9, unit: hour, hold: { ttl: 1m }, record: [who]",
        "requests_per_unit: 9, unit: hour",
    ];
    in_one_slot(&limits, vec![(0, decide(all)), (0, look("k1"))])
}

/// As above.
fn a_denied_reserve_alone_that_cannot_be_recorded_is_denied() -> TraceCase {
    let all = [hold("reserve", "k0", "r", 10), descriptor(&[("who", "ann")])];
    let limit = "requests_per_unit: 9, unit: hour, hold: { ttl: 1m }, record: [who]";
    in_one_slot(&[limit], vec![(0, decide(all)), (0, look("k0"))])
}

/// A peek needs room for one hit, which is none of those that a denied charge after it would need.
fn a_peek_of_no_hits_asks_for_none() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 5)])),
        (0, decide([hits("k0", 0), hits("k0", 5)])),
        (0, look("k0")),
    ];
    in_one_slot(&["requests_per_unit: 5, unit: hour, charge: afterwards"], trace)
}

/// The value has 16 bytes, 29 tallies of 136 bytes and one of 20 and `last`. Its charge is denied
/// by the limit of another slot, and taken back. Then the clock steps back: a counter that is
/// restored has the instant of before.
fn a_value_of_4096_bytes_is_restored(last: usize, step: i64) -> TraceCase {
    let charge = |who: &str| [hits("k0", 1), descriptor(&[("who", who)])];
    let mut trace: Vec<_> =
        (0..29).map(|number| (0, decide(charge(&format!("{number:0116}"))))).collect();
    let [hit, who] = charge(&"a".repeat(last));
    trace.extend([
        (0, decide([hit.clone(), who.clone()])),
        (SECOND, decide([hit, hits("k1", 2), who])),
        (step, look("k0")),
    ]);
    let limits = [
        "requests_per_unit: 99, unit: hour, charge: admitted, record: [who]",
        "requests_per_unit: 1, unit: hour, charge: admitted",
    ];
    in_slots(&limits, trace)
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

/// The same in quota mode: there is no other quota, so that its vote denies.
fn a_quota_that_cannot_be_read_votes_against_a_request() -> TraceCase {
    let one = || decide([hits("k0", 1)]);
    let trace = vec![
        (0, one()),
        (1, one()),
        (1, one()),
        (1, decide([hits("k0", 1), hits("k1", 1)])),
        (0, look("k1")),
    ];
    let rule = |options, mode| {
        let limit = format!("requests_per_unit: 9, unit: hour, {options}");
        RandomRule { limit, mode }
    };
    let rules =
        [rule("on_store_error: deny", "    quota_mode: true\n"), rule("charge: admitted", "")];
    TraceCase::new(vec![text_of(&rules, true)], trace)
}

/// The fourth step meets a value that is cut. The slot of `k0` has nothing to restore if that of
/// `k1` denies.
fn a_counter_that_cannot_be_read_is_not_restored(options: &str) -> TraceCase {
    let limit = |amount: u32| {
        format!("requests_per_unit: {amount}, unit: hour, on_store_error: allow{options}")
    };
    let one = || decide([hits("k0", 1)]);
    let all = decide([hits("k0", 1), hits("k0", 1), hits("k1", 2)]);
    let trace = vec![(0, one()), (1, one()), (1, one()), (1, all), (0, look("k0"))];
    in_slots(&[&limit(9), &limit(1)], trace)
}

/// With the clocks of servers, a charge of a bucket that has hits leaves the lifetime, which does
/// not end with a millisecond.
fn a_request_after_one_that_names_a_counter_twice_keeps_lifetimes() -> TraceCase {
    let limit = "algorithm: sliding_window, requests_per_unit: 9, unit: second, buckets: 7";
    let requests = vec![request(vec![hits("k0", 1), hits("k0", 1)]), request(vec![hits("k1", 1)])];
    let trace = vec![
        (0, decide([hits("k1", 1)])),
        (0, decide([hits("k1", 1)])),
        (999, TraceOperation::Overlapping(requests)),
        (0, look("k1")),
    ];
    in_one_slot(&[limit, limit], trace)
}

/// Both denied checks name the same counter.
fn denied_hits_of_an_unused_counter_are_recorded(algorithm: &str) -> TraceCase {
    let limit = format!("{algorithm}requests_per_unit: 9, unit: hour, record: [who]");
    let who = || descriptor(&[("who", "ann")]);
    let trace = vec![
        (0, decide([hits("k0", 10), hits("k0", 11), who()])),
        (1, decide([hits("k0", 2), who()])),
        (0, TraceOperation::Tallies("k0=a".to_owned())),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// Charges without an ID beside a hold, which the limit of another slot denies. Then the clock
/// steps back: a counter that is restored has the instant of before.
fn a_counter_with_holds_that_is_named_twice_is_restored() -> TraceCase {
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (SECOND, decide([hits("k0", 1), hits("k0", 2), hits("k1", 2)])),
        (-SECOND, look("k0")),
        (0, decide([hits("k0", 1)])),
    ];
    in_slots(&[HOLDING[0], "requests_per_unit: 1, unit: hour"], trace)
}

/// Returns a call for the holds of an ID at the counters of some keys.
fn call(action: HoldAction, keys: &[&str], hits: u32) -> TraceOperation {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "a")])).collect();
    TraceOperation::Hold(request(descriptors), TracedHoldCall { id: "r", action, hits, ttl: None })
}
