//! Random policies and traces with holds and permits.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::RateLimitDescriptor;

use super::cases::{at_once, steps};
use super::rules::{RandomRule, text_of};
use super::{TraceCase, TraceOperation, TraceStep, TracedHoldCall};
use crate::rls::{descriptor, request};

/// Most operations of a trace.
const REQUESTS: usize = 260;

/// Generates rules of one slot, which change meanwhile.
pub fn in_one_slot() -> impl Strategy<Value = TraceCase> {
    let pairs = prop::collection::vec(changing_rules(), 2..6);
    (pairs, traces(steps())).prop_map(|(pairs, trace)| {
        let (before, after): (Vec<RandomRule>, Vec<RandomRule>) = pairs.into_iter().unzip();
        let policies = [&before, &after, &before].map(|rules| text_of(rules, true)).to_vec();
        TraceCase::new(policies, trace)
    })
}

/// Generates rules of any slots.
pub fn across_slots() -> impl Strategy<Value = TraceCase> {
    let rules = prop::collection::vec(changing_rules().prop_map(|(rule, _)| rule), 2..6);
    (rules, traces(steps()))
        .prop_map(|(rules, trace)| TraceCase::new(vec![text_of(&rules, false)], trace))
}

/// Generates rules that record callers, which change meanwhile if they are of one slot, and more
/// grants.
pub fn of_callers(in_one_slot: bool) -> impl Strategy<Value = TraceCase> {
    let recording = |rule: RandomRule| {
        let limit = format!("{}, record: [who]", rule.limit);
        RandomRule { limit, ..rule }
    };
    let pairs = prop::collection::vec(changing_rules(), 2..5);
    // Less than a minute in total, for which all stores keep a counter that does not matter.
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 3 => 1_000i64..200_000];
    let calls = traces(steps).prop_flat_map(|trace| {
        let length = trace.len();
        let others =
            (select(vec!["ann", "bob", "cy"]), 0u8..12, select(vec!["k0=a", "k1=a", "k2=a"]));
        (Just(trace), prop::collection::vec(others, length))
    });
    (pairs, calls).prop_map(move |(pairs, (mut trace, others))| {
        for ((_, operation), (who, kind, key)) in trace.iter_mut().zip(others) {
            let length = Micros::from_secs(5);
            match (&mut *operation, kind) {
                (TraceOperation::Decide(call), 0..=7) => {
                    call.descriptors.push(descriptor(&[("who", who)]));
                }
                (TraceOperation::Decide(_), 8) => {
                    let grant = Amendment::Grant { hits: 7, length };
                    *operation = TraceOperation::Amend(key.to_owned(), grant);
                }
                (TraceOperation::Decide(_), 9 | 10) => {
                    *operation = TraceOperation::Tallies(key.to_owned());
                }
                _ => {}
            }
        }
        let (before, after): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let [before, after] = [before, after]
            .map(|rules| rules.into_iter().map(recording).collect::<Vec<RandomRule>>());
        let policies = if in_one_slot { vec![&before, &after, &before] } else { vec![&before] };
        let policies = policies.into_iter().map(|rules| text_of(rules, in_one_slot)).collect();
        TraceCase::new(policies, trace)
    })
}

/// Generates more holds with instants of their own than a counter has marks, which are then merged,
/// while the rate changes.
pub fn merging_marks() -> impl Strategy<Value = TraceCase> {
    let policy_of = |hits| {
        let limit = format!(
            "algorithm: gcra, burst: 9000, requests_per_unit: {hits}, unit: minute, hold: {{ ttl: 1h }}"
        );
        text_of(&[RandomRule { limit, mode: "" }], true)
    };
    let step = (1i64..200_000, any::<prop::sample::Index>(), 0u32..9, prop::bool::weighted(0.6));
    let steps = prop::collection::vec(step, 500..900);
    steps.prop_map(move |steps| {
        let request_of = |number: usize, of: prop::sample::Index, cost: u32, is_reserve: bool| {
            // An ID that is committed may not have been reserved, or was committed before.
            let id = if is_reserve { number } else { of.index(number + 1) };
            let operation = if is_reserve { "tollgate.reserve" } else { "tollgate.commit" };
            let hits = if is_reserve { 9 } else { cost };
            let hold = Some((operation, &*id.to_string()));
            TraceOperation::Decide(request(vec![of_hold("k0", hold, Some(hits.into()))]))
        };
        let trace = steps.into_iter().enumerate();
        let trace = trace
            .map(|(number, (wait, of, cost, is_reserve))| {
                (wait, request_of(number, of, cost, is_reserve))
            })
            .collect();
        TraceCase::new([1500, 300, 3000].map(policy_of).to_vec(), trace)
    })
}

