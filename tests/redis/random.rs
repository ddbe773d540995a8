//! Policies and traces that nobody has thought of: memory, one server and a cluster give the same answers.
//!
//! The same cases at each run. `TOLLGATE_RANDOM_SEED` has others, `TOLLGATE_RANDOM_CASES` more.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tollgate::algorithm::Receipt;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::rate_limit_descriptor::RateLimitOverride;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate::limiter::Modes;
use tollgate::policy::{self, Source};

use super::cluster;
use super::sides::{Sides, a_try_is_what_follows};
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};

const CASES: u32 = 12;
const REQUESTS: usize = 300;
const START: u64 = 1_780_000_000_000_000;
/// Beginnings before and after the last second that four bytes hold and the last instant of the short form of a gcra value.
const LATER: [u64; 3] = [4_294_967_266_000_000, 4_503_599_626_000_000, 7_258_118_400_000_000];
/// How far clocks step back at most: memory keeps a counter for a minute after it stopped mattering.
const FARTHEST_BACK: u64 = 59_000_000;

/// A rule's limit as it is written, and the words beside it.
#[derive(Clone, Debug)]
struct Rule {
    limit: String,
    mode: &'static str,
}

/// What is decided: the policies of a case share its trace evenly.
struct Case {
    policies: Vec<String>,
    modes: Modes,
    begin: u64,
    trace: Vec<Step>,
}

/// Microseconds forwards or back, and what is asked then.
type Step = (i64, Asked);

#[derive(Clone, Debug)]
enum Asked {
    Decide(RateLimitRequest),
    /// First without its hits being taken, then with.
    Try(RateLimitRequest),
    /// Of the counter that a descriptor leads to.
    Amend(String, Amendment),
    /// Hits of that counter in advance.
    Lend(String, u32),
    /// Of what was so charged, so many hits of one charge go back.
    TakeBack(usize, u64),
    /// Who used the counter of a descriptor up.
    Tallies(String),
}

#[test]
fn memory_redis_and_a_cluster_decide_alike() {
    agree(0, CASES, (policies(), any::<bool>(), modes(), traces()), |(rules, in_one_slot, modes, trace)| Case {
        policies: vec![text_of(&rules, in_one_slot)],
        modes,
        begin: START,
        trace,
    });
}

#[test]
fn they_do_so_in_the_next_centuries() {
    agree(4, CASES, (policies(), select(LATER.to_vec()), traces()), |(rules, begin, trace)| Case {
        policies: vec![text_of(&rules, false)],
        modes: Modes::default(),
        begin,
        trace,
    });
}

#[test]
fn they_do_so_when_amounts_change_meanwhile() {
    let pairs = prop::collection::vec(changing_rules(), 3..8);
    agree(1, CASES / 2, (pairs, traces()), |(pairs, trace)| {
        let (before, after): (Vec<Rule>, Vec<Rule>) = pairs.into_iter().unzip();
        let policies = [&before, &after, &before].map(|rules| text_of(rules, false)).to_vec();
        Case { policies, modes: Modes::default(), begin: START, trace }
    });
}

#[test]
fn they_do_so_when_hits_of_grants_and_from_before_resets_come_back() {
    let keys = || select(vec!["k0=a", "k1=a"]);
    let lends = (keys(), 1u32..5).prop_map(|(descriptor, hits)| Asked::Lend(descriptor.to_owned(), hits));
    let grants = (1u32..9, select(vec![100, 5_000, 100_000_000]))
        .prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let amendments = prop_oneof![4 => grants, 1 => Just(Amendment::Reset), 2 => Just(Amendment::Look)];
    let amended = (keys(), amendments).prop_map(|(descriptor, what)| Asked::Amend(descriptor.to_owned(), what));
    let back = (any::<usize>(), 1u64..6).prop_map(|(which, hits)| Asked::TakeBack(which, hits));
    let asked = prop_oneof![4 => lends, 3 => back, 3 => amended];
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 1 => 0i64..5_000];
    let traces = prop::collection::vec((steps, asked), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(rules(), 2);
    agree(2, CASES, (policies, traces), |(rules, trace)| Case {
        policies: vec![text_of(&rules, false)],
        modes: Modes::default(),
        begin: START,
        trace,
    });
}

