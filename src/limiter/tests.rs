mod buckets;
mod candidates;
mod errors;
mod holds;
mod live;
mod loans;
mod modes;
mod peek;
mod recording;
mod statistics;
mod times;

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::*;
use crate::algorithm::judge::Hits;
use crate::algorithm::time::{Micros, Timestamp};
use crate::descriptor::{Descriptor, Entry, Override};
use crate::policy::{self, CompileOptions, PolicySet, Source};
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

const SECOND: u64 = 1_000_000;
/// The start of a day, of a minute and of a second.
const DAY: u64 = 20_000 * 86_400 * SECOND;

/// A limiter with policies and a manual clock.
struct LimiterFixture {
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    in_force: Arc<InForce>,
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
}

/// The hits or override to request for one descriptor.
#[derive(Clone, Copy)]
struct DescriptorInput<'a> {
    entries: &'a str,
    hits: Hits,
    limit: Option<Override>,
}

fn take(entries: &str) -> DescriptorInput<'_> {
    DescriptorInput { entries, hits: Hits::Charge(1), limit: None }
}

fn hits(entries: &str, hits: Hits) -> DescriptorInput<'_> {
    DescriptorInput { entries, hits, limit: None }
}

fn overridden(entries: &str, limit: u32, seconds: u64) -> DescriptorInput<'_> {
    DescriptorInput {
        limit: Some(Override { limit, period: Micros::from_secs(seconds) }),
        ..take(entries)
    }
}

fn load(text: &str) -> PolicySet {
    load_by(text, CompileOptions::default())
}

fn load_by(text: &str, options: CompileOptions) -> PolicySet {
    let source = Source { name: "policy.yaml".into(), text: text.into() };
    policy::load(&[source], &options).unwrap_or_else(|report| panic!("{report}")).policies
}

fn bench_of(policies: PolicySet, modes: Modes, max_bytes: usize) -> LimiterFixture {
    bench_with(Metrics::new(), policies, modes, max_bytes)
}

fn bench_with(
    metrics: Arc<Metrics>,
    policies: PolicySet,
    modes: Modes,
    max_bytes: usize,
) -> LimiterFixture {
    let clock = Arc::new(ManualClock::default());
    clock.set(Timestamp::from_micros(DAY));
    let store =
        MemoryStore::new(Bounds { max_bytes, domain_max_bytes: max_bytes }, Arc::clone(&clock));
    let in_force = InForce::new(Arc::clone(&metrics));
    in_force.install(policies);
    LimiterFixture {
        limiter: Limiter::new(Arc::clone(&in_force), store, modes),
        in_force,
        clock,
        metrics,
    }
}

fn bench(rules: &str) -> LimiterFixture {
    bench_of(load(&format!("domain: d\ndescriptors:\n{rules}")), Modes::default(), 1 << 20)
}