/// Generates costs beyond small limits of several windows: those that fill some windows only give
/// each window a log of its own.
pub fn splitting_logs() -> impl Strategy<Value = TraceCase> {
    let units = select(vec![
        &["7ms", "250ms"][..],
        &["250ms", "second"],
        &["7ms", "second", "7s"],
        &["second", "minute", "hour"],
    ]);
    let rule = (units, [1u32..5, 2..7, 3..9], select(vec!["charge", "release"]));
    let rule = rule.prop_map(|(units, amounts, on_settle)| {
        let window = |(unit, amount)| format!("{{ requests_per_unit: {amount}, unit: {unit} }}");
        let windows: Vec<_> = units.iter().zip(amounts).map(window).collect();
        let hold = format!("hold: {{ ttl: 5s, on_settle: {on_settle} }}");
        let limit = format!("algorithm: sliding_log, windows: [{}], {hold}", windows.join(", "));
        RandomRule { limit, mode: "" }
    });
    let operations = prop_oneof![
        1 => Just(None),
        3 => Just(Some("tollgate.reserve")),
        5 => Just(Some("tollgate.commit")),
        1 => Just(Some("tollgate.settle")),
    ];
    let ids = select(vec!["r", "s", "t"]);
    let descriptors = (select(vec!["k0", "k1"]), operations, ids, 0u64..6);
    let descriptors = descriptors.prop_map(|(key, operation, id, hits)| {
        of_hold(key, operation.map(|operation| (operation, id)), Some(hits))
    });
    let decided = prop::collection::vec(descriptors, 1..3)
        .prop_map(|descriptors| TraceOperation::Decide(request(descriptors)));
    let refunds = (select(vec!["k0=a", "k1=a"]), 1u32..4).prop_map(|(descriptor, hits)| {
        TraceOperation::Amend(descriptor.to_owned(), Amendment::Refund(hits))
    });
    let operations = prop_oneof![12 => decided, 1 => refunds, 2 => calls()];
    let steps = prop_oneof![
        2 => Just(0),
        4 => 1i64..4_000,
        4 => 50_000i64..400_000,
        1 => 1_000_000i64..9_000_000,
        1 => -50i64..0,
    ];
    let traces = prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS);
    let rules = prop::collection::vec(rule, 1..3);
    (rules, any::<bool>(), traces).prop_map(|(rules, in_one_slot, trace)| {
        TraceCase::new(vec![text_of(&rules, in_one_slot)], trace)
    })
}

/// Generates a rule with holds or permits, and the rule that it changes to: other amounts, or no
/// holds.
fn changing_rules() -> impl Strategy<Value = (RandomRule, RandomRule)> {
    let amounts = || prop_oneof![6 => 1u32..12, 1 => select(vec![60, 997, 100_000]), 1 => Just(0)];
    let units = || select(vec!["7ms", "250ms", "second", "7s", "minute", "hour"]);
    let kinds = (0u8..7, amounts(), amounts(), units(), units(), 1u32..40, 1u32..7);
    let modes = select(vec!["", "", "", "    shadow_mode: true\n", "    quota_mode: true\n"]);
    let holds = (select(vec!["1s", "5s", "1m"]), select(vec!["charge", "release"]));
    (kinds, modes, holds, prop::bool::weighted(0.3)).prop_map(
        |((kind, from, to, unit, other, burst, buckets), mode, (ttl, on_settle), loses)| {
            let limit = |amount: u32, has_hold: bool| {
                let hold = format!(", hold: {{ ttl: {ttl}, on_settle: {on_settle} }}");
                let hold = if has_hold { hold } else { ", charge: admitted".to_owned() };
                let single = format!("requests_per_unit: {amount}, unit: {unit}");
                let second =
                    format!("requests_per_unit: {}, unit: {other}", amount.saturating_mul(2));
                let rate = match kind {
                    0 => single,
                    1 => format!("windows: [{{ {single} }}, {{ {second} }}]"),
                    2 => format!("algorithm: sliding_window, buckets: {buckets}, {single}"),
                    3 if burst % 2 == 0 => {
                        format!("algorithm: sliding_log, windows: [{{ {single} }}, {{ {second} }}]")
                    }
                    3 => format!("algorithm: sliding_log, {single}"),
                    4 => format!("algorithm: gcra, burst: {burst}, {single}"),
                    _ => {
                        return format!(
                            "algorithm: concurrency, in_flight: {}, hold: {{ ttl: {ttl} }}",
                            amount % 997
                        );
                    }
                };
                format!("{rate}{hold}")
            };
            let small = |amount: u32| if kind == 3 { amount.min(5_000) } else { amount };
            (
                RandomRule { limit: limit(small(from), true), mode },
                RandomRule { limit: limit(small(to), !loses), mode },
            )
        },
    )
}

