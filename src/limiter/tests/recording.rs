//! Records of requests: denials, and exceptions to the promise.

use super::*;
use crate::descriptor::HashKey;
use crate::telemetry::journal::{DenialFilter, DeniedKey, Journal};

const RULES: &str = "
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: s, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: q, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: r, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: late, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 2, charge: afterwards}}
  - {key: guess, rate_limit: {algorithm: sliding_window, estimate: weighted, unit: minute, requests_per_unit: 9}}
";

fn noted(journal: &Journal) -> Vec<(String, String, [u64; 3])> {
    let view = |found: DeniedKey| {
        (found.rule, found.key, [found.record.count, found.record.passed, found.record.hits])
    };
    let mut all: Vec<_> =
        journal.read().find(&DenialFilter::default()).into_iter().map(view).collect();
    all.sort();
    all
}

#[test]
fn denials_are_taken_down_with_whether_the_request_passed() {
    let mut bench = bench(RULES);
    let journal = Journal::new(1 << 20, 1);
    bench.limiter = bench.limiter.with_recorder(journal.recorder());
    assert_eq!(bench.decide(&[hits("a=1", Hits::Charge(3)), take("a=2")]), "OVER: OVER 0");
    assert_eq!(bench.decide(&[take("s=1"), take("q=1"), take("r=1")]), "OK: 0 OVER 8");
    assert_eq!(bench.decide(&[overridden("x=1,y=2", 0, 60)]), "OVER: OVER");
    let row = |rule: &str, key: &str, counts| (rule.to_owned(), key.to_owned(), counts);
    let expected = [
        row("(limit of the request)", "x=1,y=2", [1, 0, 1]),
        row("a", "a=1", [1, 0, 3]),
        row("q", "q=1", [1, 1, 1]),
        row("s", "s=1", [1, 1, 1]),
    ];
    assert_eq!(noted(&journal), expected);
}

#[test]
fn hashed_values_are_recorded_as_hashes_by_every_limit() {
    let ban = "unit: day, requests_per_unit: 0";
    let text = format!(
        "domain: d\ndescriptors:
  - {{key: mail, rate_limit: {{{ban}, hash_values: true, record: [user]}}}}
  - {{key: tried, rate_limit: {{unit: day, requests_per_unit: 9, hash_values: true}}, candidate: {{{ban}}}}}
  - {{key: alone, candidate: {{{ban}, hash_values: true}}}}
  - {{key: plan, rate_limit: {{{ban}}}}}
"
    );
    // The candidate policy set hashes values only because the active limits do.
    let other = format!("domain: d\ndescriptors: [{{key: tried, rate_limit: {{{ban}}}}}]\n");
    let options = CompileOptions {
        hash_key: Some(HashKey::of(b"sixteen bytes at least")),
        ..CompileOptions::default()
    };
    let mut bench = bench_of(load_by(&text, options), Modes::default(), 1 << 20);
    let journal = Journal::new(1 << 20, 1);
    bench.in_force.try_out(load_by(&other, CompileOptions { are_candidates: true, ..options }));
    bench.limiter = bench.limiter.with_recorder(journal.recorder());
    for ask in ["mail=ann", "tried=ann", "alone=ann", "plan=free"].map(take) {
        bench.decide(&[ask, take("user=ann")]);
    }
    bench.decide(&[overridden("any=ann", 0, 60)]);
    let found = journal.read().find(&DenialFilter::default());
    let mut recorded_by: Vec<(&str, Vec<&str>)> =
        found.iter().map(|found| (found.rule.as_str(), found.key.split('=').collect())).collect();
    recorded_by.sort();
    let hash = recorded_by[0].1[1];
    assert!(hash.starts_with("hash-") && hash.len() == 25, "{hash}");
    let expected = [
        ("(limit of the request)", vec!["any", hash]),
        ("alone (candidate)", vec!["alone", hash]),
        ("mail", vec!["mail", hash]),
        ("plan", vec!["plan", "free"]),
        ("tried (candidate policy)", vec!["tried", hash]),
        ("tried (candidate)", vec!["tried", hash]),
    ];
    assert_eq!(recorded_by, expected);
    let recorded: Vec<_> = found.iter().flat_map(|found| &found.record.recorded).collect();
    assert_eq!(recorded, [&Box::from(format!("user={hash}"))]);
}

