//! Nothing that stands in a file makes the compiler panic or run away.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{errors, load_all};

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

/// Reads, and shows what came of it.
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
    let begun = Instant::now();
    assert!(errors(&[&text]).contains("with every alias written out"));
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn an_alias_inside_of_what_it_names_is_refused() {
    assert!(errors(&["domain: d\ndescriptors: &a [*a]\n"]).contains("an alias inside of what it names"));
    assert!(errors(&["domain: d\ndescriptors: *gone\n"]).contains("not YAML"));
}

#[test]
fn deep_nesting_is_refused() {
    assert!(errors(&[&format!("domain: {}", "[".repeat(100_000))]).contains("error"));
    let doubling: String = (1..200).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    assert!(errors(&[&format!("domain: d\na0: &a0 x\n{doubling}")]).contains("nested more than 128"));
}
