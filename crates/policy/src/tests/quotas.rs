//! RLQS: which limits it can enforce, the descriptors of buckets, and what is reported of them.

use proptest::prelude::*;
use tollgate_core::descriptor::{Entry, KeyBuffer, entries};

use super::{limited, load_all, policies, refused};
use crate::explain::explain;
use crate::{NoQuota, UnsupportedQuota};

fn lent(options: &str) -> String {
    limited(&format!(
        "{{unit: minute, requests_per_unit: 6000, lease: {{size: 1%, ttl: 1s, rlqs: {{ttl: 15s, size: 10%}}}}{options}}}"
    ))
}

/// Returns the hits and the time of the loans of the only rule.
fn quota(text: &str) -> Result<(u32, String), Option<NoQuota>> {
    let loaded = load_all(&[text]).unwrap_or_else(|report| panic!("{report}"));
    let rule = loaded.policies.rules().next().unwrap();
    rule.quota().map(|(_, lease)| (lease.hits, lease.ttl.to_string()))
}

#[test]
fn hits_are_lent_by_limits_with_a_section_that_proxies_can_enforce() {
    assert_eq!(quota(&lent("")), Ok((600, "15s".to_owned())));
    let without = limited("{unit: minute, requests_per_unit: 6000}");
    assert_eq!(quota(&without), Err(Some(NoQuota::NoSection)));
    assert_eq!(quota(&limited("{unlimited: true}")), Err(None));
    assert_eq!(quota(&limited("{unit: minute, requests_per_unit: 0}")).map(|quota| quota.0), Ok(0));
    let votes = lent("").replace("- key: k", "- key: k\n  quota_mode: true");
    assert_eq!(quota(&votes), Err(Some(NoQuota::QuotaMode)));
    assert_eq!(quota(&lent(", record: [user]")), Err(Some(NoQuota::Records)));
    assert_eq!(quota(&lent(", replaces: [{name: other}]")), Err(Some(NoQuota::Replaces)));
    let held =
        limited("{unit: minute, requests_per_unit: 6000, hold: {ttl: 10m}, algorithm: gcra}");
    assert_eq!(quota(&held), Err(Some(NoQuota::Holds)));
    let second = limited("{unit: second, requests_per_unit: 100}");
    assert_eq!(quota(&second), Err(Some(NoQuota::ShortPeriod)));
}

#[test]
fn loans_of_rolling_limits_are_shorter() {
    let rolling = |unit: &str| lent(", algorithm: gcra").replace("minute", unit);
    assert_eq!(quota(&rolling("minute")), Ok((600, "7s".to_owned())));
    let long = rolling("hour").replace("ttl: 15s", "ttl: 5m");
    assert_eq!(quota(&long), Ok((600, "3m".to_owned())));
}

#[test]
fn a_period_must_be_longer_than_the_time_of_the_hits() {
    for (limit, is_possible) in [
        ("unit: 30s, requests_per_unit: 100", true),
        ("unit: 29s, requests_per_unit: 100", false),
        ("unit: second, requests_per_unit: 100, algorithm: gcra", false),
        ("unit: second, requests_per_unit: 100, algorithm: gcra, burst: 1700", true),
        ("unit: second, requests_per_unit: 100, algorithm: gcra, burst: 1600", false),
        ("unit: minute, requests_per_unit: 100, algorithm: sliding_window", true),
    ] {
        let text = limited(&format!(
            "{{{limit}, lease: {{size: 50, ttl: 1s, rlqs: {{ttl: 15s, size: 10%}}}}}}"
        ));
        if is_possible {
            assert!(load_all(&[&text]).is_ok(), "{limit}");
        } else {
            let help = "use `algorithm: gcra` with a `burst`";
            refused(&[&text], &["hits for 15s do not fit the period", help]);
        }
    }
}

