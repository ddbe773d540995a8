//! Traces of holds and permits.

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::RateLimitRequest;

use super::{
    SECOND, TraceOperation, amend, decide, hits, hold, in_one_slot, in_slots, lend, look,
    open_holds,
};
use crate::rls::{descriptor, request};
use crate::traces::{TraceCase, TracedHoldCall};

const FIXED: &str = "requests_per_unit: 9, unit: hour";
const GCRA: &str = "algorithm: gcra, requests_per_unit: 9, unit: hour";
const PERMITS: &str = "algorithm: concurrency, in_flight: 9";

pub(super) fn cases() -> Vec<TraceCase> {
    let of_each = |case: fn(&str) -> TraceCase| [FIXED, GCRA, PERMITS].map(case);
    [
        of_each(a_limit_with_holds_records_entries_of_a_counter_that_is_named_twice).to_vec(),
        of_each(a_reserve_that_another_slot_denies_leaves_another_by_its_id).to_vec(),
        of_each(a_reserve_that_another_slot_denies_does_not_renew_a_hold).to_vec(),
        of_each(a_recorded_reserve_that_another_slot_denies_is_not_listed).to_vec(),
        of_each(a_hold_of_one_hit_is_reserved_once_and_extended).to_vec(),
        [FIXED, GCRA].map(a_record_has_four_receipts_at_most).to_vec(),
        ["k0", "k1", "k2"].map(a_record_that_expires_now_is_removed).to_vec(),
        of_each(a_look_finds_a_hold_of_one_hit).to_vec(),
        [FIXED, GCRA].map(a_reserve_that_another_slot_denies_leaves_the_record_of_an_end).to_vec(),
        vec![
            a_permit_that_ends_now_does_not_count(),
            a_refund_ends_a_whole_permit(),
            a_cost_is_taken_back_while_there_is_a_grant(),
            a_hold_of_the_instant_of_a_reset_is_not_given_back(),
            records_of_one_request_count_before_they_are_stored(),
            a_counter_that_cannot_be_read_has_no_instant(),
            a_counter_with_a_grant_that_cannot_be_read_has_an_instant(),
            a_head_without_the_end_of_its_mark_cannot_be_read(),
            a_part_of_a_charge_is_taken_back_from_its_permit(),
            an_operation_without_effect_has_the_instant_of_its_counter(),
            a_reserve_that_another_slot_denies_leaves_a_counter_without_records(),
            records_are_checked_again_after_as_many_as_have_not_expired(),
            a_quarter_of_the_records_has_expired(18),
            a_quarter_of_the_records_has_expired(16),
            a_charge_without_a_record_leaves_the_latest_expiry(),
            hits_in_advance_are_charged_past_a_limit_with_holds(),
            a_record_until_a_multiple_of_30_s_renews_the_keys(),
        ],
    ]
    .concat()
}

/// Returns a limit that keeps holds for a minute.
fn with_holds(rate: &str) -> String {
    format!("{rate}, hold: {{ ttl: 1m }}")
}

fn a_limit_with_holds_records_entries_of_a_counter_that_is_named_twice(rate: &str) -> TraceCase {
    let trace = [["r", "s"], ["t", "u"]].into_iter().flat_map(|ids| {
        let reserve = |id, hits| hold("reserve", "k0", id, hits);
        let all = [reserve(ids[0], 3), reserve(ids[1], 2), descriptor(&[("who", "ann")])];
        [(1, decide(all)), (0, TraceOperation::Tallies("k0=a".to_owned()))]
    });
    in_one_slot(&[&format!("{}, record: [who]", with_holds(rate))], trace.collect())
}

/// The second call names the counter twice.
fn a_hold_of_one_hit_is_reserved_once_and_extended(rate: &str) -> TraceCase {
    let call = |action, counters| {
        let call = TracedHoldCall { id: "r", action, hits: 1, ttl: Some(Micros::from_secs(1)) };
        TraceOperation::Hold(request(vec![descriptor(&[("k0", "a")]); counters]), call)
    };
    let trace = vec![
        (0, call(HoldAction::ReserveOnce, 1)),
        (1, call(HoldAction::ReserveOnce, 2)),
        (1, call(HoldAction::ReserveOnce, 1)),
        (0, look("k0")),
        (SECOND / 2, call(HoldAction::Extend, 1)),
        (0, open_holds("k0")),
        (SECOND / 2 + 1, look("k0")),
    ];
    in_one_slot(&[&with_holds(rate)], trace)
}

