//! Random policies and traces: memory, one server and a cluster give the same answers.
//!
//! Each run has the same cases, unless `TOLLGATE_RANDOM_SEED` is set. `TOLLGATE_RANDOM_CASES` sets
//! their number.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::grpc::proto::rate_limit_descriptor::RateLimitOverride;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate::limiter::Modes;

use super::random_rules::{RECORD, Rule, changing_rules, policies, rules, text_of};
use super::sides::{Sides, a_try_is_what_follows};
use super::{cluster, from_environment};
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};

const CASES: u32 = 12;
const REQUESTS: usize = 300;
pub(super) const START: u64 = 1_780_000_000_000_000;
/// Start times shortly before the last second that four bytes hold, shortly before the last instant
/// of the short form of a gcra value, and after both.
const LATER: [u64; 3] = [4_294_967_266_000_000, 4_503_599_626_000_000, 7_258_118_400_000_000];
/// Maximum distance that clocks step back, in microseconds: memory keeps a counter for a minute
/// after it stopped mattering.
const FARTHEST_BACK: u64 = 59_000_000;

/// A case, whose policies share its trace evenly.
pub(super) struct Case {
    pub(super) policies: Vec<String>,
    pub(super) modes: Modes,
    pub(super) begin: u64,
    pub(super) trace: Vec<Step>,
}

/// Microseconds forwards or back, and the operation that follows.
pub(super) type Step = (i64, Operation);

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Decide(RateLimitRequest),
    /// A request, first without taking its hits, then with.
    Try(RateLimitRequest),
    /// An amendment of a descriptor's counter.
    Amend(String, Amendment),
    /// Hits charged to that counter in advance.
    Lend(String, u32, Charge),
    /// Take-back of hits of one such charge.
    TakeBack(usize, u64),
    /// The tallies of a descriptor's counter.
    Tallies(String),
    /// The open holds of a descriptor's counter.
    OpenHolds(String),
}