fn traces(steps: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<TraceStep>> {
    let requests = prop::collection::vec(descriptors(), 1..5);
    let decided = requests.prop_map(|all| TraceOperation::Decide(request(all)));
    let grants = (1u32..9).prop_map(|hits| Amendment::Grant { hits, length: Micros::from_secs(2) });
    let what = prop_oneof![
        3 => Just(Amendment::Look),
        1 => Just(Amendment::Reset),
        2 => (0u32..9).prop_map(Amendment::Refund),
        1 => grants,
    ];
    let amended = (select(vec!["k0=a", "k1=a", "k2=a"]), what)
        .prop_map(|(descriptor, what)| TraceOperation::Amend(descriptor.to_owned(), what));
    let listed = select(vec!["k0=a", "k1=a", "k2=a", "k3=a", "k4=a"])
        .prop_map(|descriptor| TraceOperation::OpenHolds(descriptor.to_owned()));
    let at_once = at_once(descriptors());
    let lent = (select(vec!["k0=a", "k1=a", "k2=a"]), 1u32..5, Just(Charge::Always)).prop_map(
        |(descriptor, hits, mode)| TraceOperation::Lend(descriptor.to_owned(), hits, mode),
    );
    let back =
        (any::<usize>(), 1u64..6).prop_map(|(which, hits)| TraceOperation::TakeBack(which, hits));
    let operations = prop_oneof![
        16 => decided,
        1 => amended,
        4 => listed,
        5 => calls(),
        2 => at_once,
        1 => lent,
        1 => back,
    ];
    prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS)
}

/// Generates calls of `HoldService`.
fn calls() -> impl Strategy<Value = TraceOperation> {
    let actions = prop_oneof![
        2 => Just(HoldAction::ReserveOnce),
        4 => Just(HoldAction::Extend),
        2 => (0u32..9).prop_map(HoldAction::CommitEach),
        2 => Just(HoldAction::Cancel),
        1 => Just(HoldAction::Look),
    ];
    let ttls = select(vec![None, Some(1), Some(300_000), Some(1_000_000)]);
    let keys = prop::collection::vec(select(vec!["k0", "k1", "k2", "k3", "k4"]), 1..4);
    (keys, select(vec!["r", "s", "t"]), actions, 1u32..5, ttls).prop_map(
        |(keys, id, action, hits, ttl)| {
            // The service gives no other operation a TTL.
            let ttl =
                ttl.filter(|_| matches!(action, HoldAction::ReserveOnce | HoldAction::Extend));
            let message = request(keys.iter().map(|key| descriptor(&[(key, "a")])).collect());
            TraceOperation::Hold(
                message,
                TracedHoldCall { id, action, hits, ttl: ttl.map(Micros::new) },
            )
        },
    )
}

fn descriptors() -> impl Strategy<Value = RateLimitDescriptor> {
    let keys = select(vec!["k0", "k1", "k2", "k3", "k4"]);
    let operations = prop_oneof![
        2 => Just(None),
        6 => Just(Some("tollgate.reserve")),
        4 => Just(Some("tollgate.commit")),
        2 => Just(Some("tollgate.settle")),
    ];
    let hits = prop_oneof![1 => Just(None), 1 => Just(Some(0)), 6 => (1u64..9).prop_map(Some)];
    (keys, operations, select(vec!["r", "s", "t"]), hits, prop::bool::weighted(0.2)).prop_map(
        |(key, operation, id, hits, is_refund)| RateLimitDescriptor {
            is_negative_hits: is_refund && operation.is_none(),
            ..of_hold(key, operation.map(|operation| (operation, id)), hits)
        },
    )
}

/// Returns the descriptor of a counter, with an operation on the holds of an ID if there is one.
fn of_hold(key: &str, operation: Option<(&str, &str)>, hits: Option<u64>) -> RateLimitDescriptor {
    let entries: Vec<_> = std::iter::once((key, "a")).chain(operation).collect();
    RateLimitDescriptor { hits_addend: hits, ..descriptor(&entries) }
}
