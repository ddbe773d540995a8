//! Names of rules in statistics.

use super::{entries, policies};

const POLICY: &str = "
domain: d
descriptors:
- {key: plain, value: v, rate_limit: &l {unit: day, requests_per_unit: 1}, descriptors: [{key: sub, rate_limit: *l}]}
- {key: any, value_to_metric: true, rate_limit: *l, descriptors: [{key: sub, value: s, rate_limit: *l}]}
- {key: wild, value: 'x*', value_to_metric: true, rate_limit: *l}
- {key: share, value: 'f/*', share_threshold: true, value_to_metric: true, rate_limit: *l, descriptors: [{key: sub, detailed_metric: true, rate_limit: *l}]}
- {key: detail, detailed_metric: true, rate_limit: *l, descriptors: [{key: sub, rate_limit: *l}]}
- {key: own, value: 'o*', rate_limit: *l}
";

/// Returns the name that a request gives to the rule it matches; empty without one.
fn of_request(pairs: &[(&str, &str)]) -> String {
    let set = policies(POLICY);
    let mut text = Vec::new();
    set.find("d")
        .unwrap()
        .write_metric_key(&entries(pairs), &mut |part| text.extend_from_slice(part));
    String::from_utf8(text).unwrap()
}

#[test]
fn the_name_of_a_rule_is_its_path() {
    let set = policies(POLICY);
    let keys = set.metric_keys();
    let keys: Vec<_> = keys.iter().map(|key| (key.text.as_str(), key.is_by_request)).collect();
    let expected = [
        ("d.plain_v", false),
        ("d.plain_v.sub", false),
        ("d.any", true),
        ("d.any.sub_s", true),
        ("d.wild_x*", true),
        ("d.share_f/*", false),
        ("d.share_f/*.sub", true),
        ("d.detail", true),
        ("d.detail.sub", false),
        ("d.own_o*", false),
    ];
    assert_eq!(keys, expected);
}

#[test]
fn value_to_metric_names_the_values_of_its_level() {
    assert_eq!(of_request(&[("any", "1")]), "d.any_1");
    assert_eq!(of_request(&[("any", "")]), "d.any");
    assert_eq!(of_request(&[("any", "1"), ("sub", "s")]), "d.any_1.sub_s");
    assert_eq!(of_request(&[("wild", "xyz")]), "d.wild_xyz");
}

#[test]
fn share_threshold_names_the_pattern() {
    assert_eq!(of_request(&[("share", "f/1")]), "d.share_f/*");
    assert_eq!(of_request(&[("share", "f/1"), ("sub", "2")]), "d.share_f/*.sub_2");
    assert_eq!(of_request(&[("share", "f/1"), ("sub", "")]), "d.share_f/*.sub");
}

#[test]
fn detailed_metric_names_all_values_of_the_request() {
    assert_eq!(of_request(&[("detail", "1")]), "d.detail_1");
    assert_eq!(of_request(&[("detail", "")]), "d.detail_");
    assert_eq!(
        of_request(&[("detail", "1"), ("sub", "2")]),
        "d.detail.sub",
        "of the rule that is hit only"
    );
}

#[test]
fn a_limit_of_the_request_is_named_by_its_entries() {
    let mut text = Vec::new();
    let pairs = entries(&[("a", "1"), ("b", "")]);
    let set = policies("domain: d\ndescriptors: []\n");
    set.find("d").unwrap().write_override_key(&pairs, &mut |part| text.extend_from_slice(part));
    assert_eq!(String::from_utf8(text).unwrap(), "d.a_1.b");
}
