//! Hashed values.

use tollgate_core::algorithm::time::Micros;
use tollgate_core::descriptor::HashKey;

use super::*;
use crate::Rule;
use crate::diff::{CounterEffect, diff};

const TEXT: &str = "\
domain: d
descriptors:
- key: mail
  rate_limit: { unit: day, requests_per_unit: 1, hash_values: true }
- key: plan
  rate_limit: { unit: day, requests_per_unit: 1 }
- key: named
  detailed_metric: true
  rate_limit: { unit: day, requests_per_unit: 1, hash_values: true }
";

fn by(key: &str, text: &str) -> PolicySet {
    let options =
        CompileOptions { hash_key: Some(HashKey::of(key.as_bytes())), ..CompileOptions::default() };
    let source = Source { name: "a.yaml".to_owned(), text: text.to_owned() };
    load(&[source], &options).unwrap_or_else(|report| panic!("{report}")).policies
}

#[test]
fn counters_have_no_values_in_them_and_other_keys_make_others() {
    let set = by("one", TEXT);
    let other = by("two", TEXT);
    let key = |set: &PolicySet, pair| hit(set, &[pair]).unwrap().1;
    let readable =
        |key: &[u8], value: &str| key.windows(value.len()).any(|bytes| bytes == value.as_bytes());
    let ann = key(&set, ("mail", "ann@example.com"));
    assert!(!readable(&ann, "ann") && ann.len() == 27, "{ann:?}");
    assert!(readable(&key(&set, ("plan", "free")), "free"), "what says nothing of it is as ever");
    assert_eq!(ann, key(&by("one", TEXT), ("mail", "ann@example.com")));
    assert_ne!(ann, key(&other, ("mail", "ann@example.com")));
    assert_ne!(ann, key(&set, ("mail", "bob@example.com")));
}

#[test]
fn limits_that_requests_bring_along_are_hashed_where_any_limit_of_the_domain_is() {
    let key = |set: &PolicySet| {
        let mut keys = KeyBuffer::default();
        keys.begin();
        keys.push(b"ann");
        let range = set.find("d").unwrap().finish_override(&mut keys, Micros::from_secs(1));
        keys.key("d", &range).bytes().to_vec()
    };
    let plain =
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    assert!(!key(&by("one", TEXT)).windows(3).any(|bytes| bytes == b"ann"));
    assert!(key(&by("one", plain)).windows(3).any(|bytes| bytes == b"ann"));
}

#[test]
fn shown_values_and_names_of_series_are_hashed() {
    let set = by("one", TEXT);
    let policy = set.find("d").unwrap();
    let rule = |key| policy.find(&entries(&[(key, "ann")]), &mut KeyBuffer::default()).unwrap();
    let shown = policy.shown(rule("mail"), b"ann").into_owned();
    assert!(shown.starts_with(b"hash-") && shown.len() == 25, "{shown:?}");
    assert_eq!(&*policy.shown(rule("plan"), b"ann"), b"ann");
    let mut text = Vec::new();
    policy
        .write_metric_key(&entries(&[("named", "ann")]), &mut |part| text.extend_from_slice(part));
    assert_eq!(text, [b"d.named_", &*shown].concat());
}

#[test]
fn defaults_say_it_for_all_limits_of_a_file() {
    let set = by(
        "one",
        "domain: d\ndefaults: {hash_values: true}\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    assert!(set.rules().all(Rule::hashes_values));
}

#[test]
fn limits_that_are_tried_out_hash_where_they_or_those_beside_them_do() {
    let key = |text: &str| {
        let set = by("one", &format!("domain: d\ndescriptors: [{text}]\n"));
        let policy = set.find("d").unwrap();
        let mut keys = KeyBuffer::default();
        let candidate =
            policy.find(&entries(&[("k", "ann")]), &mut keys).unwrap().candidate().unwrap();
        let range = policy.finish(candidate, &mut keys, None);
        keys.key("d", &range).bytes().to_vec()
    };
    let readable = |text: &str| key(text).windows(3).any(|bytes| bytes == b"ann");
    let limit = "unit: day, requests_per_unit: 1";
    assert!(readable(&format!("{{key: k, rate_limit: {{{limit}}}, candidate: {{{limit}}}}}")));
    for text in [
        format!("{{key: k, rate_limit: {{{limit}, hash_values: true}}, candidate: {{{limit}}}}}"),
        format!("{{key: k, rate_limit: {{{limit}}}, candidate: {{{limit}, hash_values: true}}}}"),
        format!("{{key: k, candidate: {{{limit}, hash_values: true}}}}"),
        format!(
            "{{key: k, candidate: {{{limit}}}, metadata: {{tollgate: {{rate_limit: {{hash_values: true}}}}}}}}"
        ),
    ] {
        assert!(!readable(&text), "{text}");
    }
}

#[test]
fn another_hash_key_starts_new_counters_and_the_diff_reports_it() {
    let was = by("one", &TEXT.replace("hash_values: true", "hash_values: false"));
    let changes = diff(&was, &by("one", TEXT));
    let reported: Vec<_> =
        changes.iter().map(|change| (change.rule.as_str(), change.counters)).collect();
    assert_eq!(reported, [("mail", CounterEffect::Anew), ("named", CounterEffect::Anew)]);
    assert_eq!(changes[0].details[0].what, "hash_values");
    assert_ne!(was.version(), by("one", TEXT).version());
}

#[test]
fn without_a_key_there_are_no_hashes() {
    refused(&[TEXT], &["`hash_values` requires a hash key", "--hash-key-file", "a.yaml:4:"]);
    let off = TEXT.replace("hash_values: true", "hash_values: false");
    assert!(load_all(&[&off]).is_ok());
}
