use tollgate_core::descriptor::entries;

use super::*;
use crate::{CompileOptions, Source, load};

const POLICY: &str = "domain: tiers
descriptors:
- key: plan
  value: free
  descriptors:
  - key: user
    value: test-*
  - key: user
    rate_limit: {algorithm: gcra, requests_per_unit: 100, unit: minute, burst: 20}
- key: tokens
  quota_mode: true
  rate_limit:
    name: budget
    algorithm: sliding_window
    windows: [{requests_per_unit: 1, unit: second}, {requests_per_unit: 5000, unit: 10s}]
    lease: {size: 0.5%, ttl: 100ms}
- key: day
  rate_limit: {requests_per_unit: 0, unit: day, calendar: true, time_zone: Europe/Berlin}
- key: fixed
  rate_limit: {requests_per_unit: 10000, unit: minute, lease: {size: 1%, ttl: 100ms}}
- key: sliding
  rate_limit: {algorithm: sliding_window, requests_per_unit: 10000, unit: minute, lease: {size: 1%, ttl: 100ms}}
- key: gcra
  rate_limit: {algorithm: gcra, requests_per_unit: 10000, unit: minute, lease: {size: 20, ttl: 100ms}}
";

fn policies() -> PolicySet {
    let source = Source { name: "tiers.yaml".into(), text: POLICY.into() };
    load(&[source], &CompileOptions::default()).unwrap().policies
}

fn explained(descriptor: &str) -> (String, bool) {
    let policies = policies();
    let (text, rule) = explain(&policies, "tiers", &entries(descriptor));
    (text, rule.is_some())
}

#[test]
fn each_step_and_the_limit_are_explained() {
    let (text, hit) = explained("plan=free,user=42");
    assert!(hit);
    insta::assert_snapshot!(text, @r##"
        domain tiers

        1. plan=free, among 6 rules
           exact plan=free: yes
           -> plan=free

        2. user=42, among 2 rules
           exact user=42: no
           wildcard user=test-*: no
           key only user: yes
           -> plan=free > user

        rule            plan=free > user
        limit           100 hits in 1m
        algorithm       gcra: evenly spaced, burst 20 when idle, debt up to 200
        charge          admitted: charged only if the whole request is admitted; denied requests are not charged
        on_store_error  error: the call fails, and the failure mode of the client applies
        "##);
}

#[test]
fn windows_and_modes_are_explained() {
    insta::assert_snapshot!(explained("tokens=a=b").0, @r##"
        domain tiers

        1. tokens=a=b, among 6 rules
           exact tokens=a=b: no
           key only tokens: yes
           -> tokens

        rule            tokens
        name            budget
        limit           1 hit in 1s
        and             5000 hits in 10s
        algorithm       sliding_window: 60 buckets, the oldest counted in full: never over the limit in any period
        charge          admitted: charged only if the whole request is admitted; denied requests are not charged
                        probably charged after the request: a charge over the limit is lost; see `charge: afterwards`
        quota_mode      denies a request only if all limits in quota mode do
        on_store_error  error: the call fails, and the failure mode of the client applies
        lease           none: blocks of hits would be too small; see `tollgate check`
        "##);
    assert!(explained("day=1").0.contains("0 hits (ban) in each calendar day of Europe/Berlin"));
}

#[test]
fn the_effect_of_a_lease_is_explained() {
    let of = |key: &str| {
        explained(&format!("{key}=a")).0.split_once("lease           ").unwrap().1.to_owned()
    };
    insta::assert_snapshot!(of("fixed"), @r##"
        frequently used counters charge up to 100 hits in advance, for at most 100ms
                        at most the limit in a window; up to 2 blocks per worker may be held unused
        "##);
    insta::assert_snapshot!(of("sliding"), @r##"
        frequently used counters charge up to 100 hits in advance, for at most 100ms
                        at most the limit in any period less 100ms; in a full one, up to 2 held blocks per worker more
        "##);
    insta::assert_snapshot!(of("gcra"), @r##"
        frequently used counters charge up to 20 hits in advance, for at most 100ms
                        at most the limit in any period less 100ms; in a full one, up to 2 held blocks per worker more
        "##);
}

#[test]
fn a_descriptor_without_a_match_is_explained() {
    let (text, hit) = explained("plan=free,route=x");
    assert!(!hit);
    insta::assert_snapshot!(text, @r##"
        domain tiers

        1. plan=free, among 6 rules
           exact plan=free: yes
           -> plan=free

        2. route=x, among 2 rules
           exact route=x: no
           wildcard user=test-*: no
           key only route: no
           -> no match; other branches are not tried

        no rule matches the whole descriptor: OK, no limit
        "##);
    assert!(!explained("").1);
}

#[test]
fn a_burst_is_part_of_a_limit_in_words_if_it_differs_from_the_amount() {
    let policies = policies();
    let words = |descriptor| {
        let (_, rule) = explain(&policies, "tiers", &entries(descriptor));
        limit_in_words(rule.unwrap()).unwrap()
    };
    assert_eq!(words("plan=free,user=42"), "100 hits in 1m, burst 20");
    assert_eq!(words("gcra="), "10000 hits in 1m");
}