#[test]
fn memory_redis_and_a_cluster_decide_alike() {
    agree(
        0,
        CASES,
        (policies(), any::<bool>(), modes(), traces()),
        |(rules, in_one_slot, modes, trace)| Case {
            policies: vec![text_of(&rules, in_one_slot)],
            modes,
            begin: START,
            trace,
        },
    );
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_in_later_centuries() {
    agree(4, CASES, (policies(), select(LATER.to_vec()), traces()), |(rules, begin, trace)| Case {
        policies: vec![text_of(&rules, false)],
        modes: Modes::default(),
        begin,
        trace,
    });
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_when_amounts_change() {
    let pairs = prop::collection::vec(changing_rules(), 3..8);
    agree(1, CASES / 2, (pairs, traces()), |(pairs, trace)| {
        let (before, after): (Vec<Rule>, Vec<Rule>) = pairs.into_iter().unzip();
        let policies = [&before, &after, &before].map(|rules| text_of(rules, false)).to_vec();
        Case { policies, modes: Modes::default(), begin: START, trace }
    });
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_when_hits_of_grants_and_resets_return() {
    let keys = || select(vec!["k0=a", "k1=a"]);
    // Loans, and hits that a proxy has admitted, whether they fit or not.
    let modes = select(vec![Charge::Admitted, Charge::Always]);
    let lends = (keys(), 1u32..5, modes)
        .prop_map(|(descriptor, hits, mode)| Operation::Lend(descriptor.to_owned(), hits, mode));
    let grants = (1u32..9, select(vec![100, 5_000, 100_000_000]))
        .prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let amendments =
        prop_oneof![4 => grants, 1 => Just(Amendment::Reset), 2 => Just(Amendment::Look)];
    let amended = (keys(), amendments)
        .prop_map(|(descriptor, what)| Operation::Amend(descriptor.to_owned(), what));
    let back = (any::<usize>(), 1u64..6).prop_map(|(which, hits)| Operation::TakeBack(which, hits));
    let operations = prop_oneof![4 => lends, 3 => back, 3 => amended];
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 1 => 0i64..5_000];
    let traces = prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(rules(), 2);
    agree(2, CASES, (policies, traces), |(rules, trace)| Case {
        policies: vec![text_of(&rules, false)],
        modes: Modes::default(),
        begin: START,
        trace,
    });
}

#[test]
fn memory_redis_and_a_cluster_tally_alike() {
    let recording = rules().prop_map(|rule| {
        let rule = rule.without_record();
        Rule { limit: rule.limit + RECORD, ..rule }
    });
    let requests =
        prop::collection::vec(descriptors(), 1..5).prop_map(|all| Operation::Decide(request(all)));
    let keys = select(vec!["k0=a", "k0=b", "k1=a", "k2=a", "k3=a"]);
    let tallies = keys.clone().prop_map(|descriptor| Operation::Tallies(descriptor.to_owned()));
    let resets =
        keys.prop_map(|descriptor| Operation::Amend(descriptor.to_owned(), Amendment::Reset));
    let operations = prop_oneof![12 => requests, 4 => tallies, 1 => resets];
    // Less than a minute in total, for which all stores keep a counter that does not matter.
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 3 => 1_000i64..100_000];
    let traces = prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(recording, 3..8);
    agree(
        3,
        CASES,
        (policies, any::<bool>(), modes(), traces),
        |(rules, in_one_slot, modes, trace)| Case {
            policies: vec![text_of(&rules, in_one_slot)],
            modes,
            begin: START,
            trace,
        },
    );
}

/// Runs `cases` cases of a strategy.
pub(super) fn agree<S: Strategy>(
    test: u8,
    cases: u32,
    strategy: S,
    case: impl Fn(S::Value) -> Case,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, cluster) = runtime.block_on(async { (Redis::start().await, cluster().await) });
    let urls = [redis.url(), cluster.url()];
    let mut seed = [test; 32];
    seed[0] =
        u8::try_from(from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default() % 256).unwrap();
    let config = Config {
        cases: from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(cases),
        failure_persistence: None,
        max_shrink_iters: from_environment("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(2_000),
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
        runtime.block_on(run(&urls, &case(value))).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn run(urls: &[String], case: &Case) -> Result<(), String> {
    let Case { policies, modes, begin, trace } = case;
    let sides = Sides::new(urls, "random:", *modes).await;
    sides.clear().await;
    let mut now = *begin;
    let mut latest = *begin;
    let mut lent = Vec::new();
    for (number, (step, operation)) in trace.iter().enumerate() {
        if number % (trace.len() / policies.len()).max(1) == 0 {
            sides.install(
                &policies[(number * policies.len() / trace.len()).min(policies.len() - 1)],
            );
        }
        now = now.saturating_add_signed(*step).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let result = match operation {
            Operation::Decide(message) => {
                sides.decide(now, message).await.map(|answer| drop(answer.ok()))
            }
            Operation::Try(message) => a_try_is_what_follows(&sides, now, message).await,
            Operation::Amend(descriptor, amendment) => {
                sides.amend(now, descriptor, *amendment).await.map(drop)
            }
            Operation::Lend(descriptor, hits, mode) => {
                let receipt = sides.lend(now, descriptor, *hits, *mode).await;
                let receipt = receipt.map_err(|error| format!("request {number} {error}"))?;
                lent.extend(receipt.map(|receipt| (descriptor, receipt)));
                sides.amend(now, descriptor, Amendment::Look).await.map(drop)
            }
            Operation::Tallies(descriptor) => sides.tallies(descriptor).await.map(drop),
            Operation::OpenHolds(descriptor) => sides.open_holds(now, descriptor).await.map(drop),
            Operation::TakeBack(..) if lent.is_empty() => Ok(()),
            Operation::TakeBack(which, hits) => {
                let which = which % lent.len();
                let (descriptor, receipt) = lent[which];
                let part = Receipt { hits: receipt.hits.min(*hits), ..receipt };
                lent[which].1.hits -= part.hits;
                lent.retain(|(_, receipt)| receipt.hits > 0);
                sides.take_back(now, descriptor, part).await;
                sides.amend(now, descriptor, Amendment::Look).await.map(drop)
            }
        };
        result.map_err(|error| format!("request {number} {error}"))?;
    }
    Ok(())
}

fn modes() -> impl Strategy<Value = Modes> {
    let bits = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    bits.prop_map(|(shadow, quota)| Modes { shadow, quota })
}

fn traces() -> impl Strategy<Value = Vec<Step>> {
    let requests = || prop::collection::vec(descriptors(), 1..5);
    let decided = requests().prop_map(|all| Operation::Decide(request(all)));
    let tried = requests().prop_map(|all| {
        // A refund cannot be tried.
        let all = all.into_iter().map(|one| RateLimitDescriptor { is_negative_hits: false, ..one });
        Operation::Try(request(all.collect()))
    });
    let operations = prop_oneof![8 => decided, 2 => tried, 1 => amendments()];
    prop::collection::vec((steps(), operations), REQUESTS / 2..REQUESTS)
}

fn amendments() -> impl Strategy<Value = Operation> {
    let lengths = select(vec![0, 1, 30, 1_000_000, 100_000_000, 86_400_000_000]);
    let grants = (0u32..9, lengths)
        .prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let what = prop_oneof![
        2 => Just(Amendment::Look),
        2 => Just(Amendment::Reset),
        2 => (0u32..9).prop_map(Amendment::Refund),
        3 => grants,
    ];
    let keys = select(vec!["k0=a", "k1=a", "k2=a", "k3=a", "k4=a", "k0=b"]);
    (keys, what).prop_map(|(descriptor, what)| Operation::Amend(descriptor.to_owned(), what))
}

pub(super) fn steps() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => Just(0),
        6 => 1i64..50,
        4 => -50i64..0,
        4 => 1_000i64..2_000_000,
        2 => -2_000_000i64..0,
        2 => 1_000_000i64..100_000_000,
        1 => select(vec![60_000_000, 3_600_000_000, 86_400_000_000, 2_592_000_000_000]),
        1 => -59_000_000i64..0,
    ]
}

fn descriptors() -> impl Strategy<Value = RateLimitDescriptor> {
    let hits = prop_oneof![
        6 => Just(None),
        2 => Just(Some(0)),
        6 => (1u64..6).prop_map(Some),
        1 => select(vec![100, 70_000, 4_294_967_295]).prop_map(Some),
    ];
    let limits = (0u32..6, 1i32..5, prop::option::of(1u32..4)).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
            requests_per_unit,
            unit,
            unit_multiplier,
        },
    );
    let limits = prop_oneof![8 => Just(None), 1 => limits.prop_map(Some)];
    // A value that is longer than a key's text is identified by a digest.
    let values = prop_oneof![6 => Just("a"), 2 => Just("b"), 1 => Just(concat!("0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"))];
    let keys = select(vec!["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "who"]);
    (keys, values, hits, prop::bool::weighted(0.12), limits).prop_map(
        |(key, value, hits, is_refund, limit)| RateLimitDescriptor {
            hits_addend: hits,
            is_negative_hits: is_refund,
            limit,
            ..descriptor(&[(key, value)])
        },
    )
}
