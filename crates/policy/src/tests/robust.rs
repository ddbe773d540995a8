//! Tests that no content of a file makes the compiler panic or exceed its time and memory bounds.

use std::time::Duration;

use proptest::prelude::*;

use super::super::{CompileOptions, load};
use super::{cpu_time, errors, load_all, refused, sources};

const VALID: &str = "# A policy with a bit of everything
domain: d
defaults: { algorithm: gcra, charge: admitted, time_zone: Europe/Berlin }
descriptors:
- key: k
  value: a*
  share_threshold: true
  shadow_mode: yes
  rate_limit: &base
    unit: minute
    requests_per_unit: 0x10
    name: \"n\"
    replaces: [{name: m}]
- key: 'k'
  metadata: {a: [1, 2.5, {b: ~}]}
  rate_limit: {<<: *base, name: m, replaces: [], burst: 7, lease: {size: 1%, ttl: 100ms}, override: inherit}
  descriptors:
  - key: é
    rate_limit:
      algorithm: sliding_window
      buckets: 10
      estimate: weighted
      windows:
      - { unit: 10s, requests_per_unit: 1 }
      - { unit: 15m, requests_per_unit: 2 }
  - key: day
    rate_limit: {algorithm: fixed_window, unit: month, requests_per_unit: 3, calendar: true, record: [a, b]}
---
domain: |
  e
descriptors: []
";

/// Loads a policy, and formats its warnings or errors.
fn try_load(text: &str) {
    match load_all(&[text]) {
        Ok(loaded) => drop(loaded.warnings.to_string()),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
}

#[test]
fn the_policy_that_is_mutated_is_valid() {
    assert!(load_all(&[VALID]).is_ok(), "{}", errors(&[VALID]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        try_load(&text);
    }

    #[test]
    fn any_text_of_yaml_letters_is_read_or_refused(text in "([-:?,{}\\[\\]&*!|>'\"%@`#\\n <~ak1.\t]|domain: |descriptors:|- key: ){0,40}") {
        try_load(&text);
        try_load(&format!("domain: d\ndescriptors:\n{text}"));
    }

    #[test]
    fn a_valid_policy_with_pieces_cut_out_and_put_in_is_read_or_refused(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[-:,{}\\[\\]&*'\"\\n a0%é]{0,6}"), 1..5)
    ) {
        let mut text = VALID.to_owned();
        for (at, cut, put) in edits {
            let start = text.floor_char_boundary(at.index(text.len()));
            let end = text.floor_char_boundary(start.saturating_add(cut)).max(start);
            text.replace_range(start..end, &put);
        }
        try_load(&text);
    }
}

#[test]
fn an_alias_bomb_ends_early() {
    let mut text = "domain: d\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{}", n - 1);
        text.push_str(&format!("a{n}: &a{n} [{}]\n", [before.as_str(); 10].join(", ")));
    }
    let begun = cpu_time();
    refused(&[&text], &["aliases add more than"]);
    assert!(cpu_time() - begun < Duration::from_secs(2));
}

#[test]
fn an_alias_inside_its_own_anchor_is_rejected() {
    refused(&["domain: d\ndescriptors: &a [*a]\n"], &["alias to a node that contains it"]);
    refused(&["domain: d\ndescriptors: *gone\n"], &["invalid YAML"]);
}

#[test]
fn deep_nesting_is_refused() {
    refused(&[&format!("domain: {}", "[".repeat(100_000))], &["error"]);
    let doubling: String = (1..200).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    refused(&[&format!("domain: d\na0: &a0 x\n{doubling}")], &["nested more than 128"]);
}

#[test]
fn rules_made_of_aliases_are_refused() {
    // 25 KB of text that would expand to 819,000 rules.
    let level = |n: usize, what: &str| format!("- {{key: l{n}, descriptors: &l{n} [{}]}}\n", what);
    let leaves: String = (0..800).map(|n| format!("{{key: a{n}}}, ")).collect();
    let mut text = format!("domain: d\ndescriptors:\n{}", level(0, &leaves));
    for n in 1..1_000 {
        text.push_str(&format!("- {{key: m{n}, descriptors: *l0}}\n"));
    }
    let begun = cpu_time();
    refused(&[&text], &["aliases add more than"]);
    assert!(cpu_time() - begun < Duration::from_secs(2));
}

#[test]
fn a_base_of_options_for_ten_thousand_rules_is_read() {
    let limit = "{unit: minute, requests_per_unit: 10, algorithm: gcra, burst: 7}";
    let mut text = format!("domain: d\ndescriptors:\n- {{key: base, rate_limit: &base {limit}}}\n");
    for n in 0..10_000 {
        text.push_str(&format!("- {{key: k, value: v{n}, rate_limit: *base}}\n"));
    }
    assert!(load_all(&[&text]).is_ok());
}

#[test]
fn policies_that_take_too_much_memory_are_refused_before_they_are_compiled() {
    // A key of 50 KB in the path of each of 10,000 rules: 200 KB of text, 1 GB of paths.
    let below: String = (0..10_000).map(|n| format!("{{key: a{n}}}, ")).collect();
    let text = format!(
        "domain: d\ndescriptors:\n- {{key: {}, descriptors: [{below}]}}\n",
        "k".repeat(50_000)
    );
    let options = CompileOptions { memory_max: Some(256 << 20), ..CompileOptions::default() };
    let report = load(&sources(&[&text]), &options).unwrap_err().to_string();
    assert!(report.contains("policies need more than 268435456 bytes of memory"), "{report}");
    assert!(!report.contains("active and candidate"), "{report}");
    let options = CompileOptions { memory_max: Some(100_000), ..CompileOptions::default() };
    let rules = |count: usize| {
        let rules: String = (0..count).map(|n| format!("- {{key: a{n}}}\n")).collect();
        load(&sources(&[&format!("domain: d\ndescriptors:\n{rules}")]), &options).is_ok()
    };
    assert!(rules(30) && !rules(40));
    // The tree of a text takes memory before its rules are known: 6 KB of one rule.
    let text = format!("domain: d\ndescriptors:\n- {{key: a}} # {}\n", "x".repeat(6_000));
    assert!(load(&sources(&[&text]), &options).is_err());
}

#[test]
fn a_test_file_is_named_as_one() {
    let text = "policies: [a.yaml]\ntests:\n- test: t\n  steps: []\n";
    refused(&[text], &["a test file: `tollgate test FILE` runs it"]);
}

#[test]
fn a_report_shows_nothing_of_a_file_that_is_no_policy() {
    for secret in [
        "root:$6$hunter2:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
        "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}\n",
        "[hunter2, {",
        "# hunter2\n",
        "hunter2",
    ] {
        refused(&[secret], &["error: file contains no policy", "a.yaml"]);
        assert!(!errors(&[secret]).contains("hunter2"), "{secret}");
    }
}
