//! Traces of IDs, amounts and numbers of holds at their bounds.

use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;

use super::{SECOND, TraceOperation, decide, hits, hold, in_one_slot, look, open_holds};
use crate::rls::{descriptor, request};
use crate::traces::{TraceCase, TraceStep, TracedHoldCall};

/// All algorithms, with the largest amounts that allow exact take-backs.
const LIMITS: [(&str, u32); 6] = [
    ("requests_per_unit: 4294967295, unit: year", u32::MAX),
    ("algorithm: sliding_window, requests_per_unit: 4294967295, unit: year", u32::MAX),
    ("algorithm: sliding_log, requests_per_unit: 10000, unit: year", 10_000),
    ("algorithm: gcra, requests_per_unit: 3000000, unit: year", 3_000_000),
    ("algorithm: token_bucket, requests_per_unit: 1, unit: hour, burst: 400000", 400_000),
    ("algorithm: concurrency, in_flight: 10000", 10_000),
];
/// The most records of one counter.
const RECORDS: u32 = 100_000;

pub(super) fn cases() -> Vec<TraceCase> {
    let of_each = |case: fn(&str, u32) -> TraceCase| {
        LIMITS.map(|(rate, amount)| case(&format!("{rate}, hold: {{ ttl: 1h }}"), amount))
    };
    let others = vec![
        expired_records_are_looked_for_after_at_least_as_many_inserts_as_at_first(),
        a_counter_is_in_the_short_form_after_one_in_the_wide_form("sliding_log"),
        a_counter_is_in_the_short_form_after_one_in_the_wide_form("sliding_window"),
    ];
    [
        &of_each(an_id_may_have_any_128_bytes)[..],
        &of_each(the_largest_amounts_saturate),
        &of_each(a_hold_may_be_extended_again_and_again),
        &others,
    ]
    .concat()
}

/// An ID of another length makes a plain charge, and ends nothing.
fn an_id_may_have_any_128_bytes(limit: &str, _: u32) -> TraceCase {
    let bytes: Vec<u8> = (0..=255).collect();
    let ids: [&[u8]; 12] = [
        &bytes[..128],
        &bytes[128..],
        b"\0",
        b"\0\0",
        b" ",
        b"\xff",
        b"\r\n$1\r\n",
        b"{a}|b",
        b"\xed\xa0\x80",
        &[0xc3; 128],
        b"",
        &[b'x'; 129],
    ];
    let each = |operation, count| ids.map(|id| (1, decide([hold(operation, "k0", id, count)])));
    let looks = [(0, look("k0")), (0, open_holds("k0"))];
    let trace = [&each("reserve", 9)[..], &looks, &each("settle", 1), &each("commit", 0), &looks];
    in_one_slot(&[limit], trace.concat())
}

/// A cost may be the largest number, with a hold and without.
fn the_largest_amounts_saturate(limit: &str, amount: u32) -> TraceCase {
    let of =
        |operation, id: &str, count: u32| (0, decide([hold(operation, "k0", id, count.into())]));
    let mut trace = vec![of("reserve", "r", amount), of("reserve", "s", 1)];
    trace.extend(["r", "t", "u"].map(|id| of("commit", id, u32::MAX)));
    trace.extend([(0, look("k0")), of("reserve", "v", 1), (0, look("k0"))]);
    in_one_slot(&[limit], trace)
}

/// Of one hit or more.
fn a_hold_may_be_extended_again_and_again(limit: &str, _: u32) -> TraceCase {
    let extended = |id, seconds| {
        let ttl = Some(Micros::from_secs(seconds));
        let call = TracedHoldCall { id, action: HoldAction::Extend, hits: 0, ttl };
        (1, TraceOperation::Hold(request(vec![descriptor(&[("k0", "a")])]), call))
    };
    let mut trace = Vec::new();
    for (id, count, times) in [("r", 9, 6), ("s", 1, 1)] {
        trace.push((1, decide([hold("reserve", "k0", id, count)])));
        trace.extend([3600, 1, 3600, 30].repeat(times).into_iter().map(|ttl| extended(id, ttl)));
        trace.extend([(0, look("k0")), (1, decide([hold("commit", "k0", id, 0)]))]);
    }
    in_one_slot(&[limit], trace)
}

/// They are looked for after as many inserts as the last check allowed: those of inserts 34, 69 and
/// 139, then, since it removes more than a quarter, as many as it removed.
fn expired_records_are_looked_for_after_at_least_as_many_inserts_as_at_first() -> TraceCase {
    let reserve = |id: u32| {
        let step = if id == 138 { 3 * SECOND } else { 1 };
        (step, decide([hold("reserve", "k0", id.to_string(), 1)]))
    };
    let limit = format!("{}, hold: {{ ttl: 3s }}", LIMITS[0].0);
    in_one_slot(&[&limit], (0..172).map(reserve).collect())
}

/// Both are judged by one call. The first one is in the wide form, since the costs of its holds are
/// large.
fn a_counter_is_in_the_short_form_after_one_in_the_wide_form(algorithm: &str) -> TraceCase {
    let limit =
        format!("algorithm: {algorithm}, requests_per_unit: 9, unit: hour, hold: {{ ttl: 1m }}");
    let wide = |id| hold("commit", "k0", id, u32::MAX.into());
    let mut trace: Vec<TraceStep> = ["r", "s"].map(|id| (0, decide([wide(id)]))).into();
    trace.extend([(0, decide([wide("t"), hits("k1", 1)])), (0, look("k1"))]);
    in_one_slot(&[&limit, &limit], trace)
}

/// Returns a trace that takes more time than others: beyond the most records, a reserve is a plain
/// charge.
#[must_use]
pub fn the_most_records() -> TraceCase {
    /// Descriptors of a request.
    const AT_ONCE: u32 = 250;
    let reserve = |id: u32| hold("reserve", "k0", id.to_string(), 2);
    let reserves = |first: u32| decide((first..first + AT_ONCE).map(reserve).collect::<Vec<_>>());
    let firsts = (0..=RECORDS).step_by(AT_ONCE as usize);
    let mut trace: Vec<_> = firsts.map(|first| (0, reserves(first))).collect();
    for id in [7, RECORDS] {
        trace.extend([(0, decide([hold("commit", "k0", id.to_string(), 5)])), (0, look("k0"))]);
    }
    let (rate, _) = LIMITS[0];
    in_one_slot(&[&format!("{rate}, hold: {{ ttl: 1h }}")], trace)
}
