//! The policies in force: their numbers, counts and memory, and actions of operators by them.

use super::*;
use crate::algorithm::amend::Amendment;
use crate::descriptor::KeyBuffer;
use crate::limiter::status::{AppliedLimit, Status};
use crate::limiter::target::DescriptorTarget;

const RULES: &str = "
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - key: leased
    rate_limit: {unit: minute, requests_per_unit: 1000, lease: {size: 1%, ttl: 1s}}
";

#[test]
fn the_counts_of_each_rule_are_in_the_order_of_the_policies() {
    let bench = bench(RULES);
    bench.times(12, take("a"));
    bench.decide(&[take("s")]);
    let snapshot = bench.limiter.snapshot();
    let live = snapshot.as_deref().unwrap();
    let counts: Vec<_> = live.samples().map(|sample| (sample.rule, sample.counts)).collect();
    let expected = [
        // Two of the ten that fit are beyond 80 % of the limit.
        ("a", [10, 2, 2, 0, 0, 0]),
        ("s", [0, 0, 0, 1, 0, 0]),
        ("leased", [0; 6]),
    ];
    assert_eq!(counts, expected);
    assert_eq!(live.policies().rules().count(), 3);
}

#[test]
fn each_installation_has_a_number_of_its_own() {
    let bench = bench(RULES);
    let numbers = [(); 3].map(|()| {
        bench.in_force.install(load("domain: d\n"));
        bench.limiter.snapshot().as_deref().unwrap().generation()
    });
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn the_memory_is_that_of_the_policies_and_of_those_that_are_tried_out() {
    let [text, other] = [RULES, PLAIN].map(|rules| format!("domain: d\ndescriptors:\n{rules}"));
    let bench = bench(RULES);
    let alone = load(&text).memory();
    assert_eq!(bench.in_force.memory(), alone);
    let options = CompileOptions { are_candidates: true, ..CompileOptions::default() };
    let beside = load_by(&other, options).memory();
    bench.in_force.try_out(load_by(&other, options));
    assert!(beside > 2);
    assert_eq!(bench.in_force.memory(), alone + beside);
}

#[test]
fn a_counter_is_amended_unless_its_rule_is_a_ban() {
    let bench = bench(RULES);
    let snapshot = bench.limiter.snapshot();
    let amend = |entries| {
        let descriptor =
            Descriptor::new([entry(entries)].into_iter().collect(), Hits::Peek(0), None, None);
        let target =
            bench.limiter.loan_target(snapshot.as_deref().unwrap(), "d", &descriptor).unwrap();
        let key = target.key().within("d");
        let amended = bench.limiter.amend(target.rule(), key, Amendment::Look, Instant::now());
        let amended = amended.now_or_never().expect("the memory store answers at once");
        amended.map(|amended| amended.after.windows[0].used)
    };
    bench.times(2, take("a"));
    assert_eq!(amend("a"), Ok(2));
    assert_eq!(amend("s"), Err(StoreError::Refused));
}

#[test]
fn a_limit_is_leased_by_its_rule_unless_the_request_brings_one() {
    let policies = load(&format!("domain: d\ndescriptors:{RULES}"));
    let policy = policies.find("d").unwrap();
    let lease = |input: DescriptorInput<'_>| {
        let entries = [entry(input.entries)].into_iter().collect();
        let descriptor = Descriptor::new(entries, input.hits, None, input.limit);
        let mut keys = KeyBuffer::default();
        let target = DescriptorTarget::find(policy, &descriptor, &mut keys, None);
        target.lease().map(|lease| (lease.hits, lease.ttl))
    };
    assert_eq!(lease(take("leased")), Some((10, Micros::from_secs(1))));
    assert_eq!([take("a"), overridden("leased", 9, 60)].map(lease), [None; 2]);
}

#[test]
fn an_outcome_that_a_layer_remembered_is_cached() {
    use crate::algorithm::hold::HoldEffect;
    use crate::algorithm::judge::{JudgedBy, Outcome};
    let bench = bench(RULES);
    bench
        .read("d", &[take("a")], false, |decision| {
            let report = decision.statuses()[0].outcome().unwrap().report;
            let is_cached = |by| {
                let mut status = Status::of(DescriptorTarget::Nothing, Modes::default());
                let outcome = Outcome { allowed: false, report, by, hold: HoldEffect::Nothing };
                status.set_outcome(Ok(outcome));
                status.is_cached()
            };
            assert!(is_cached(JudgedBy::Memory));
            assert!(!is_cached(JudgedBy::Store) && !is_cached(JudgedBy::Block));
        })
        .unwrap();
}

#[test]
fn a_limit_is_shown_with_its_amount_and_its_period() {
    let bench = bench(
        "  - {key: p, rate_limit: {algorithm: concurrency, in_flight: 2, hold: {ttl: 1m}}}\n  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    let shown = |entries| {
        let read = |decision: &Decision<'_>| {
            decision.statuses()[0].limit().as_ref().map(AppliedLimit::to_string)
        };
        bench.read("d", &[take(entries)], false, read).unwrap().unwrap_or_default()
    };
    assert_eq!(shown("a"), "10 per 1m");
    assert_eq!(shown("p,tollgate.reserve=r"), "2 in flight");
}