/// Returns requests at once: a reserve of three hits of `k0` that the slot of `k1` denies, and
/// another request, which is judged before that is taken back.
fn with_a_denied_reserve(id: &str, other: RateLimitRequest) -> TraceOperation {
    let denied = request(vec![hold("reserve", "k0", id, 3), hold("reserve", "k1", "r", 10)]);
    TraceOperation::Overlapping(vec![denied, other])
}

fn a_reserve_that_another_slot_denies_leaves_another_by_its_id(rate: &str) -> TraceCase {
    let limit = with_holds(rate);
    let other = request(vec![hold("reserve", "k0", "r", 2)]);
    let trace = vec![
        (0, with_a_denied_reserve("r", other)),
        (1, open_holds("k0")),
        (0, look("k0")),
        (0, decide([hold("commit", "k0", "r", 1)])),
        (0, look("k0")),
    ];
    in_slots(&[&limit, &limit], trace)
}

fn a_reserve_that_another_slot_denies_does_not_renew_a_hold(rate: &str) -> TraceCase {
    let limit = with_holds(rate);
    let other = request(vec![hits("k0", 1)]);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (10 * SECOND, with_a_denied_reserve("r", other)),
        (1, open_holds("k0")),
        (0, look("k0")),
    ];
    in_slots(&[&limit, &limit], trace)
}

/// The record of the denied one is stored twice while it is there.
fn a_recorded_reserve_that_another_slot_denies_is_not_listed(rate: &str) -> TraceCase {
    let limit = format!("{}, record: [who]", with_holds(rate));
    let of_ann = |all: Vec<_>| decide([all, vec![descriptor(&[("who", "ann")])]].concat());
    let reserve = |key, id, hits| hold("reserve", key, id, hits);
    let trace = vec![
        (0, of_ann(vec![reserve("k0", "q", 1)])),
        (1, of_ann(vec![reserve("k0", "r", 3), reserve("k1", "r", 10)])),
        (1, open_holds("k0")),
        (1, of_ann(vec![reserve("k0", "r", 2)])),
        (1, open_holds("k0")),
        (1, decide([hold("commit", "k0", "r", 1)])),
        (0, TraceOperation::Tallies("k0=a".to_owned())),
    ];
    in_slots(&[&limit, &limit], trace)
}

/// The fifth charge belongs to no record, so that its cost is unknown.
fn a_record_has_four_receipts_at_most(rate: &str) -> TraceCase {
    let mut trace = Vec::new();
    for operation in ["reserve", "commit"] {
        let of_each = (0..5).map(|_| (1, decide([hold(operation, "k0", "r", 1)])));
        trace.extend(of_each.chain([(0, open_holds("k0"))]));
    }
    in_one_slot(&[&with_holds(rate)], trace)
}

fn a_permit_that_ends_now_does_not_count() -> TraceCase {
    let limit = "algorithm: concurrency, in_flight: 5, hold: { ttl: 10s }";
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (5 * SECOND, decide([hold("reserve", "k0", "s", 3)])),
        (5 * SECOND, decide([hold("reserve", "k0", "t", 4)])),
    ];
    in_one_slot(&[limit], trace)
}

fn a_refund_ends_a_whole_permit() -> TraceCase {
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (1, decide([hold("reserve", "k0", "s", 1)])),
        (1, amend("k0", Amendment::Refund(1))),
        (0, open_holds("k0")),
    ];
    in_one_slot(&[&with_holds(PERMITS)], trace)
}

fn a_cost_is_taken_back_while_there_is_a_grant() -> TraceCase {
    let grant = Amendment::Grant { hits: 5, length: Micros::from_secs(3600) };
    let trace = vec![
        (0, amend("k0", grant)),
        (1, decide([hold("reserve", "k0", "r", 4)])),
        (1, decide([hold("commit", "k0", "r", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&[&with_holds(GCRA)], trace)
}

/// The hold may have been made before the reset.
fn a_hold_of_the_instant_of_a_reset_is_not_given_back() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 3)])),
        (1, amend("k0", Amendment::Reset)),
        (0, decide([hold("reserve", "k0", "r", 5)])),
        (SECOND, decide([hold("commit", "k0", "r", 2)])),
        (0, look("k0")),
    ];
    in_one_slot(&[&with_holds(GCRA)], trace)
}