#[test]
fn they_tally_alike() {
    let recording = rules().prop_map(|rule| {
        let limit = rule.limit.replace(", record: [who, k0]", "") + ", record: [who, k0]";
        Rule { limit, ..rule }
    });
    let requests = prop::collection::vec(descriptors(), 1..5).prop_map(|all| Asked::Decide(request(all)));
    let keys = select(vec!["k0=a", "k0=b", "k1=a", "k2=a", "k3=a"]);
    let tallies = keys.clone().prop_map(|descriptor| Asked::Tallies(descriptor.to_owned()));
    let resets = keys.prop_map(|descriptor| Asked::Amend(descriptor.to_owned(), Amendment::Reset));
    let asked = prop_oneof![12 => requests, 4 => tallies, 1 => resets];
    // Less than a minute in all, for which all stores keep a counter that does not matter.
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 3 => 1_000i64..100_000];
    let traces = prop::collection::vec((steps, asked), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(recording, 3..8);
    agree(3, CASES, (policies, any::<bool>(), modes(), traces), |(rules, in_one_slot, modes, trace)| Case {
        policies: vec![text_of(&rules, in_one_slot)],
        modes,
        begin: START,
        trace,
    });
}

/// Runs `cases` of a strategy.
fn agree<S: Strategy>(test: u8, cases: u32, strategy: S, case: impl Fn(S::Value) -> Case) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, cluster) = runtime.block_on(async { (Redis::start().await, cluster().await) });
    let urls = [redis.url(), cluster.url()];
    let mut seed = [test; 32];
    seed[0] = u8::try_from(from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default() % 256).unwrap();
    let config = Config {
        cases: from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(cases),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng)
        .run(&strategy, |value| runtime.block_on(run(&urls, &case(value))).map_err(TestCaseError::fail));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn run(urls: &[String], case: &Case) -> Result<(), String> {
    let Case { policies, modes, begin, trace } = case;
    let sides = Sides::new(urls, "random:", *modes).await;
    sides.clear().await;
    let (mut now, mut latest, mut lent) = (*begin, *begin, Vec::new());
    for (number, (step, asked)) in trace.iter().enumerate() {
        if number % (trace.len() / policies.len()).max(1) == 0 {
            sides.install(&policies[(number * policies.len() / trace.len()).min(policies.len() - 1)]);
        }
        now = now.saturating_add_signed(*step).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let said = match asked {
            Asked::Decide(message) => sides.decide(now, message).await.map(|answer| drop(answer.ok())),
            Asked::Try(message) => a_try_is_what_follows(&sides, now, message).await,
            Asked::Amend(descriptor, amendment) => sides.amend(now, descriptor, *amendment).await.map(drop),
            Asked::Lend(descriptor, hits) => {
                let said = sides.lend(now, descriptor, *hits).await;
                said.map(|receipt| lent.extend(receipt.map(|receipt| (descriptor, receipt))))
            }
            Asked::Tallies(descriptor) => sides.tallies(descriptor).await.map(drop),
            Asked::TakeBack(..) if lent.is_empty() => Ok(()),
            Asked::TakeBack(which, hits) => {
                let which = which % lent.len();
                let (descriptor, receipt) = lent[which];
                let part = Receipt { hits: receipt.hits.min(*hits), ..receipt };
                lent[which].1.hits -= part.hits;
                lent.retain(|(_, receipt)| receipt.hits > 0);
                sides.take_back(now, descriptor, part).await;
                sides.amend(now, descriptor, Amendment::Look).await.map(drop)
            }
        };
        said.map_err(|said| format!("request {number} {said}"))?;
    }
    Ok(())
}

