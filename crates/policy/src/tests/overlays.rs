//! Options from the metadata of a rule and from overlays, and their precedence.

use tollgate_core::algorithm::OnStoreError;

use super::{hit, load_all, policies, refused};
use crate::{Imposes, PolicySet};

const POLICY: &str = "domain: d
descriptors:
- key: route
  value: route/1/*
  descriptors:
  - key: user
    rate_limit: {name: per user, unit: minute, requests_per_unit: 60}
- key: plan
  value: free
  rate_limit: {unit: minute, requests_per_unit: 60, algorithm: sliding_window}
- key: open
  rate_limit: {unlimited: true}
";

fn overlaid(policy: &str, overlay: &str) -> PolicySet {
    load_all(&[policy, overlay]).unwrap_or_else(|report| panic!("{report}")).policies
}

/// Returns the algorithms of all rules, with their paths.
fn algorithms(set: &PolicySet) -> Vec<(&str, &'static str)> {
    set.rules()
        .map(|rule| (rule.path(), rule.algorithm()))
        .filter(|(_, algorithm)| !algorithm.is_empty())
        .collect()
}

fn burst(set: &PolicySet) -> u32 {
    let Some(Imposes::Limit(limit)) = set.rules().next().map(|rule| rule.imposes()) else {
        panic!("no limit");
    };
    limit.burst().unwrap()
}

#[test]
fn an_overlay_speaks_of_the_rules_that_its_patterns_match() {
    let cases = [
        ("{}", "gcra"),
        ("{domain: 'd*'}", "gcra"),
        ("{domain: other}", "fixed_window"),
        ("{key: user}", "gcra"),
        ("{key: route}", "fixed_window"),
        ("{value: '*'}", "gcra"),
        ("{value: ''}", "gcra"),
        ("{value: '?*'}", "fixed_window"),
        ("{name: 'per *'}", "gcra"),
        ("{name: ''}", "fixed_window"),
        ("{domain: d, key: us*, name: per user}", "gcra"),
    ];
    for (patterns, algorithm) in cases {
        let overlay = format!("overlay:\n- <<: {patterns}\n  rate_limit: {{algorithm: gcra}}\n");
        let set = overlaid(POLICY, &overlay);
        let expected = [("route=route/1/* > user", algorithm), ("plan=free", "sliding_window")];
        assert_eq!(algorithms(&set), expected, "{patterns}");
    }
}

#[test]
fn the_rule_has_precedence_then_its_metadata_then_overlays_in_order_then_defaults() {
    let policy = |own: &str, metadata: &str| {
        format!(
            "domain: d\ndefaults: {{algorithm: gcra, burst: 5}}\ndescriptors:\n- key: k\n  metadata: {metadata}\n  \
             rate_limit: {{unit: minute, requests_per_unit: 60{own}}}\n"
        )
    };
    let overlay = "overlay:\n- key: k\n  rate_limit: {max_debt: 9}\n- domain: d\n  rate_limit: {burst: 4}\n- rate_limit: {burst: 6}\n";
    let metadata = "{tollgate: {rate_limit: {burst: 3}}, other: 1}";
    assert_eq!(burst(&overlaid(&policy(", burst: 2", metadata), overlay)), 2);
    assert_eq!(burst(&overlaid(&policy("", metadata), overlay)), 3);
    assert_eq!(burst(&overlaid(&policy("", "{}"), overlay)), 4);
    assert_eq!(burst(&policies(&policy("", "{}"))), 5);
}

#[test]
fn switches_are_layered_too() {
    let rule = |own: &str| format!("domain: d\ndescriptors:\n- {{key: k, value: 'a*'{own}}}\n");
    let overlay = "overlay:\n- key: k\n  shadow_mode: true\n  share_threshold: true\n  detailed_metric: true\n";
    let switches = |set: &PolicySet| {
        let rule = set.rules().next().unwrap();
        (rule.shadow_mode(), rule.modes.share_threshold, rule.detailed_metric(), rule.quota_mode())
    };
    assert_eq!(switches(&overlaid(&rule(""), overlay)), (true, true, true, false));
    let off =
        ", shadow_mode: false, metadata: {tollgate: {detailed_metric: false, quota_mode: true}}";
    assert_eq!(switches(&overlaid(&rule(off), overlay)), (false, true, false, true));
}

#[test]
fn counters_that_an_overlay_shares_are_shared() {
    let rule = "domain: d\ndescriptors:\n- {key: k, value: 'a*', rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let key = |set: &PolicySet, value: &str| hit(set, &[("k", value)]).unwrap().1;
    let alone = policies(rule);
    assert_ne!(key(&alone, "a1"), key(&alone, "a2"));
    let shared = overlaid(rule, "overlay: [{key: k, share_threshold: true}]");
    assert_eq!(key(&shared, "a1"), key(&shared, "a2"));
}

#[test]
fn options_that_do_not_apply_are_ignored_unless_set_beside_the_algorithm() {
    let overlay = "overlay: [{rate_limit: {burst: 2, share: 1}}]";
    refused(&[POLICY, overlay], &["unknown key `share`"]);
    overlaid(
        POLICY,
        "overlay:\n- rate_limit: {burst: 2, on_store_error: allow}\n- share_threshold: true\n",
    );

    let beside = "overlay:\n- key: user\n  rate_limit: {algorithm: sliding_log, burst: 2}\n";
    refused(&[POLICY, beside], &["b.yaml:3:47", "`burst` does not apply to sliding_log"]);
}

#[test]
fn an_invalid_option_is_reported_once_at_its_position_in_the_overlay() {
    let rules = "domain: d\ndescriptors:\n- &r {key: a, rate_limit: {unit: minute, requests_per_unit: 6}}\n- {key: b, rate_limit: {unit: minute, requests_per_unit: 6}}\n";
    let report =
        load_all(&[rules, "overlay:\n- rate_limit: {algorithm: gcra, burst: 0}\n"]).unwrap_err();
    assert_eq!(report.len(), 1, "{report}");
    assert!(report.to_string().contains("--> b.yaml:2:40"), "{report}");
}

#[test]
fn metadata_has_to_apply_and_is_not_given_to_callers() {
    let rule = |words: &str| {
        format!(
            "domain: d\ndescriptors:\n- key: k\n  metadata:\n    tollgate: {words}\n  rate_limit: {{unit: day, requests_per_unit: 9}}\n"
        )
    };
    let set = policies(&rule("{rate_limit: {on_store_error: allow}}"));
    let kept = set.rules().next().unwrap();
    assert_eq!(kept.metadata(), None);
    assert!(
        matches!(kept.imposes(), Imposes::Limit(limit) if limit.on_store_error() == OnStoreError::Allow)
    );

    let burst = rule("{rate_limit: {burst: 5}}");
    refused(&[&burst], &["`burst` does not apply to fixed_window"]);
    let misplaced = rule("{algorithm: gcra}");
    refused(&[&misplaced], &["a.yaml:5:16", "is not allowed in `metadata.tollgate`"]);
}

#[test]
fn amounts_are_not_for_overlays_and_a_document_with_words_of_both_is_a_policy() {
    let overlay = "overlay:\n- key: user\n  rate_limit: {unit: day}\n";
    refused(&[POLICY, overlay], &["`unit` is not allowed in `rate_limit` of an overlay"]);
    let both = "domain: d\noverlay: []\n";
    refused(&[both], &["`overlay` is not allowed at the top level of a policy"]);
}

#[test]
fn an_entry_that_no_rule_matches_is_warned_of() {
    let overlay =
        "overlay:\n- key: usr\n  rate_limit: {algorithm: gcra}\n- key: user\n  shadow_mode: true\n";
    let loaded = load_all(&[POLICY, overlay]).unwrap();
    insta::assert_snapshot!(loaded.warnings.to_string(), @r"
    warning: overlay item matches no rule
     --> b.yaml:2:3
      |
    2 | - key: usr
      |   ^^^
      = `domain`, `key`, `value` and `name` match the rule itself, as written
    ");
}

#[test]
fn an_empty_entry_is_a_warning() {
    let loaded = load_all(&[POLICY, "overlay:\n- key: user\n"]).unwrap();
    let warnings = loaded.warnings.to_string();
    assert!(warnings.contains("b.yaml:2:3") && warnings.contains("sets no options"), "{warnings}");
}