/// Returns a request that reserves one hit by each of some IDs.
fn reserves(key: &str, ids: std::ops::Range<u32>) -> TraceOperation {
    decide(ids.map(|id| hold("reserve", key, id.to_string(), 1)).collect::<Vec<_>>())
}

/// Each request checks the records for expired ones, the second one twice.
fn records_of_one_request_count_before_they_are_stored() -> TraceCase {
    let limit = with_holds("requests_per_unit: 1000, unit: hour");
    in_one_slot(
        &[&limit],
        vec![(0, reserves("k0", 0..33)), (1, reserves("k0", 33..75)), (1, look("k0"))],
    )
}

/// The records are checked in step 6, which first meets a server that refuses writes of some keys:
/// for one of three, that of its value, but not of its holds.
fn a_record_that_expires_now_is_removed(key: &str) -> TraceCase {
    let limit = with_holds("requests_per_unit: 1000, unit: hour");
    let mut trace = vec![(0, reserves(key, 0..33))];
    trace.resize(6, (0, look(key)));
    trace.push((60 * SECOND, decide([hold("reserve", key, "r", 1)])));
    trace.push((0, look(key)));
    in_one_slot(&[&limit, &limit, &limit], trace)
}

/// In the last step, the tag of its value is another.
fn a_counter_that_cannot_be_read_has_no_instant() -> TraceCase {
    let rate = "algorithm: gcra, requests_per_unit: 7, unit: hour, on_store_error: allow";
    let mut trace = vec![(0, decide([hits("k0", 2)]))];
    trace.resize(12, (0, look("k0")));
    trace.push((1, decide([hits("k0", 1), hits("k1", 1)])));
    in_slots(&[&with_holds(rate), &with_holds(FIXED)], trace)
}

/// In step 66, its value lacks the last four of twelve bytes; without a grant it has eight in step
/// 69. They are of no use, but for the instant, which the reply has for a denial by another slot.
fn a_counter_with_a_grant_that_cannot_be_read_has_an_instant() -> TraceCase {
    let limit = with_holds(&format!("{FIXED}, on_store_error: allow"));
    let both = || decide([hits("k0", 1), hits("k1", 1)]);
    let grant = Amendment::Grant { hits: 5, length: Micros::from_secs(3600) };
    let mut trace = vec![(0, both()), (0, amend("k0", grant))];
    trace.resize(66, (0, look("k0")));
    trace.extend([(1, both()), (0, look("k0")), (0, look("k1")), (1, both())]);
    in_slots(&[&limit, &limit], trace)
}

/// In step 60, its head has 60 bytes of 63. The value is in the short form.
fn a_head_without_the_end_of_its_mark_cannot_be_read() -> TraceCase {
    let mut trace = vec![(0, decide([hold("reserve", "k0", "r", 1)]))];
    trace.resize(60, (0, look("k0")));
    trace.push((1, decide([hold("reserve", "k0", "s", 1)])));
    in_one_slot(&[&with_holds("algorithm: gcra, requests_per_unit: 10, unit: minute")], trace)
}

fn a_look_finds_a_hold_of_one_hit(rate: &str) -> TraceCase {
    let call = TracedHoldCall { id: "r", action: HoldAction::Look, hits: 0, ttl: None };
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (0, TraceOperation::Hold(request(vec![descriptor(&[("k0", "a")])]), call)),
    ];
    in_one_slot(&[&with_holds(rate)], trace)
}

/// A commit of an ID whose hold has ended before has no effect.
fn a_reserve_that_another_slot_denies_leaves_the_record_of_an_end(rate: &str) -> TraceCase {
    let limit = with_holds(rate);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (1, decide([hold("commit", "k0", "r", 2)])),
        (1, with_a_denied_reserve("r", request(vec![hits("k0", 1)]))),
        (1, decide([hold("commit", "k0", "r", 1)])),
        (0, look("k0")),
    ];
    in_slots(&[&limit, &limit], trace)
}

