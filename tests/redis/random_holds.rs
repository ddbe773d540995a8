//! Random policies and traces with holds and permits, and two that are not random: memory, one
//! server and a cluster give the same answers, and list the same open holds.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldEffect;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::random::{Case, Operation, START, Step, agree, steps};
use super::random_rules::{Rule, text_of};
use super::sides::Sides;
use super::{cluster, policy};
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};

const CASES: u32 = 10;
const REQUESTS: usize = 260;

#[test]
fn memory_redis_and_a_cluster_hold_alike_in_one_slot() {
    let pairs = prop::collection::vec(changing_rules(), 2..6);
    agree(5, CASES, (pairs, traces(steps())), |(pairs, trace)| {
        let (before, after): (Vec<Rule>, Vec<Rule>) = pairs.into_iter().unzip();
        let policies = [&before, &after, &before].map(|rules| text_of(rules, true)).to_vec();
        Case { policies, modes: Modes::default(), begin: START, trace }
    });
}

#[test]
fn memory_redis_and_a_cluster_hold_alike_across_slots() {
    let rules = prop::collection::vec(changing_rules().prop_map(|(rule, _)| rule), 2..6);
    agree(6, CASES, (rules, traces(steps())), |(rules, trace)| Case {
        policies: vec![text_of(&rules, false)],
        modes: Modes::default(),
        begin: START,
        trace,
    });
}

/// Opens more holds with instants of their own than a counter has marks, which are then merged,
/// while the rate changes.
#[test]
fn memory_redis_and_a_cluster_merge_marks_alike() {
    let policy_of = |hits| {
        let limit = format!(
            "algorithm: gcra, burst: 9000, requests_per_unit: {hits}, unit: minute, hold: {{ ttl: 1h }}"
        );
        text_of(&[Rule { limit, mode: "" }], true)
    };
    let step = (1i64..200_000, any::<prop::sample::Index>(), 0u32..9, prop::bool::weighted(0.6));
    let steps = prop::collection::vec(step, 500..900);
    agree(9, 3, steps, |steps| {
        let request_of = |number: usize, of: prop::sample::Index, cost: u32, is_reserve: bool| {
            // An ID that is committed may not have been reserved, or was committed before.
            let id = if is_reserve { number } else { of.index(number + 1) };
            let operation = if is_reserve { "tollgate.reserve" } else { "tollgate.commit" };
            let hits = if is_reserve { 9 } else { cost };
            Operation::Decide(request(vec![RateLimitDescriptor {
                hits_addend: Some(hits.into()),
                ..descriptor(&[("k0", "a"), (operation, &id.to_string())])
            }]))
        };
        let trace = steps.into_iter().enumerate();
        let trace = trace
            .map(|(number, (wait, of, cost, is_reserve))| {
                (wait, request_of(number, of, cost, is_reserve))
            })
            .collect();
        Case {
            policies: [1500, 300, 3000].map(policy_of).to_vec(),
            modes: Modes::default(),
            begin: START,
            trace,
        }
    });
}

/// Generates a rule with holds or permits, and the rule that it changes to: other amounts, or no
/// holds.
fn changing_rules() -> impl Strategy<Value = (Rule, Rule)> {
    let amounts = || prop_oneof![6 => 1u32..12, 1 => select(vec![60, 997, 100_000]), 1 => Just(0)];
    let units = || select(vec!["7ms", "250ms", "second", "7s", "minute", "hour"]);
    let kinds = (0u8..6, amounts(), amounts(), units(), units(), 1u32..40, 1u32..7);
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
                Rule { limit: limit(small(from), true), mode },
                Rule { limit: limit(small(to), !loses), mode },
            )
        },
    )
}

fn traces(steps: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<Step>> {
    let requests = prop::collection::vec(descriptors(), 1..5);
    let decided = requests.prop_map(|all| Operation::Decide(request(all)));
    let grants = (1u32..9).prop_map(|hits| Amendment::Grant { hits, length: Micros::from_secs(2) });
    let what = prop_oneof![
        3 => Just(Amendment::Look),
        1 => Just(Amendment::Reset),
        2 => (0u32..9).prop_map(Amendment::Refund),
        1 => grants,
    ];
    let amended = (select(vec!["k0=a", "k1=a", "k2=a"]), what)
        .prop_map(|(descriptor, what)| Operation::Amend(descriptor.to_owned(), what));
    let listed = select(vec!["k0=a", "k1=a", "k2=a", "k3=a", "k4=a"])
        .prop_map(|descriptor| Operation::OpenHolds(descriptor.to_owned()));
    let operations = prop_oneof![16 => decided, 1 => amended, 4 => listed];
    prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS)
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
        |(key, operation, id, hits, is_refund)| {
            let entry = operation.map(|operation| (operation, id));
            let entries: Vec<_> = std::iter::once((key, "a")).chain(entry).collect();
            RateLimitDescriptor {
                hits_addend: hits,
                is_negative_hits: is_refund && operation.is_none(),
                ..descriptor(&entries)
            }
        },
    )
}

