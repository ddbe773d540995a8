//! Shadow and quota mode, of rules and of the process.

use super::*;

#[test]
fn a_shadow_rule_never_denies_and_other_rules_are_charged() {
    let bench = bench(
        "  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 3, charge: admitted}}\n",
    );
    assert_eq!(bench.decide(&[take("s"), take("b")]), "OK: 0 2");
    assert_eq!(bench.decide(&[take("s"), take("b")]), "OK: 0 1");
    let text = bench.metrics.render();
    assert!(text.contains(r#"rule="s",outcome="shadow_denied"} 1"#), "{text}");
}

#[test]
fn in_global_quota_mode_a_request_is_denied_where_every_descriptor_that_is_not_unlimited_denies() {
    let rules = format!("{PLAIN}  - {{key: free, rate_limit: {{unlimited: true}}}}\n");
    let bench = bench_of(load(&format!("domain: d\ndescriptors:\n{rules}")), QUOTA, 1 << 20);
    assert_eq!(bench.times(2, take("a=1")), "OK: 0");
    assert_eq!(bench.decide(&[take("a=1"), take("b=1")]), "OK: OVER 4", "b votes for it");
    assert_eq!(
        bench.decide(&[take("a=1"), take("none=1")]),
        "OK: OVER -",
        "so does what has no limit"
    );
    assert_eq!(
        bench.decide(&[take("a=1"), take("free=1")]),
        "OVER: OVER -",
        "what is unlimited has no vote"
    );
    assert_eq!(bench.decide(&[take("a=1")]), "OVER: OVER");
}

#[test]
fn global_shadow_mode_admits_and_reports_the_status() {
    let bench = bench_of(load(&format!("domain: d\ndescriptors:\n{PLAIN}")), SHADOW, 1 << 20);
    bench.times(2, take("a"));
    assert_eq!(bench.decide(&[take("a")]), "OK: OVER");
}