pub(super) fn from_environment(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

fn text_of(rules: &[Rule], in_one_slot: bool) -> String {
    let atomicity = if in_one_slot { "domain" } else { "limit" };
    let rule = |(number, Rule { limit, mode }): (usize, &Rule)| {
        format!("  - key: k{number}\n    rate_limit: {{ {limit} }}\n{mode}")
    };
    let rules: String = rules.iter().enumerate().map(rule).collect();
    format!("domain: test\natomicity: {atomicity}\ndescriptors:\n{rules}")
}

fn is_valid(rule: &Rule) -> bool {
    let text = text_of(std::slice::from_ref(rule), false);
    policy::load(&[Source { name: "policy".to_owned(), text }], &policy::Options::default()).is_ok()
}

fn modes() -> impl Strategy<Value = Modes> {
    let bits = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    bits.prop_map(|(shadow, quota)| Modes { shadow, quota })
}

fn policies() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(rules(), 3..10)
}

fn rules() -> impl Strategy<Value = Rule> {
    let limits = prop_oneof![fixed_windows(), calendars(), sliding_windows(), weighted_windows(), logs(), rates()];
    finished(limits).prop_filter("a limit that cannot work", is_valid)
}

/// The same rule with two amounts.
fn changing_rules() -> impl Strategy<Value = (Rule, Rule)> {
    let limits = prop_oneof![fixed_windows(), sliding_windows(), weighted_windows(), logs(), rates(), rates()];
    let changed = (finished(limits), amounts(), amounts()).prop_map(|(rule, from, to)| {
        // All windows get the same two amounts, a burst that is given stays.
        let with = |amount: u32| Rule { limit: with_amount(&rule.limit, amount), ..rule.clone() };
        (with(from), with(to))
    });
    changed.prop_filter("a limit that cannot work", |(from, to)| is_valid(from) && is_valid(to))
}

fn with_amount(limit: &str, amount: u32) -> String {
    let mut parts = limit.split("requests_per_unit: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{text}requests_per_unit: {amount}{rest}")
    })
}

/// A limit with options that every algorithm has.
fn finished(limits: impl Strategy<Value = String>) -> impl Strategy<Value = Rule> {
    let charges =
        select(vec!["", ", charge: admitted", ", charge: blamed", ", charge: always", ", charge: afterwards"]);
    let inherits = select(vec!["", "", ", override: inherit"]);
    let records = select(vec!["", "", ", record: [who, k0]"]);
    let modes = select(vec![
        "",
        "",
        "",
        "    shadow_mode: true\n",
        "    quota_mode: true\n",
        "    quota_mode: true\n    shadow_mode: true\n",
    ]);
    (limits, charges, inherits, records, modes).prop_map(|(limit, charge, inherit, record, mode)| {
        // Where an option does not apply, the limit does without it.
        let whole = Rule { limit: format!("{limit}{charge}{inherit}{record}"), mode };
        if is_valid(&whole) { whole } else { Rule { limit: format!("{limit}{record}"), mode } }
    })
}

fn amounts() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => 1u32..12,
        4 => select(vec![60, 997, 10_000, 999_983, 300_000]),
        1 => select(vec![0, u32::MAX]),
        1 => any::<u32>(),
    ]
}

fn periods() -> impl Strategy<Value = &'static str> {
    select(vec![
        "1ms", "7ms", "250ms", "997ms", "second", "7s", "15s", "minute", "2m", "hour", "day", "week", "month", "year",
        "3650d",
    ])
}

fn windows() -> impl Strategy<Value = String> {
    prop::collection::vec((amounts(), periods()), 1..4).prop_map(|windows| {
        let window = |(amount, unit): &(u32, &str)| format!("{{ requests_per_unit: {amount}, unit: {unit} }}");
        format!("windows: [{}]", windows.iter().map(window).collect::<Vec<_>>().join(", "))
    })
}

/// One window, which may take over an override's.
fn window() -> impl Strategy<Value = String> {
    (amounts(), periods()).prop_map(|(amount, unit)| format!("requests_per_unit: {amount}, unit: {unit}"))
}

fn fixed_windows() -> impl Strategy<Value = String> {
    prop_oneof![windows(), window()]
}

fn calendars() -> impl Strategy<Value = String> {
    let zones = vec!["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"];
    (amounts(), select(vec!["day", "week", "month", "year"]), select(zones)).prop_map(|(amount, unit, zone)| {
        format!("requests_per_unit: {amount}, unit: {unit}, calendar: true, time_zone: {zone}")
    })
}