impl LimiterFixture {
    /// Decides a request and formats the overall code, then each status as `OK 3`, `OVER`, or `-`
    /// without a limit.
    fn decide_in(&self, domain: &str, inputs: &[DescriptorInput<'_>]) -> Result<String, Undecided> {
        self.run(domain, inputs, false)
    }

    /// Decides a request, or peeks by [`Limiter::peek`] if `only_peeks`.
    fn run(
        &self,
        domain: &str,
        inputs: &[DescriptorInput<'_>],
        only_peeks: bool,
    ) -> Result<String, Undecided> {
        self.read(domain, inputs, only_peeks, |decision| {
            let mut text = if decision.is_over_limit() { "OVER:" } else { "OK:" }.to_owned();
            for status in decision.statuses() {
                text.push_str(&match status.remaining() {
                    _ if status.is_over_limit() => " OVER".to_owned(),
                    Some(remaining) => format!(" {remaining}"),
                    None => " -".to_owned(),
                });
            }
            text
        })
    }

    /// Decides as [`run`](Self::run) does, and reads the decision.
    fn read<T>(
        &self,
        domain: &str,
        inputs: &[DescriptorInput<'_>],
        only_peeks: bool,
        read: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, Undecided> {
        let descriptors = inputs.iter().map(|input| {
            let entries =
                input.entries.split(',').filter(|entry| !entry.is_empty()).map(entry).collect();
            Descriptor::new(entries, input.hits, input.hits.amount(), input.limit)
        });
        let request = Request { domain, descriptors: descriptors.collect::<SmallVec<_>>() };
        let snapshot = self.limiter.snapshot();
        let decision = async {
            if only_peeks {
                self.limiter.peek(&snapshot, &request, Instant::now()).await
            } else {
                self.limiter.decide(&snapshot, &request, Instant::now()).await
            }
        };
        let decision = decision.now_or_never().expect("the memory store answers at once");
        Ok(read(&decision?))
    }

    fn decide(&self, inputs: &[DescriptorInput<'_>]) -> String {
        self.decide_in("d", inputs).unwrap()
    }

    fn times(&self, count: usize, input: DescriptorInput<'_>) -> String {
        (0..count).map(|_| self.decide(&[input])).last().unwrap()
    }

    fn at(&self, us: u64) {
        self.clock.set(Timestamp::from_micros(DAY) + Micros::new(us));
    }
}

fn entry(text: &str) -> Entry<'_> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Entry { key: key.as_bytes(), value: value.as_bytes() }
}

const SHADOW: Modes = Modes { shadow: true, quota: false };
const QUOTA: Modes = Modes { shadow: false, quota: true };
const PLAIN: &str = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}\n  - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}\n";

#[test]
fn without_a_policy_there_is_no_decision() {
    let mut bench = bench(PLAIN);
    bench.limiter.policies = InForce::new(Metrics::new());
    assert_eq!(bench.decide_in("d", &[take("a")]), Err(Undecided::NoPolicy));
}

#[test]
fn a_ban_that_a_request_brings_along_leaves_the_counter_of_its_rule_alone() {
    let rule = "  - {key: k, rate_limit: {unit: minute, requests_per_unit: 3, charge: admitted, override: inherit}}\n";
    let bench = bench(rule);
    assert_eq!(bench.times(3, take("k=1")), "OK: 0");
    assert_eq!(bench.decide(&[overridden("k=1", 0, 60), take("k=1")]), "OVER: OVER OVER");
    assert_eq!(bench.decide(&[take("k=1")]), "OVER: OVER");
}

#[test]
fn unmatched_descriptors_are_admitted_and_unknown_domains_counted() {
    let bench = bench(PLAIN);
    assert_eq!(bench.decide(&[take("z=1"), take("a=1,b=2"), take("")]), "OK: - - -");
    assert_eq!(
        bench.decide_in("other", &[take("a=1"), overridden("a=1", 0, 1)]).unwrap(),
        "OK: - -"
    );
    let metrics = bench.metrics.render();
    assert!(metrics.contains("unknown_domain_requests_total 1\n"), "{metrics}");
}

#[test]
fn a_fixed_window_is_charged_always_by_default() {
    let bench = bench(PLAIN);
    assert_eq!(bench.decide(&[take("a=1"), take("b=1")]), "OK: 1 4");
    assert_eq!(bench.decide(&[hits("a=1", Hits::Charge(5)), take("b=1")]), "OVER: OVER 3");
    assert_eq!(bench.decide(&[take("b=1")]), "OK: 2");
    bench.at(60 * SECOND);
    assert_eq!(bench.decide(&[take("a=1")]), "OK: 1");
}

#[test]
fn a_replaced_limit_does_not_count_and_still_replaces() {
    let bench = bench(
        "  - {key: a, rate_limit: {name: one, unit: minute, requests_per_unit: 0}}
  - {key: b, rate_limit: {name: two, replaces: [{name: one}], unit: minute, requests_per_unit: 0}}
  - {key: c, rate_limit: {unlimited: true, replaces: [{name: two}]}}\n",
    );
    assert_eq!(bench.decide(&[take("a"), take("c")]), "OVER: OVER -");
    assert_eq!(bench.decide(&[take("a"), take("b"), take("c")]), "OK: - - -");
}

#[test]
fn a_ban_denies_peeks_too_and_needs_no_counter() {
    let bench = bench("  - {key: a, rate_limit: {unit: minute, requests_per_unit: 0}}\n");
    assert_eq!(bench.decide(&[hits("a", Hits::Peek(0))]), "OVER: OVER");
    assert_eq!(bench.decide(&[take("a")]), "OVER: OVER");
    assert_eq!(bench.decide(&[hits("a", Hits::Refund(1))]), "OK: 0");
}

#[test]
fn an_override_is_a_fixed_window_of_its_own() {
    let bench = bench(PLAIN);
    assert_eq!(bench.decide(&[overridden("a=1", 1, 60)]), "OK: 0");
    assert_eq!(bench.decide(&[overridden("a=1", 1, 60)]), "OVER: OVER");
    assert_eq!(bench.decide(&[overridden("a=1", 9, 60)]), "OK: 6", "the amount is not in the key");
    assert_eq!(bench.decide(&[overridden("a=1", 1, 3600)]), "OK: 0", "the period is");
    assert_eq!(bench.decide(&[overridden("unknown=1", 1, 60)]), "OK: 0");
    assert_eq!(bench.decide(&[take("a=1")]), "OK: 1", "the rule's own counter is another");
}

#[test]
fn an_inheriting_rule_keeps_its_counter_under_another_amount() {
    let bench = bench(
        "  - {key: a, rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 2, override: inherit, name: n}}\n",
    );
    assert_eq!(bench.times(2, take("a")), "OK: 0");
    assert_eq!(bench.decide(&[take("a")]), "OVER: OVER");
    assert_eq!(bench.decide(&[overridden("a", 10, 60)]), "OK: 7", "two hits are used");
    assert_eq!(
        bench.decide(&[overridden("a", 2, 3600)]),
        "OK: 1",
        "another period is another counter"
    );
}

#[test]
fn a_post_paid_budget_is_peeked_at_and_charged_afterwards() {
    let bench = bench(
        "  - {key: t, rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 60, charge: afterwards}}\n",
    );
    let peek = hits("t", Hits::Peek(0));
    assert_eq!(bench.decide(&[peek]), "OK: 60");
    assert_eq!(bench.decide(&[hits("t", Hits::Charge(90))]), "OVER: OVER", "and written");
    assert_eq!(bench.decide(&[peek]), "OVER: OVER");
    bench.at(31 * SECOND - 1);
    assert_eq!(bench.decide(&[peek]), "OVER: OVER");
    bench.at(31 * SECOND);
    assert_eq!(bench.decide(&[peek]), "OK: 1", "90 used, 60 allowed, one more hit fits after 31 s");
}

#[test]
fn a_full_store_is_answered_by_the_limits_own_word() {
    let rules = "  - {key: e, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: allow}}
  - {key: n, rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: deny}}
  - {key: z, rate_limit: {unit: hour, requests_per_unit: 0}}\n";
    let bench = bench_of(load(&format!("domain: d\ndescriptors:\n{rules}")), Modes::default(), 64);
    assert_eq!(bench.decide(&[take("a")]), "OK: -");
    assert_eq!(bench.decide(&[take("n")]), "OVER: OVER");
    assert_eq!(bench.decide_in("d", &[take("e")]), Err(Undecided::Store(StoreError::NoRoom)));
    assert_eq!(bench.decide(&[take("e"), take("z")]), "OVER: - OVER", "a certain denial wins");
    assert_eq!(bench.decide(&[hits("e", Hits::Peek(0))]), "OK: 9", "a peek needs no room");
}