#[test]
fn a_denial_has_the_time_until_its_hits_fit_and_one_by_a_candidate_its_descriptor() {
    let candidate = "candidate: {unit: day, requests_per_unit: 1}";
    let mut bench = bench(&format!("{RULES}  - {{key: tried, {candidate}}}\n"));
    let journal = Journal::new(1 << 20, 1);
    let times = || -> Vec<(String, Option<Micros>)> {
        let mut found = journal.read().find(&DenialFilter::default());
        found.sort_by(|one, next| one.key.cmp(&next.key));
        let wait = |record: &crate::telemetry::journal::DenialRecord| {
            record.retry_at.map(|at| at.since(record.last))
        };
        found.into_iter().map(|found| (found.key, wait(&found.record))).collect()
    };
    bench.decide(&[take("tried=2"), take("tried=2")]);
    bench.limiter = bench.limiter.with_recorder(journal.recorder());
    assert_eq!(bench.decide(&[take("a=1"), take("tried=1")]), "OK: 0 -");
    assert_eq!(times(), []);
    bench.decide(&[take("a=1"), take("tried=1")]);
    let day = Some(Micros::from_secs(86_400));
    assert_eq!(times(), [("a=1".to_owned(), day)], "it alone denies the request");
    bench.decide(&[take("none=1"), take("tried=1")]);
    assert_eq!(times(), [("a=1".to_owned(), day), ("tried=1".to_owned(), day)]);
}

#[test]
fn each_exception_of_the_promise_is_counted_in_hits() {
    let bench = bench(RULES);
    bench.decide(&[hits("a=1", Hits::Refund(7))]);
    bench.decide(&[hits("late=1", Hits::Charge(5))]);
    bench.decide(&[hits("guess=1", Hits::Charge(4)), hits("a=2", Hits::Charge(1))]);
    bench.decide(&[hits("guess=1", Hits::Charge(6)), hits("guess=1", Hits::Peek(0))]);
    let exceptions = &bench.metrics.exceptions;
    let counts = [&exceptions.refunded_hits, &exceptions.overrun_hits, &exceptions.estimated_hits]
        .map(|one| one.get());
    assert_eq!(counts, [7, 5, 4]);
}

#[test]
fn series_of_rules_go_with_them_and_rules_beyond_the_bound_are_counted_together() {
    let options = crate::telemetry::metrics::MetricsOptions { max_rules: 2, near_limit_ratio: 0.5 };
    let rule = |key: &str| {
        format!("  - {{key: {key}, rate_limit: {{unit: day, requests_per_unit: 2}}}}\n")
    };
    let of = |keys: &[&str]| {
        load(&format!(
            "domain: d\ndescriptors:\n{}",
            keys.iter().map(|key| rule(key)).collect::<String>()
        ))
    };
    let bench = bench_with(
        Metrics::with(options, None),
        of(&["a", "b", "c", "e"]),
        Modes::default(),
        1 << 20,
    );
    for key in ["a", "a", "b", "c", "e"] {
        bench.decide(&[take(&format!("{key}=1"))]);
    }
    let shows = |line: &str| bench.metrics.render().lines().any(|shown| shown == line);
    assert!(shows(r#"tollgate_decisions_total{domain="d",rule="a",outcome="allowed"} 2"#));
    assert!(shows(r#"tollgate_near_limit_total{domain="d",rule="a"} 1"#));
    assert!(shows(r#"tollgate_decisions_total{domain="other",rule="other",outcome="allowed"} 2"#));
    bench.in_force.install(of(&["b", "c"]));
    bench.decide(&[take("c=1")]);
    assert!(!bench.metrics.render().contains(r#"rule="a""#));
    assert!(
        shows(r#"tollgate_decisions_total{domain="d",rule="b",outcome="allowed"} 1"#),
        "it goes on"
    );
    assert!(
        shows(r#"tollgate_decisions_total{domain="d",rule="c",outcome="allowed"} 1"#),
        "there is room now"
    );
}