fn sliding_windows() -> impl Strategy<Value = String> {
    (prop_oneof![windows(), window()], select(vec![1, 2, 7, 10, 60, 1_000])).prop_map(|(windows, buckets)| {
        let coarse =
            if windows.contains("unit: 1ms") || windows.contains("unit: 7ms") { buckets.min(10) } else { buckets };
        format!("algorithm: sliding_window, {windows}, buckets: {coarse}")
    })
}

fn weighted_windows() -> impl Strategy<Value = String> {
    (prop_oneof![windows(), window()], select(vec![1, 2, 4, 10, 50])).prop_map(|(windows, buckets)| {
        format!("algorithm: sliding_window, {windows}, buckets: {buckets}, estimate: weighted")
    })
}

fn logs() -> impl Strategy<Value = String> {
    let amounts = || prop_oneof![8 => 1u32..12, 1 => select(vec![997, 10_000])];
    prop::collection::vec((amounts(), periods()), 1..4).prop_map(|windows| {
        let window = |(amount, unit): &(u32, &str)| format!("{{ requests_per_unit: {amount}, unit: {unit} }}");
        let windows: Vec<_> = windows.iter().map(window).collect();
        format!("algorithm: sliding_log, windows: [{}]", windows.join(", "))
    })
}

fn rates() -> impl Strategy<Value = String> {
    let bursts = prop::option::of(prop_oneof![1u32..20, select(vec![997, 300_000])]);
    let debts = prop::option::of(select(vec![0, 1, 3, 1_000]));
    let words = select(vec!["gcra", "token_bucket"]);
    (words, window(), bursts, debts).prop_map(|(algorithm, window, burst, debt)| {
        let burst = burst.map(|burst| format!(", burst: {burst}")).unwrap_or_default();
        let debt = debt.map(|debt| format!(", max_debt: {debt}")).unwrap_or_default();
        format!("algorithm: {algorithm}, {window}{burst}{debt}")
    })
}

fn traces() -> impl Strategy<Value = Vec<Step>> {
    let requests = || prop::collection::vec(descriptors(), 1..5);
    let decided = requests().prop_map(|all| Asked::Decide(request(all)));
    let tried = requests().prop_map(|all| {
        // What gives hits back is nothing to try.
        let all = all.into_iter().map(|one| RateLimitDescriptor { is_negative_hits: false, ..one });
        Asked::Try(request(all.collect()))
    });
    let asked = prop_oneof![8 => decided, 2 => tried, 1 => amendments()];
    prop::collection::vec((steps(), asked), REQUESTS / 2..REQUESTS)
}

fn amendments() -> impl Strategy<Value = Asked> {
    let lengths = select(vec![0, 1, 30, 1_000_000, 100_000_000, 86_400_000_000]);
    let grants = (0u32..9, lengths).prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let what = prop_oneof![
        2 => Just(Amendment::Look),
        2 => Just(Amendment::Reset),
        2 => (0u32..9).prop_map(Amendment::Refund),
        3 => grants,
    ];
    let keys = select(vec!["k0=a", "k1=a", "k2=a", "k3=a", "k4=a", "k0=b"]);
    (keys, what).prop_map(|(descriptor, what)| Asked::Amend(descriptor.to_owned(), what))
}

fn steps() -> impl Strategy<Value = i64> {
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
    let limits =
        (0u32..6, 1i32..5, prop::option::of(1u32..4)).prop_map(|(requests_per_unit, unit, unit_multiplier)| {
            RateLimitOverride { requests_per_unit, unit, unit_multiplier }
        });
    let limits = prop_oneof![8 => Just(None), 1 => limits.prop_map(Some)];
    // A value that is longer than a key's text is counted by a digest.
    let values = prop_oneof![6 => Just("a"), 2 => Just("b"), 1 => Just(concat!("0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"))];
    let keys = select(vec!["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "who"]);
    (keys, values, hits, prop::bool::weighted(0.12), limits).prop_map(|(key, value, hits, is_refund, limit)| {
        RateLimitDescriptor { hits_addend: hits, is_negative_hits: is_refund, limit, ..descriptor(&[(key, value)]) }
    })
}
