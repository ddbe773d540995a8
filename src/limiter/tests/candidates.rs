//! Candidate limits: they count, and do not affect the response.

use super::*;
use crate::telemetry::candidates::CandidateSource;

const PLAIN: &str =
    "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: gcra}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2, name: b}}
  - {key: c}
  - {key: r, rate_limit: {unlimited: true, replaces: [{name: b}]}}
";

/// Returns the plain rules, each with a candidate limit of one hit a minute.
fn tried() -> String {
    let candidate = "candidate: {unit: minute, requests_per_unit: 1}";
    PLAIN
        .lines()
        .map(|line| format!("{}, {candidate}}}\n", line.strip_suffix('}').unwrap()))
        .collect()
}

/// Returns the counts of a rule's candidate: allowed, denied, and denied in requests that are
/// denied without it.
fn counted(bench: &LimiterFixture, rule: &str) -> [u64; 3] {
    let metrics = bench.metrics.candidates.of_rule(CandidateSource::Rule, "d", rule);
    [metrics.allowed, metrics.denied, metrics.denied_already].map(|counter| counter.get())
}

#[test]
fn no_answer_is_another_for_a_candidate() {
    let plain = bench(PLAIN);
    let tried = bench(&tried());
    let firsts = ["a=1", "b=1", "c=1", "a=2", "r=1"].iter().cycle();
    let seconds = ["b=1", "c=1", "a=1"].iter().cycle();
    let wanted = [Hits::Charge(1), Hits::Peek(0), Hits::Charge(2), Hits::Refund(1)].iter().cycle();
    for (number, ((first, second), wanted)) in (0..200_u64).zip(firsts.zip(seconds).zip(wanted)) {
        let ask = [hits(first, *wanted), take(second)];
        plain.at(number * SECOND);
        tried.at(number * SECOND);
        assert_eq!(
            plain.decide(&ask),
            tried.decide(&ask),
            "{number}: {first} {wanted:?}, {second}"
        );
    }
    assert!(counted(&tried, "a").iter().sum::<u64>() > 0);
}

#[test]
fn denials_by_a_candidate_alone_are_counted_separately() {
    let bench = bench(&tried());
    assert_eq!(bench.times(5, take("a=1")), "OVER: OVER");
    assert_eq!(counted(&bench, "a"), [1, 2, 2]);
    assert_eq!(bench.times(5, take("c=1")), "OK: -", "where there is no limit yet");
    assert_eq!(counted(&bench, "c"), [1, 4, 0]);
}

#[test]
fn a_candidate_of_a_limit_that_does_not_count_in_a_request_does_not_either() {
    let bench = bench(&tried());
    assert_eq!(bench.decide(&[take("b=1"), take("r=1")]), "OK: - -");
    assert_eq!((counted(&bench, "b"), counted(&bench, "r")), ([0, 0, 0], [1, 0, 0]));
    bench.decide(&[overridden("b=1", 9, 60)]);
    assert_eq!(counted(&bench, "b"), [0, 0, 0], "the request has brought a limit");
}

#[test]
fn a_store_without_room_for_a_candidate_fails_no_request() {
    let rules = "  - {key: c, candidate: {unit: minute, requests_per_unit: 1}}\n";
    let bench = bench_of(load(&format!("domain: d\ndescriptors:\n{rules}")), Modes::default(), 0);
    assert_eq!(bench.decide(&[take("c=1")]), "OK: -");
    assert_eq!(bench.metrics.candidates.of_rule(CandidateSource::Rule, "d", "c").unknown.get(), 1);
}

#[test]
fn a_candidate_does_not_vote() {
    let policies = load(
        "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: minute, requests_per_unit: 0}, candidate: {unit: minute, requests_per_unit: 9}}\n",
    );
    let bench = bench_of(policies, Modes { quota: true, shadow: false }, 1 << 20);
    assert_eq!(bench.decide(&[take("a=1")]), "OVER: OVER");
}

#[test]
fn a_set_is_tried_out_by_counters_of_its_own_also_in_domains_that_are_not_in_force() {
    let bench = bench(PLAIN);
    let text = "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: gcra}}\n  - {key: new, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let sources = ["d", "e"].map(|domain| Source {
        name: domain.into(),
        text: format!("domain: {domain}\ndescriptors:\n{text}"),
    });
    let options = CompileOptions { are_candidates: true, ..CompileOptions::default() };
    bench.in_force.try_out(policy::load(&sources, &options).unwrap().policies);
    let counted = |domain: &str, rule: &str| {
        let metrics = bench.metrics.candidates.of_rule(CandidateSource::Policy, domain, rule);
        [metrics.allowed, metrics.denied, metrics.denied_already].map(|counter| counter.get())
    };
    assert_eq!(bench.times(3, take("a=1")), "OK: 0", "the same limit in both has two counters");
    assert_eq!(counted("d", "a"), [3, 0, 0]);
    assert_eq!(bench.times(3, take("new=1")), "OK: -");
    assert_eq!(counted("d", "new"), [1, 2, 0]);
    assert_eq!(bench.decide_in("e", &[take("new=1"), take("new=1")]).unwrap(), "OK: - -");
    assert_eq!(counted("e", "new"), [1, 1, 0]);
    let counts_of = |bench: &LimiterFixture| -> Vec<(CandidateSource, String, u64)> {
        let live = bench.in_force.snapshot();
        let counts_of = live.as_deref().unwrap().candidates();
        counts_of
            .map(|(from, rule, counted)| {
                (from, format!("{} {}", rule.domain(), rule.path()), counted.denied.get())
            })
            .collect()
    };
    let expected = [("d a", 0), ("d new", 2), ("e a", 0), ("e new", 1)];
    assert_eq!(
        counts_of(&bench),
        expected.map(|(rule, denied)| (CandidateSource::Policy, rule.to_owned(), denied))
    );
    bench.in_force.install(load(&format!("domain: d\ndescriptors:\n{PLAIN}")));
    bench.decide(&[take("new=1")]);
    assert_eq!(counted("d", "new"), [1, 3, 0], "it outlives a change of what is in force");
}

#[test]
fn the_series_of_a_candidate_go_with_it() {
    let bench = bench(&tried());
    let shows = |bench: &LimiterFixture, rule: &str| {
        let text = bench.metrics.render();
        text.contains(&format!(
            "tollgate_candidate_decisions_total{{from=\"rule\",domain=\"d\",rule=\"{rule}\""
        ))
    };
    assert!(shows(&bench, "a") && shows(&bench, "c"));
    bench
        .in_force
        .install(load(&format!("domain: d\ndescriptors:\n{}", tried().lines().next().unwrap())));
    assert!(shows(&bench, "a") && !shows(&bench, "c"));
}