#[test]
fn invalid_times_and_sizes_are_errors_with_what_is_allowed() {
    for ttl in ["6s", "301s", "7500ms", "x"] {
        let invalid = format!("invalid rlqs ttl `{ttl}`");
        let text = lent("").replace("15s", ttl);
        refused(&[&text], &[&invalid, "expected whole seconds from 7s to 5m"]);
    }
    refused(&[&lent("").replace("10%", "0%")], &["invalid rlqs size `0%`"]);
    refused(&["domain: d\nrlqs: { unsupported: maybe }\n"], &["maybe", "deny"]);
}

#[test]
fn the_answer_to_what_is_not_supported_is_of_the_domain_and_of_the_version() {
    let deny = policies(&lent(""));
    assert_eq!(deny.find("d").unwrap().unsupported_quota(), UnsupportedQuota::Deny);
    let allow =
        policies(&lent("").replace("domain: d\n", "domain: d\nrlqs: { unsupported: allow }\n"));
    assert_eq!(allow.find("d").unwrap().unsupported_quota(), UnsupportedQuota::Allow);
    let without = lent("").replace(", rlqs: {ttl: 15s, size: 10%}", "");
    let versions =
        [deny.version(), allow.version(), policies(&without).version()].map(str::to_owned);
    assert!(versions[0] != versions[1] && versions[0] != versions[2], "{versions:?}");
}

const TREE: &str = "
domain: d
descriptors:
  - key: b
    descriptors: [{ key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }]
  - key: a
    value: x
    descriptors: [{ key: b, rate_limit: { unit: minute, requests_per_unit: 2 } }]
  - key: a
    value: y*
    rate_limit: { unit: minute, requests_per_unit: 3 }
    descriptors: [{ key: b, value: only, rate_limit: { unit: minute, requests_per_unit: 4 } }]
  - key: c*
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

fn order(pairs: &str) -> Option<String> {
    let policies = policies(TREE);
    let owned = entries(pairs);
    let found = policies.find("d").unwrap().bucket_entries(&owned)?;
    let text = |entry: &Entry<'_>| {
        format!("{}={}", String::from_utf8_lossy(entry.key), String::from_utf8_lossy(entry.value))
    };
    Some(found.iter().map(text).collect::<Vec<_>>().join(","))
}

#[test]
fn the_pairs_of_a_bucket_are_ordered_by_the_rules() {
    let found = |pairs| order(pairs).unwrap_or_default();
    assert_eq!(found("a=x,b=1"), "a=x,b=1", "exact before a key alone");
    assert_eq!(found("b=1,a=x"), "a=x,b=1", "whatever the order of the pairs");
    assert_eq!(found("b=1,a=z"), "b=1,a=z");
    assert_eq!(found("b=only,a=yes"), "a=yes,b=only", "patterns before a key alone");
    assert_eq!(found("cc=1"), "cc=1");
    assert_eq!(order("a=x"), Some("a=x".to_owned()));
    assert_eq!(order("b=other,a=yes"), None, "no backtracking");
    assert_eq!(order("cc=1,d=2"), None, "all pairs have to match");
    assert_eq!(order("d=2"), None);
}

#[test]
fn a_bucket_has_at_most_sixteen_pairs() {
    let keys: Vec<String> = (10..27).map(|number| format!("k{number}")).collect();
    let open: String = keys.iter().map(|key| format!("{{key: {key}, descriptors: [")).collect();
    let text = format!("domain: d\ndescriptors: [{open}{}]\n", "]}".repeat(keys.len()));
    let policies = policies(&text);
    let pairs: Vec<Entry<'_>> =
        keys.iter().map(|key| Entry { key: key.as_bytes(), value: b"1" }).collect();
    let policy = policies.find("d").unwrap();
    let found = |count| policy.bucket_entries(&pairs[..count]);
    assert_eq!(found(16).as_deref(), Some(&pairs[..16]));
    assert_eq!([found(17), found(0)], [None, None]);
}

