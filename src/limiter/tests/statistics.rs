//! Request counts under the metric names of envoyproxy/ratelimit.

use super::*;
use crate::telemetry::statistics::{Stats, StatsOptions};

const OF_10: &str = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n";

fn counted(rules: &str, shadow: bool, max_series: usize) -> LimiterFixture {
    let stats = Stats::new(StatsOptions { near_limit_ratio: 0.8, max_series }, |_| Box::new([]));
    let policies = load(&format!("domain: d\ndescriptors:\n{rules}"));
    let modes = Modes { shadow, quota: false };
    bench_with(Metrics::with_stats(Some(stats)), policies, modes, 1 << 20)
}

/// Returns the counts of rules, without the common prefix, zeros and gauges.
fn text(bench: &LimiterFixture) -> String {
    let text = bench.metrics.stats().unwrap().text();
    let names = text.lines().filter(|line| !line.ends_with(": 0"));
    names.map(|line| line.trim_start_matches("ratelimit.service.").to_owned() + "\n").collect()
}

#[test]
fn hits_are_within_near_or_over_the_limit() {
    let bench = counted(OF_10, false, 10);
    bench.decide(&[hits("a=1", Hits::Charge(7))]);
    bench.decide(&[hits("a=1", Hits::Charge(2))]);
    bench.decide(&[hits("a=1", Hits::Peek(0))]);
    insta::assert_snapshot!(text(&bench), @r"
    rate_limit.d.a.near_limit: 1
    rate_limit.d.a.total_hits: 9
    rate_limit.d.a.within_limit: 9
    ");
    bench.decide(&[take("a=1")]);
    bench.decide(&[hits("a=1", Hits::Charge(4))]);
    insta::assert_snapshot!(text(&bench), @r"
    rate_limit.d.a.near_limit: 2
    rate_limit.d.a.over_limit: 4
    rate_limit.d.a.total_hits: 14
    rate_limit.d.a.within_limit: 10
    ");
}

#[test]
fn hits_that_cross_the_limit_are_split_between_near_and_over() {
    let rules = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 10, charge: admitted}}\n";
    let bench = counted(rules, false, 10);
    let denied = |key: &str, before, crossing| {
        bench.decide(&[hits(key, Hits::Charge(before))]);
        bench.decide(&[hits(key, Hits::Charge(crossing))]);
    };
    // 7 and 5: hits 9 and 10 are near the limit of 10, 11 and 12 over it.
    denied("a=1", 7, 5);
    // 9 and 4: hit 10, and three. Then all.
    denied("s=1", 9, 4);
    bench.decide(&[hits("s=1", Hits::Charge(2))]);
    // A denial that is not charged crosses nothing.
    denied("b=1", 7, 5);
    insta::assert_snapshot!(text(&bench), @r"
    rate_limit.d.a.near_limit: 2
    rate_limit.d.a.over_limit: 2
    rate_limit.d.a.total_hits: 12
    rate_limit.d.a.within_limit: 7
    rate_limit.d.b.over_limit: 5
    rate_limit.d.b.total_hits: 12
    rate_limit.d.b.within_limit: 7
    rate_limit.d.s.near_limit: 2
    rate_limit.d.s.over_limit: 5
    rate_limit.d.s.shadow_mode: 5
    rate_limit.d.s.total_hits: 15
    rate_limit.d.s.within_limit: 9
    ");
}

#[test]
fn hits_that_are_given_back_are_counted_apart() {
    let bench = counted(OF_10, false, 10);
    bench.decide(&[hits("a=1", Hits::Charge(7)), hits("a=1", Hits::Refund(3))]);
    insta::assert_snapshot!(text(&bench), @r"
    rate_limit.d.a.total_hits: 7
    rate_limit.d.a.total_negative_hits: 3
    rate_limit.d.a.within_limit: 7
    ");
}

#[test]
fn shadow_rules_are_counted_in_global_shadow_mode_too() {
    let rules = "  - {key: s, value: v, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: u, rate_limit: {unlimited: true}}\n";
    let bench = counted(rules, false, 10);
    bench.decide(&[take("s=v"), take("u=1"), take("z=1")]);
    insta::assert_snapshot!(text(&bench), @r"
    rate_limit.d.s_v.over_limit: 1
    rate_limit.d.s_v.shadow_mode: 1
    rate_limit.d.s_v.total_hits: 1
    ");
}

#[test]
fn a_request_that_is_admitted_only_because_all_are_is_counted_once() {
    let bench =
        counted("  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n", true, 10);
    assert_eq!(bench.decide(&[take("a"), take("a"), take("a")]), "OK: 0 OVER OVER");
    assert!(text(&bench).starts_with("global_shadow_mode: 1\n"), "{}", text(&bench));
}

#[test]
fn checks_without_an_outcome_are_in_the_total_only() {
    let policies = load(
        "domain: d\ndescriptors:\n  - {key: e, rate_limit: {unit: hour, requests_per_unit: 9}}\n",
    );
    let stats =
        Stats::new(StatsOptions { near_limit_ratio: 0.8, max_series: 10 }, |_| Box::new([]));
    let bench = bench_with(Metrics::with_stats(Some(stats)), policies, Modes::default(), 64);
    assert_eq!(bench.decide_in("d", &[take("e")]), Err(Undecided::Store(StoreError::NoRoom)));
    assert_eq!(text(&bench), "rate_limit.d.e.total_hits: 1\n");
}

#[test]
fn values_of_requests_make_series_up_to_a_bound() {
    let rules = "  - {key: a, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: v, value_to_metric: true, descriptors: [{key: w, rate_limit: {unit: minute, requests_per_unit: 10}}]}\n";
    let bench = counted(rules, false, 3);
    bench.decide(&[take("a=10.0.0.1"), overridden("x=1:2", 10, 60)]);
    for value in ["1", "2", "3"] {
        bench.decide(&[take(&format!("v={value},w=1"))]);
    }
    bench.decide(&[take("a=late"), overridden("a=1", 10, 60)]);
    let text = text(&bench);
    let total: Vec<_> = text.lines().filter(|line| line.contains("total_hits")).collect();
    insta::assert_snapshot!(total.join("\n"), @r"
    rate_limit.d.a_10_0_0_1.total_hits: 1
    rate_limit.d.other.total_hits: 2
    rate_limit.d.v.other.total_hits: 2
    rate_limit.d.v_1.w.total_hits: 1
    rate_limit.d.x_1_2.total_hits: 1
    ");
    bench.decide_in("guest's", &[take("a")]).unwrap();
    assert!(
        bench.metrics.stats().unwrap().text().contains("rate_limit.guest's.domain_not_found: 1\n")
    );
}

#[test]
fn a_rule_keeps_its_counts_when_the_policy_changes() {
    let rules = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n";
    let bench = counted(rules, false, 10);
    bench.decide(&[take("a")]);
    bench.in_force.install(load(&format!("domain: d\ndescriptors:\n  - {{key: b}}\n{rules}")));
    bench.decide(&[take("a")]);
    assert!(text(&bench).contains("rate_limit.d.a.total_hits: 2\n"), "{}", text(&bench));
}

/// Hits that were charged beyond the limit before it was charged for admitted hits only.
#[test]
fn a_denial_that_is_not_charged_is_over_the_limit_whatever_was_charged_before() {
    let rules = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n";
    let bench = counted(rules, false, 10);
    bench.decide(&[hits("a", Hits::Charge(12))]);
    let rules = rules.replace("10}", "10, charge: admitted}");
    bench.in_force.install(load(&format!("domain: d\ndescriptors:\n{rules}")));
    let before = text(&bench);
    assert_eq!(bench.decide(&[hits("a", Hits::Charge(5))]), "OVER: OVER");
    let over = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("rate_limit.d.a.over_limit: "));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    assert_eq!(over(&text(&bench)) - over(&before), 5, "{}", text(&bench));
}

#[test]
fn where_statistics_are_off_a_request_makes_no_series() {
    let bench = bench(
        "  - {key: a, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}\n",
    );
    bench.decide(&[take("a=1"), overridden("x=1", 10, 60)]);
    assert!(bench.metrics.stats().is_none());
    let metrics = bench.metrics.render();
    assert_eq!(
        metrics.lines().filter(|line| line.contains("outcome=\"allowed\"")).count(),
        1,
        "rules only: {metrics}"
    );
}
