//! Look-ups of a counter by its descriptor, and why there is none.

use super::*;

const TEXT: &str = "
domain: d
descriptors:
  - key: plan
    value: free
    descriptors:
      - { key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }
      - { key: host }
  - key: route
    value: /v*
    rate_limit:
      unit: minute
      requests_per_unit: 1
";

/// Returns the path of the rule of a counter, or why there is none.
fn found(set: &PolicySet, domain: &str, pairs: &[(&str, &str)]) -> String {
    let mut keys = KeyBuffer::default();
    match set.counter(domain, &entries(pairs), &mut keys) {
        Ok((rule, _)) => rule.path().to_owned(),
        Err(reason) => reason.to_string(),
    }
}

fn unknown(set: &PolicySet, domain: Option<&str>, path: Option<&str>) -> Option<String> {
    set.unknown(domain, path).map(|reason| reason.to_string())
}

#[test]
fn the_first_entry_without_a_rule_is_named_with_the_rules_at_its_level() {
    let set = policies(TEXT);
    let found = |pairs: &[(&str, &str)]| found(&set, "d", pairs);
    assert_eq!(found(&[("plan", "free"), ("user", "1")]), "plan=free > user");
    assert_eq!(
        found(&[("plan", "gold")]),
        "no rule for this descriptor: no match for `plan=gold` (rules: plan=free, route=/v*)"
    );
    assert_eq!(
        found(&[("plan", "free"), ("agent", "x"), ("user", "1")]),
        "no rule for this descriptor: no match for `agent=x` below `plan=free` (rules: user, host)"
    );
    assert_eq!(
        found(&[("route", "/v1"), ("user", "1")]),
        "no rule for this descriptor: no match for `user=1` below `route=/v*` (rules: none)"
    );
    assert_eq!(
        found(&[]),
        "no rule for this descriptor: no match for an empty descriptor (rules: plan=free, route=/v*)"
    );
}

#[test]
fn a_rule_without_a_limit_has_no_counter_and_those_below_it_are_named() {
    let set = policies(TEXT);
    assert_eq!(
        found(&set, "d", &[("plan", "free")]),
        "rule `plan=free` has no limit (rules below it: user, host)"
    );
    assert_eq!(found(&set, "e", &[]), "no policy for domain `e` (domains: d)");
}

#[test]
fn a_counter_has_the_key_of_requests() {
    let set = policies(TEXT);
    let pairs = [("plan", "free"), ("user", "1")];
    let mut keys = KeyBuffer::default();
    let (_, key) = set.counter("d", &entries(&pairs), &mut keys).unwrap();
    assert_eq!(key.bytes(), hit(&set, &pairs).unwrap().1);
}

#[test]
fn paths_and_domains_are_unknown_with_those_that_there_are() {
    let set = policies(TEXT);
    for path in ["plan=free", "plan=free > user", "plan=free > user (candidate)"] {
        assert_eq!(unknown(&set, Some("d"), Some(path)), None);
        assert_eq!(unknown(&set, None, Some(path)), None);
    }
    assert_eq!([unknown(&set, None, None), unknown(&set, Some("d"), None)], [None, None]);
    for path in ["plan", "plan=free > user2", "plan=free > user(candidate)"] {
        let expected =
            format!("no rule `{path}` (rules with a limit: plan=free > user, route=/v*)");
        assert_eq!(unknown(&set, Some("d"), Some(path)), Some(expected));
    }
    let other = unknown(&set, Some("e"), Some("plan=free"));
    assert_eq!(other.as_deref(), Some("no policy for domain `e` (domains: d)"));
    let both = load_all(&[TEXT, "domain: e\ndescriptors: [{key: other}]\n"]).unwrap().policies;
    assert!(unknown(&both, Some("e"), Some("plan=free > user")).is_some(), "of another domain");
    assert_eq!(unknown(&both, Some("e"), Some("other")), None);
}

#[test]
fn of_many_names_the_first_are_listed_and_the_others_counted() {
    for (count, end) in [(12, "k11)"), (13, "k11, and 1 more)"), (40, "k11, and 28 more)")] {
        let keys: String = (0..count).map(|number| format!("- key: k{number}\n")).collect();
        let set = policies(&format!("domain: d\ndescriptors:\n{keys}"));
        let found = found(&set, "d", &[("x", "1")]);
        assert!(found.contains("(rules: k0, k1, ") && found.ends_with(end), "{found}");
    }
}
