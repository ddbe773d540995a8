//! Traces of calendars, whose windows a script receives for the instants that the store expects.

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;

use super::{SECOND, TraceOperation, amend, decide, hits, hold, in_one_slot, in_slots, lend, look};
use crate::rls::{descriptor, request};
use crate::traces::{TraceCase, TracedHoldCall};

/// More than the two windows of a day that are sent beside the one of an instant.
const FAR: i64 = 3 * DAY;
const DAY: i64 = 86_400 * SECOND;

pub(super) fn cases() -> Vec<TraceCase> {
    let limits = ["", ", record: [who]", ", hold: { ttl: 1m, on_settle: release }"]
        .map(|options| format!("requests_per_unit: 90, unit: day, calendar: true{options}"));
    let behind = limits.iter().map(|limit| a_clock_behind_leaves_counters_at_their_instant(limit));
    let ahead = limits.iter().map(|limit| a_server_counts_in_windows_of_its_clock(limit));
    let several =
        ["", ", hold: { ttl: 1m }"].map(limits_of_several_slots_count_in_windows_of_the_server);
    let reset = a_reset_of_a_counter_that_cannot_be_read_asks_for_the_window_of_the_clock();
    let others = [
        reset,
        clocks_of_servers_are_years_behind(),
        a_clock_many_windows_behind_leaves_counters_in_theirs(),
        amendments_at_once_are_in_the_windows_of_their_counters(),
    ];
    behind.chain(ahead).chain(several).chain(others).collect()
}

/// The counters are in no window that a request sends.
fn a_clock_behind_leaves_counters_at_their_instant(limit: &str) -> TraceCase {
    let reserves = |step| (step, decide([hold("reserve", "k0", "r", 2), hits("k1", 1)]));
    let mut trace = vec![reserves(0), reserves(-FAR)];
    trace.extend(operations().into_iter().map(|operation| (1, operation)));
    in_one_slot(&[limit, limit], trace)
}

/// Each operation is in a window of its own. With the clocks of the servers, the store expects the
/// one before.
fn a_server_counts_in_windows_of_its_clock(limit: &str) -> TraceCase {
    let trace = operations().into_iter().map(|operation| (FAR, operation)).collect();
    in_one_slot(&[limit, limit], trace)
}

/// The requests of an instant are sent together, those of some nodes for several slots.
fn limits_of_several_slots_count_in_windows_of_the_server(options: &str) -> TraceCase {
    let keys = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"];
    let reserve = |key: &&str| request(vec![hold("reserve", key, "r", 2)]);
    let all = || TraceOperation::Together(keys.iter().map(reserve).collect());
    let limit = format!("requests_per_unit: 90, unit: day, calendar: true{options}");
    in_slots(&[limit.as_str(); 9], (0..5).map(|_| (FAR, all())).collect())
}

/// In step 3, its value lacks its last byte. With the clocks of the servers, the store expects the
/// instant before, as the first call of the reset.
fn a_reset_of_a_counter_that_cannot_be_read_asks_for_the_window_of_the_clock() -> TraceCase {
    let mut trace = vec![(0, decide([hits("k0", 1)]))];
    trace.resize(3, (0, look("k0")));
    trace.extend([(FAR, amend("k0", Amendment::Reset)), (0, look("k0"))]);
    in_one_slot(&["requests_per_unit: 90, unit: day, calendar: true"], trace)
}

/// With the clocks of the servers, the process expects a later instant.
fn clocks_of_servers_are_years_behind() -> TraceCase {
    let limits = ["admitted", "always"].map(|charge| {
        let window = "requests_per_unit: 5, unit: year, calendar: true, time_zone: Asia/Tokyo";
        format!("{window}, charge: {charge}")
    });
    let charge = |key| (1, decide([hits(key, 1)]));
    let trace = [["k0"; 7], ["k1"; 7]].concat().into_iter().map(charge).collect();
    TraceCase { begin: 1_600_000_000_000_000, ..in_one_slot(&[&limits[0], &limits[1]], trace) }
}

/// Each counter is judged at the instant of its last write, and reports times relative to that. The
/// latest instant comes first: then memory keeps the counters of the others.
fn a_clock_many_windows_behind_leaves_counters_in_theirs() -> TraceCase {
    let limits = [
        "requests_per_unit: 3, unit: day, calendar: true, time_zone: Europe/Berlin, charge: admitted",
        "requests_per_unit: 4, unit: week, calendar: true, charge: always",
        "requests_per_unit: 9, unit: month, calendar: true, time_zone: America/St_Johns, charge: admitted",
    ];
    let mut trace = vec![(430 * DAY, decide([hits("k1", 1), hits("k2", 1)]))];
    trace.extend([-30, 0, 0].map(|days| (days * DAY, decide([hits("k0", 1)]))));
    let all = || decide(["k0", "k2", "k1"].map(|key| hits(key, 1)));
    trace.extend([-400, 371, 27, 1, 1].map(|days| (days * DAY, all())));
    trace.push((DAY, decide([hits("k0", 1)])));
    in_slots(&limits, trace)
}

/// A counter that is far ahead is amended by another call, and the others are not amended again.
fn amendments_at_once_are_in_the_windows_of_their_counters() -> TraceCase {
    let keys: Vec<_> = (0..12).map(|number| format!("k{number}")).collect();
    let charge = |ahead: bool| {
        let some = keys.iter().skip(usize::from(!ahead)).step_by(2);
        let charges = some.map(|key| (0, decide([hits(key, 5)])));
        std::iter::once((if ahead { 430 } else { -430 } * DAY, look("k0"))).chain(charges)
    };
    let descriptors: Vec<_> = keys.iter().map(|key| format!("{key}=a")).collect();
    let amended = [Amendment::Refund(1), Amendment::Reset, Amendment::Refund(1)]
        .map(|amendment| (0, TraceOperation::AmendTogether(descriptors.clone(), amendment)));
    let trace = charge(true).chain(charge(false)).chain(amended).collect();
    in_slots(&["requests_per_unit: 9, unit: day, calendar: true"; 12], trace)
}

/// Returns operations of each kind on `k0` and `k1`.
fn operations() -> Vec<TraceOperation> {
    let who = || descriptor(&[("who", "ann")]);
    let call = |action, hits| {
        let call = TracedHoldCall { id: "r", action, hits, ttl: None };
        TraceOperation::Hold(request(vec![descriptor(&[("k0", "a")])]), call)
    };
    let grant = Amendment::Grant { hits: 3, length: Micros::new(9) };
    vec![
        decide([hold("reserve", "k0", "r", 2)]),
        decide([hits("k0", 1), who()]),
        decide([hits("k0", 1), hits("k1", 1), who()]),
        decide([hits("k0", 1), hits("k0", 1), who()]),
        decide([hold("reserve", "k0", "r", 1), hold("reserve", "k0", "s", 1)]),
        decide([hold("commit", "k0", "r", 1)]),
        decide([hold("commit", "k0", "r", 1), hits("k0", 1), hits("k1", 1)]),
        call(HoldAction::ReserveOnce, 1),
        call(HoldAction::ReserveOnce, 5),
        call(HoldAction::Look, 0),
        call(HoldAction::Cancel, 0),
        lend("k0", 3),
        TraceOperation::TakeBack(0, 2),
        amend("k0", Amendment::Refund(1)),
        amend("k0", grant),
        amend("k1", Amendment::Reset),
        amend("k0", Amendment::Reset),
        look("k0"),
    ]
}
