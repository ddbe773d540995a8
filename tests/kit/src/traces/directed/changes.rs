//! Traces of limits that change while counters are in use: amounts, rates and holds.

use std::iter::zip;

use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::RateLimitDescriptor;

use super::{
    SECOND, TraceOperation, amend, changing, decide, hits, hold, in_one_slot, lend, look,
    open_holds,
};
use crate::rls::request;
use crate::traces::cases::STANDS_STILL_AT;
use crate::traces::{TraceCase, TraceStep};

const AMOUNT: u32 = 10_000;
/// Limits that admit N at once.
const LIMITS: [&str; 11] = [
    "requests_per_unit: N, unit: hour",
    "windows: [{ requests_per_unit: N, unit: hour }, { requests_per_unit: N, unit: year }]",
    "requests_per_unit: N, unit: day, calendar: true, time_zone: Asia/Kathmandu",
    "algorithm: sliding_window, requests_per_unit: N, unit: hour",
    "algorithm: sliding_window, requests_per_unit: N, unit: hour, estimate: weighted",
    "algorithm: sliding_log, requests_per_unit: N, unit: hour",
    "algorithm: gcra, requests_per_unit: N, unit: hour",
    "algorithm: gcra, requests_per_unit: N, unit: year",
    "algorithm: gcra, requests_per_unit: N, unit: hour, max_debt: 0",
    "algorithm: token_bucket, requests_per_unit: N, unit: hour, burst: B",
    "algorithm: token_bucket, requests_per_unit: 100, unit: hour, burst: B",
];
/// Limits of 100 hits, without holds.
const RATES: [&str; 5] = [
    "requests_per_unit: 100, unit: year",
    "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }]",
    "algorithm: gcra, requests_per_unit: 100, unit: year",
    "algorithm: sliding_window, requests_per_unit: 100, unit: year",
    "algorithm: sliding_log, requests_per_unit: 100, unit: hour",
];

pub(super) fn cases() -> Vec<TraceCase> {
    let amounts = ["admitted", "blamed", "always"].map(|charge| {
        // A log is never charged by requests that are denied for another limit.
        let limits = LIMITS.iter().filter(|limit| charge != "always" || !limit.contains("log"));
        let cases = limits.map(|limit| replicas_of_other_amounts_free_no_hits(limit, charge));
        cases.collect::<Vec<_>>()
    });
    let rates = vec![
        a_refund_under_another_amount_leaves_a_hold_its_hits([AMOUNT, 100]),
        a_refund_under_another_amount_leaves_a_hold_its_hits([100, AMOUNT]),
        a_backlog_drains_at_the_rate_of_its_charge_until_the_next_write(),
        times_are_exact_if_backlog_and_cost_exceed_a_double(),
    ];
    let holds = [
        RATES.map(two_holds_of_a_request_are_kept_after_a_charge_without_holds),
        RATES.map(holds_outlive_a_charge_by_a_replica_without_them),
        RATES.map(a_reserve_after_a_charge_without_holds_is_taken_back),
    ];
    [amounts.concat(), rates, holds.concat()].concat()
}

/// Replicas judge by old amounts, or by some that were written by mistake. Whatever they lend, take
/// back, refund and deny is as many hits by the amount of all others.
fn replicas_of_other_amounts_free_no_hits(limit: &str, charge: &str) -> TraceCase {
    let of = |amount: u32| {
        let limit = limit.replace(": N", &format!(": {amount}"));
        format!("{}, charge: {charge}", limit.replace(": B", &format!(": {}", amount.max(1))))
    };
    let refund = || RateLimitDescriptor { is_negative_hits: true, ..hits("k0", 3) };
    let mut parts = vec![
        (of(100), vec![(0, lend("k0", 50))]),
        // All that is left.
        (of(AMOUNT), vec![(0, lend("k0", AMOUNT - 50)), (0, decide([hits("k0", 1)]))]),
    ];
    for old in [100, 1, 0, AMOUNT - 1] {
        let by_others = vec![
            (0, TraceOperation::TakeBack(0, 5)),
            (0, decide([refund()])),
            (0, amend("k0", Amendment::Refund(1))),
            (0, lend("k0", 2)),
            (0, decide([hits("k0", 7)])),
        ];
        let [all, more] = [9, 1].map(|count| (0, decide([hits("k0", count)])));
        parts.push((of(old), by_others));
        parts.push((of(AMOUNT), vec![(0, look("k0")), (0, lend("k0", 4)), all, more]));
    }
    // Bans are judged by the clock of the process, if it is another.
    TraceCase { begin: STANDS_STILL_AT, ..changing(parts) }
}

