//! Limits with `hold`, and limits on hits in flight: their options, and messages for invalid ones.

use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::{Charge, Limit};

use super::super::Imposes;
use super::super::explain::explain;
use super::{entries, identity, limited, policies, refused};

fn limit_of(text: &str) -> Limit {
    let set = policies(text);
    let Some(Imposes::Limit(limit)) = set.rules().next().map(|rule| rule.imposes().clone()) else {
        panic!("no limit");
    };
    limit
}

#[test]
fn a_limit_with_holds_is_charged_when_admitted_whatever_the_defaults() {
    let text = "domain: d\ndefaults: {charge: always}\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 5, hold: {ttl: 90s, on_settle: release}}\n";
    let limit = limit_of(text);
    assert_eq!(limit.charge_mode(), Charge::Admitted);
    let hold = limit.hold().unwrap();
    assert_eq!((hold.ttl, hold.on_settle), (Micros::from_secs(90), OnSettle::Release));
}

#[test]
fn a_hold_is_no_part_of_the_identity_and_a_limit_in_flight_is_another_counter() {
    let base = identity("{unit: day, requests_per_unit: 5}");
    assert_eq!(identity("{unit: day, requests_per_unit: 5, hold: {ttl: 1m}}"), base);
    let permits = identity("{algorithm: concurrency, in_flight: 5, hold: {ttl: 1m}}");
    assert_ne!(permits, base);
    assert_eq!(identity("{algorithm: concurrency, in_flight: 6, hold: {ttl: 2m}}"), permits);
}

#[test]
fn options_of_other_algorithms_do_not_apply_to_permits() {
    for option in [
        "burst: 1",
        "max_debt: 1s",
        "buckets: 1",
        "estimate: strict",
        "calendar: true",
        "time_zone: UTC",
    ] {
        let word = option.split(':').next().unwrap();
        let limit =
            format!("{{algorithm: concurrency, in_flight: 5, hold: {{ttl: 1m}}, {option}}}");
        refused(&[&limited(&limit)], &[&format!("`{word}`"), "concurrency"]);
    }
}

#[test]
fn every_mistake_is_reported_with_its_remedy() {
    let rate = |more: &str| format!("{{unit: day, requests_per_unit: 5, {more}}}");
    let permits = |more: &str| format!("{{algorithm: concurrency, {more}}}");
    let whole = |more: &str| permits(&format!("in_flight: 5, hold: {{ttl: 1m}}, {more}"));
    let ttl = "expected a whole number of ms, s, m or h such as 60s, from 1s to 24h";
    let no_period = "concurrency has no period; set `in_flight`";
    for (limit, message, note) in [
        (rate("hold: {ttl: 999ms}"), "invalid hold ttl `999ms`", ttl),
        (rate("hold: {ttl: 25h}"), "invalid hold ttl `25h`", ttl),
        (rate("hold: {ttl: soon}"), "invalid hold ttl `soon`", ttl),
        (
            rate("hold: {ttl: 1m}, charge: always"),
            "`charge: always` and `hold` cannot be combined",
            "a limit with holds is charged when admitted",
        ),
        (
            rate("hold: {ttl: 1m}, lease: {ttl: 1s, size: 10}"),
            "`lease` and `hold` cannot be combined",
            "hits charged in advance belong to no request; remove one of them",
        ),
        (
            rate("hold: {ttl: 1m}, algorithm: sliding_window, estimate: weighted"),
            "`estimate: weighted` and `hold` cannot be combined",
            "a limit with holds is exact; remove `estimate`",
        ),
        (
            rate("in_flight: 5"),
            "`in_flight` does not apply to fixed_window",
            "set `algorithm: concurrency`, or `requests_per_unit` and `unit`",
        ),
        (
            permits("hold: {ttl: 1m}"),
            "`algorithm: concurrency` requires `in_flight`",
            "the maximum number of hits in flight, from 0 to 10000",
        ),
        (
            permits("in_flight: 5"),
            "`algorithm: concurrency` requires `hold`",
            "add `hold: { ttl: 60s }`: a permit that is not released earlier is released after this time",
        ),
        (
            permits("in_flight: 5, hold: {ttl: 1m, on_settle: release}"),
            "`on_settle` does not apply to concurrency",
            "a commit or a settle releases the permit; remove `on_settle`",
        ),
        (
            whole("requests_per_unit: 5"),
            "`requests_per_unit` does not apply to concurrency",
            no_period,
        ),
        (whole("unit: day"), "`unit` does not apply to concurrency", no_period),
        (
            whole("windows: [{unit: day, requests_per_unit: 5}]"),
            "`windows` does not apply to concurrency",
            no_period,
        ),
        (whole("charge: always"), "`charge: always` and `hold` cannot be combined", "admitted"),
        (
            whole("lease: {ttl: 1s, size: 10}"),
            "`lease` and `hold` cannot be combined",
            "remove one",
        ),
        (permits("in_flight: 10001, hold: {ttl: 1m}"), "`in_flight`", "10000"),
        (rate("hold: {}"), "`ttl`", ""),
        (rate("hold: {ttl: 1m, on_settle: forget}"), "`on_settle` must be one of", ""),
    ] {
        refused(&[&limited(&limit)], &[message, note]);
    }
}

#[test]
fn a_rule_cannot_match_a_reserved_key() {
    for key in ["tollgate.reserve", "tollgate.commit", "tollgate.settle"] {
        let reserved = format!("`{key}` is reserved and never matched");
        let text = format!("domain: d\ndescriptors:\n- {{key: {key}}}\n");
        refused(&[&text], &[&reserved, "is matched without it; remove the rule"]);
    }
}

#[test]
fn an_explanation_takes_the_operation_on_a_hold_off() {
    let set = policies(&limited("{unit: day, requests_per_unit: 5, hold: {ttl: 1m}}"));
    let pairs = [("k", "v"), ("tollgate.commit", "r1")];
    let (text, rule) = explain(&set, "d", &entries(&pairs));
    assert_eq!(rule.map(|rule| rule.path().to_owned()).as_deref(), Some("k"));
    assert!(text.contains("tollgate.commit=r1: an operation on a hold"), "{text}");
}