proptest! {
    /// A bucket is limited by the rule that the descriptor in its order matches, so both have one
    /// counter.
    #[test]
    fn the_descriptor_of_a_bucket_matches_a_rule_in_its_order(
        values in prop::collection::vec("[xyz]|only|yes", 3),
        keys in prop::sample::subsequence(vec!["a", "b", "cc"], 1..=3).prop_shuffle(),
    ) {
        let policies = policies(TREE);
        let policy = policies.find("d").unwrap();
        let pairs: Vec<_> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
            .collect();
        let Some(order) = policy.bucket_entries(&pairs) else { return Ok(()) };
        let mut keys = KeyBuffer::default();
        prop_assert!(policy.find(&order, &mut keys).is_some());
        let mut reversed = pairs.clone();
        reversed.reverse();
        prop_assert_eq!(policy.bucket_entries(&reversed), Some(order));
    }
}

#[test]
fn quotas_are_explained_with_the_bucket_of_the_descriptor() {
    let of = |text: &str, descriptor: &str| {
        let loaded = load_all(&[text]).unwrap();
        let (text, _) = explain(&loaded.policies, "d", &entries(descriptor));
        text.split_once("rlqs            ").unwrap().1.to_owned()
    };
    insta::assert_snapshot!(of(&lent(""), "k=a"), @r"
        each proxy may hold up to 600 hits, for at most 15s
                        at most the limit in a window; in its last 2s to 3s, proxies hold nothing (--rlqs-guard 2s)
                        the bucket k=a has this counter
        ");
    insta::assert_snapshot!(of(&lent(", algorithm: gcra"), "k=a"), @r"
        each proxy may hold up to 600 hits, for at most 7s
                        at most the limit in any period less 9s (--rlqs-guard 2s); in a full one, the hits that proxies held when it began more
                        the bucket k=a has this counter
        ");
    let refused = of(&lent(", record: [user]"), "k=a");
    assert_eq!(refused, "none: the limit records its callers, which proxies do not report\n");
}

#[test]
fn a_report_lists_what_proxies_can_enforce_and_what_would_help() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 6000, lease: { size: 1%, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }
    descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 0 } }]
  - key: b
    descriptors: [{ key: a, rate_limit: { unit: second, requests_per_unit: 50 } }]
  - key: c
    rate_limit: { algorithm: concurrency, in_flight: 3, hold: { ttl: 1m } }
";
    let loaded = load_all(&[text]).unwrap_or_else(|report| panic!("{report}"));
    let (report, is_good) = loaded.policies.quota_report();
    assert!(!is_good);
    insta::assert_snapshot!(report, @r"
        d: a: up to 600 hits per proxy, for 15s
            note: in the last 2s to 3s of each 1m (5.00%, --rlqs-guard 2s), proxies hold nothing; limits with `algorithm: gcra` or `sliding_window` have no such pause
        d: a > b: all requests are denied
        d: b > a: not supported: the period is too short for reports every 5s
            help: use `algorithm: gcra` with a `burst` of at least 10s of its rate, here 500
        d: c: not supported: the limit has holds, which need a call per request
            help: use the rate limit filter for this limit
        d: a > b and b > a: a bucket with these keys has one of the two limits; see `tollgate explain`
            help: use other keys, or one order of the keys
        ");
}

#[test]
fn a_report_names_limits_that_no_bucket_reaches() {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 6000, lease: { size: 1%, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }";
    let of = |first: &str, second: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n  - {first}\n    {limit}\n  - key: a\n    descriptors:\n      - {second}\n        {limit}\n"
        );
        load_all(&[&text]).unwrap_or_else(|report| panic!("{report}")).policies.quota_report()
    };
    let (report, is_good) = of("key: b", "key: b");
    assert!(!is_good);
    let line = "d: a > b: a bucket with these keys is matched by b first, and then has no limit: all its requests are allowed";
    assert!(report.contains(line), "{report}");
    assert!(!of("key: b\n    value: x", "key: b").1, "some values");
    assert!(of("key: b\n    value: x", "key: b\n        value: y").1, "no value of both");
    assert!(of("key: c", "key: b").1);
}