#[tokio::test]
async fn two_holds_of_a_request_are_kept_after_a_charge_under_a_limit_without_holds() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], "stale:", Modes::default()).await;
    let one = |operation, id, hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), (operation, id)])
    };
    // Permits are in the value: a limit without holds cannot have them.
    for plain in [
        "requests_per_unit: 100, unit: year",
        "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }]",
        "algorithm: gcra, requests_per_unit: 100, unit: year",
        "algorithm: sliding_window, requests_per_unit: 100, unit: year",
        "algorithm: sliding_log, requests_per_unit: 100, unit: hour",
    ] {
        let limit = &*format!("{plain}, hold: {{ ttl: 1m }}");
        sides.clear().await;
        let steps = [
            (limit, vec![one("tollgate.reserve", "a", 5)]),
            (plain, vec![descriptor(&[("user", "x")])]),
            (limit, vec![one("tollgate.reserve", "b", 5), one("tollgate.reserve", "c", 7)]),
            (limit, vec![one("tollgate.commit", "b", 2), one("tollgate.commit", "c", 9)]),
            (limit, vec![one("tollgate.commit", "a", 1)]),
        ];
        let mut effects = Vec::new();
        for (at, (limit, descriptors)) in (START..).step_by(1_000).zip(steps) {
            sides.install(&policy(&[("user", limit)]));
            let decided = sides.decide(at, &request(descriptors)).await;
            effects.extend(decided.unwrap_or_else(|error| panic!("{limit}: {error}")).unwrap().2);
        }
        let reserved = HoldEffect::Reserved { repeated: false };
        let committed = |reserved, cost| HoldEffect::Committed { reserved, cost };
        let unknown = HoldEffect::Unknown { cost: 1 };
        let expected = [
            reserved,
            HoldEffect::Nothing,
            reserved,
            reserved,
            committed(5, 2),
            committed(7, 9),
            unknown,
        ];
        assert_eq!(effects, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_commit_that_only_ends_a_hold_drops_an_expired_reset() {
    let servers = (Redis::start().await, cluster().await);
    let sides = Sides::new(&[servers.0.url(), servers.1.url()], "reset:", Modes::default()).await;
    let one = |operation, id, hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), (operation, id)])
    };
    let second = 1_000_000;
    for limit in ["algorithm: sliding_log", "algorithm: sliding_window", "algorithm: gcra", ""] {
        sides.clear().await;
        let limit = format!("requests_per_unit: 20, unit: minute, hold: {{ ttl: 5m }}, {limit}");
        sides.install(&policy(&[("user", limit.trim_end_matches(", "))]));
        let charge = RateLimitDescriptor { hits_addend: Some(3), ..descriptor(&[("user", "x")]) };
        sides.decide(START, &request(vec![charge])).await.unwrap().unwrap();
        let at = START + 50 * second;
        sides.amend(at, "user=x", Amendment::Reset).await.unwrap().unwrap();
        // By its instant, the reset voids these charges as well, until it has expired.
        for id in ["a", "b"] {
            let reserve = request(vec![one("tollgate.reserve", id, 5)]);
            sides.decide(at, &reserve).await.unwrap().unwrap();
        }
        for (id, cost) in [("a", 5), ("b", 0)] {
            let commit = request(vec![one("tollgate.commit", id, cost)]);
            sides.decide(START + 70 * second, &commit).await.unwrap().unwrap();
        }
        sides.amend(START + 70 * second, "user=x", Amendment::Look).await.unwrap().unwrap();
    }
}

/// The same charge at the same instant makes the value that the counter had with the hold.
#[tokio::test]
async fn a_hold_that_another_slot_denied_is_gone_if_the_counter_has_the_same_value_again() {
    let cluster = cluster().await;
    let sides = Sides::new(&[cluster.url()], "denied:", Modes::default()).await;
    let one = |key: (&str, &str), hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), key])
    };
    for limit in [
        "requests_per_unit: 100, unit: year",
        "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }]",
        "algorithm: gcra, requests_per_unit: 100, unit: year",
        "algorithm: sliding_window, requests_per_unit: 100, unit: year",
        "algorithm: sliding_log, requests_per_unit: 100, unit: hour",
    ] {
        let holding = format!("{limit}, hold: {{ ttl: 1m }}");
        sides.install(&policy(&[("user", &holding), ("full", "requests_per_unit: 1, unit: year")]));
        // Used up by the first request.
        let full = || descriptor(&[("full", "")]);
        let charge = RateLimitDescriptor { hits_addend: Some(5), ..descriptor(&[("user", "x")]) };
        let steps = [
            vec![full()],
            vec![one(("tollgate.reserve", "r"), 5), full()],
            vec![charge],
            vec![one(("tollgate.commit", "r"), 2)],
        ];
        let mut effects = Vec::new();
        for descriptors in steps {
            let decided = sides.decide(START, &request(descriptors)).await;
            effects = decided.unwrap_or_else(|error| panic!("{limit}: {error}")).unwrap().2;
        }
        assert_eq!(effects, [HoldEffect::Unknown { cost: 2 }], "{limit}");
    }
}