fn a_refund_under_another_amount_leaves_a_hold_its_hits(amounts: [u32; 2]) -> TraceCase {
    let limits = amounts.map(|amount| {
        let rate = format!("requests_per_unit: {amount}, unit: hour, burst: {amount}");
        format!("algorithm: gcra, {rate}, hold: {{ ttl: 1m }}")
    });
    let first = vec![
        (1, decide([hits("k0", 30)])),
        (1, decide([hold("reserve", "k0", "r", 20)])),
        (1, decide([hits("k0", 10)])),
    ];
    let then = vec![
        (1, amend("k0", Amendment::Refund(5))),
        (1, decide([hold("commit", "k0", "r", 0)])),
        (1, look("k0")),
    ];
    changing(zip(limits, [first, then]))
}

/// Of 3,600 hits, 3,241 drain at one a second before there is room for one more.
fn a_backlog_drains_at_the_rate_of_its_charge_until_the_next_write() -> TraceCase {
    let limits = [3_600, 360].map(|amount| {
        format!("algorithm: gcra, requests_per_unit: {amount}, unit: hour, charge: admitted")
    });
    let steps = [0, 1_000_000_000, 2_240_999_999, 1];
    let then: Vec<TraceStep> = steps.map(|step| (step, decide([hits("k0", 1)]))).into();
    changing(zip(limits, [vec![(0, lend("k0", 3_600))], then]))
}

/// Each is below 2^53 us, and the sum is not.
fn times_are_exact_if_backlog_and_cost_exceed_a_double() -> TraceCase {
    let limit = "algorithm: gcra, requests_per_unit: 1, unit: year, burst: 71, max_debt: 214, charge: always";
    let charge = |step, count| (step, decide([hits("k0", count)]));
    let looks = [1, 2, 4, 994].map(|step| (step, look("k0"))).to_vec();
    in_one_slot(&[limit], [vec![charge(0, 285)], looks, vec![charge(1, 71), charge(1, 0)]].concat())
}

/// A charge under a limit without holds forgets those of the counter.
fn two_holds_of_a_request_are_kept_after_a_charge_without_holds(plain: &str) -> TraceCase {
    let limit = format!("{plain}, hold: {{ ttl: 1m }}");
    let of_two = |operation, counts: [u64; 2]| {
        (
            1,
            decide(
                zip(["s", "t"], counts)
                    .map(|(id, count)| hold(operation, "k0", id, count))
                    .collect::<Vec<_>>(),
            ),
        )
    };
    changing([
        (&*limit, vec![(0, decide([hold("reserve", "k0", "r", 5)]))]),
        (plain, vec![(1, decide([hits("k0", 1)]))]),
        (&*limit, vec![of_two("reserve", [5, 7])]),
        (&*limit, vec![of_two("commit", [2, 9])]),
        (&*limit, vec![(1, decide([hold("commit", "k0", "r", 1)]))]),
    ])
}

/// Estimates are put right, and costs past them are charged, after a rollout that removed `hold`
/// from some replicas charged a hit.
fn holds_outlive_a_charge_by_a_replica_without_them(rate: &str) -> TraceCase {
    let with_holds = format!("{rate}, hold: {{ ttl: 1m }}");
    let reserve = |id, count| (1, decide([hold("reserve", "k0", id, count)]));
    let commit = |id, cost| (SECOND, decide([hold("commit", "k0", id, cost)]));
    changing([
        (with_holds.as_str(), vec![reserve("r", 40), reserve("s", 20), reserve("t", 10)]),
        (rate, vec![(1, decide([hits("k0", 1)])), (1, decide([hold("commit", "k0", "r", 1)]))]),
        (with_holds.as_str(), vec![(0, open_holds("k0")), commit("r", 10), commit("s", 25)]),
        (with_holds.as_str(), vec![commit("r", 10), (0, open_holds("k0"))]),
        (rate, vec![(1, amend("k0", Amendment::Reset)), (1, decide([hits("k0", 2)]))]),
        (with_holds.as_str(), vec![(0, open_holds("k0")), commit("t", 5), commit("u", 1)]),
    ])
}

/// The slot of `k1` denies it.
fn a_reserve_after_a_charge_without_holds_is_taken_back(rate: &str) -> TraceCase {
    let with_holds = format!("{rate}, hold: {{ ttl: 1m }}");
    let policy = |limit: &str| super::policy(&[limit, "requests_per_unit: 9, unit: hour"], false);
    let policies = [&with_holds, rate, &with_holds].map(policy);
    let denied = vec![hold("reserve", "k0", "r", 30), hits("k1", 10)];
    // Three operations under each policy.
    let trace = vec![
        (0, decide([hold("reserve", "k0", "r", 20)])),
        (0, decide([hold("reserve", "k0", "s", 10)])),
        (0, look("k0")),
        (1, decide([hits("k0", 1)])),
        (0, look("k0")),
        (0, look("k0")),
        (1, TraceOperation::Overlapping(vec![request(denied), request(vec![hits("k0", 2)])])),
        (1, decide([hold("commit", "k0", "r", 15)])),
        (0, open_holds("k0")),
    ];
    TraceCase::new(policies.to_vec(), trace)
}