fn a_part_of_a_charge_is_taken_back_from_its_permit() -> TraceCase {
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (1, lend("k0", 3)),
        (1, decide([hold("reserve", "k0", "s", 1)])),
        (1, TraceOperation::TakeBack(0, 1)),
        (0, open_holds("k0")),
        (0, decide([hold("commit", "k0", "s", 1)])),
        (0, look("k0")),
    ];
    in_one_slot(&[&with_holds(PERMITS)], trace)
}

/// The clock steps back, and the reply for the case that another slot denies has an instant for
/// each check.
fn an_operation_without_effect_has_the_instant_of_its_counter() -> TraceCase {
    let settle = |id| hold("settle", "k0", id, 1);
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 2)])),
        (-10, decide([settle("s"), settle("t"), hits("k1", 1)])),
        (0, look("k0")),
    ];
    let limit = with_holds(PERMITS);
    in_slots(&[&limit, &limit], trace)
}

/// A charge without an ID writes no head, so that there is none before the reserve.
fn a_reserve_that_another_slot_denies_leaves_a_counter_without_records() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (1, decide([hold("reserve", "k0", "r", 3), hold("reserve", "k1", "r", 10)])),
        (0, open_holds("k0")),
        (0, look("k0")),
    ];
    let limit = with_holds(FIXED);
    in_slots(&[&limit, &limit], trace)
}

/// The records are checked by the 34th insert.
fn records_are_checked_again_after_as_many_as_have_not_expired() -> TraceCase {
    let limit = with_holds("requests_per_unit: 1000, unit: hour");
    let trace = vec![
        (0, reserves("k0", 0..5)),
        (30 * SECOND, reserves("k0", 5..33)),
        (30 * SECOND, reserves("k0", 33..34)),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// The records are checked by the 34th insert, which allows 34 more before the next check. One of
/// these replaces a record that has expired. Then there are 68 fields, and `first` - 1 more have
/// expired: a quarter, or more than a fifth.
fn a_quarter_of_the_records_has_expired(first: u32) -> TraceCase {
    let limit = with_holds("requests_per_unit: 1000, unit: hour");
    let trace = vec![
        (0, reserves("k0", 0..first)),
        (30 * SECOND, reserves("k0", first..33)),
        (0, reserves("k0", 33..34)),
        (0, reserves("k0", 34..67)),
        (30 * SECOND, reserves("k0", 0..1)),
        (0, reserves("k0", 67..68)),
        (0, look("k0")),
    ];
    in_one_slot(&[&limit], trace)
}

/// The record before it expires two microseconds earlier. The multiple is also one microsecond
/// before a multiple of 30.000001 s.
fn a_record_until_a_multiple_of_30_s_renews_the_keys() -> TraceCase {
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 1)])),
        (2, decide([hold("reserve", "k0", "s", 1)])),
        (0, open_holds("k0")),
    ];
    let begin = 1_800_000_029_999_998;
    let limit = with_holds("requests_per_unit: 9, unit: second");
    TraceCase { begin, ..in_one_slot(&[&limit], trace) }
}

/// There is none. The second charge is restored, since another slot denies its request.
fn a_charge_without_a_record_leaves_the_latest_expiry() -> TraceCase {
    let trace = vec![
        (0, decide([hits("k0", 1)])),
        (1, decide([hits("k0", 1), hits("k1", 10)])),
        (1, lend("k0", 3)),
        (1, decide([hits("k0", 1)])),
        (1, TraceOperation::TakeBack(0, 1)),
        (0, look("k0")),
    ];
    let limit = with_holds(GCRA);
    in_slots(&[&limit, &limit], trace)
}

/// They are denied and written.
fn hits_in_advance_are_charged_past_a_limit_with_holds() -> TraceCase {
    let trace = vec![
        (0, TraceOperation::Lend("k0=a".to_owned(), 20, Charge::Always)),
        (1, TraceOperation::TakeBack(0, 15)),
        (0, look("k0")),
    ];
    in_one_slot(&[&with_holds(FIXED)], trace)
}
