//! Descriptors of requests. The test `inside` of the root package compares them with those of
//! Envoy's rate limit filter.

use super::FakeRequest;
use crate::config::RateLimits;
use crate::filter::descriptors as descriptors_of;
use crate::matcher::Ambiguous;

/// Returns the descriptors of a request by some actions, as text.
fn descriptors(actions: &str, request: &FakeRequest) -> Vec<String> {
    try_descriptors(actions, request).unwrap()
}

/// Returns the same, or that they depend on a setting of Envoy.
fn try_descriptors(actions: &str, request: &FakeRequest) -> Result<Vec<String>, Ambiguous> {
    let limits = format!(r#"{{"rate_limits": [{{"actions": {actions}}}]}}"#);
    let limits = RateLimits::read(limits.as_bytes()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let described = descriptors_of(&limits, request)?;
    let described = described.iter().map(|descriptor| {
        let entries = descriptor.message().entries;
        let entries =
            entries.iter().map(|entry| format!("{}={}", text(&entry.key), text(&entry.value)));
        entries.collect::<Vec<_>>().join(", ")
    });
    Ok(described.collect())
}

#[test]
fn each_action_adds_an_entry_or_leaves_the_descriptor_out() {
    let mut request = FakeRequest::with(&[("a", "1"), ("a", "2")]);
    let none: [&str; 0] = [];
    request.address = Some("192.0.2.1:80".to_owned());
    let metadata = (false, "filter".to_owned(), "plan".to_owned());
    request.metadata.insert(metadata, "gold".to_owned());
    let of = |action: &str| descriptors(action, &request);
    assert_eq!(of(r#"[{"generic_key": {"descriptor_value": "v"}}]"#), ["generic_key=v"]);
    let keyed = r#"[{"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}}]"#;
    assert_eq!(of(keyed), ["k=v"]);
    let header = |name: &str, skip: bool| {
        format!(
            r#"[{{"generic_key": {{"descriptor_value": "v"}}}}, {{"request_headers":
            {{"header_name": "{name}", "descriptor_key": "h", "skip_if_absent": {skip}}}}}]"#
        )
    };
    assert_eq!(of(&header("A", false)), ["generic_key=v, h=1"]);
    assert_eq!(of(&header("b", false)), none);
    assert_eq!(of(&header("b", true)), ["generic_key=v"]);
    assert_eq!(of(r#"[{"remote_address": {}}]"#), ["remote_address=192.0.2.1"]);
    let cluster = r#"[{"destination_cluster": {}}]"#;
    assert_eq!(of(cluster), ["destination_cluster=application"]);
    let plan = |source: &str, rest: &str| {
        format!(
            r#"[{{"metadata": {{"descriptor_key": "m", "source": "{source}",
            "metadata_key": {{"key": "filter", "path": [{{"key": "plan"}}]}}{rest}}}}}]"#
        )
    };
    assert_eq!(of(&plan("DYNAMIC", "")), ["m=gold"]);
    assert_eq!(of(&plan("ROUTE_ENTRY", "")), none);
    assert_eq!(of(&plan("ROUTE_ENTRY", r#", "default_value": "d""#)), ["m=d"]);
    assert_eq!(of(&plan("ROUTE_ENTRY", r#", "skip_if_absent": true"#)), [""]);
}

#[test]
fn header_value_match_compares_values_one_by_one_where_joining_them_changes_nothing() {
    let request = FakeRequest::with(&[("a", "One"), ("a", "two"), ("n", "7"), ("n", "7")]);
    let is_met = |matchers: &str, expected: bool| {
        let action = format!(
            r#"[{{"header_value_match": {{"descriptor_value": "v", "expect_match": {expected},
            "headers": [{matchers}]}}}}]"#
        );
        Some(try_descriptors(&action, &request).ok()? == ["header_match=v"])
    };
    let exact = r#"{"name": "a", "string_match": {"exact": "One"}}"#;
    for (matchers, expected) in [
        (r#"{"name": "A"}"#, Some(true)),
        (r#"{"name": "b"}"#, Some(false)),
        (r#"{"name": "b", "present_match": false}"#, Some(true)),
        (r#"{"name": "a", "present_match": true, "invert_match": true}"#, Some(false)),
        (exact, None),
        (r#"{"name": "a", "string_match": {"exact": "One,two"}}"#, None),
        (r#"{"name": "a", "string_match": {"exact": "One"}, "invert_match": true}"#, None),
        (r#"{"name": "a", "string_match": {"exact": "three"}}"#, Some(false)),
        (r#"{"name": "a", "string_match": {"exact": "three"}, "invert_match": true}"#, Some(true)),
        (r#"{"name": "a", "string_match": {"prefix": "one"}}"#, Some(false)),
        (r#"{"name": "a", "string_match": {"prefix": "one", "ignore_case": true}}"#, Some(true)),
        (r#"{"name": "a", "string_match": {"prefix": "two"}}"#, None),
        (r#"{"name": "a", "string_match": {"suffix": "two"}}"#, Some(true)),
        (r#"{"name": "a", "string_match": {"contains": "tw"}}"#, Some(true)),
        (r#"{"name": "a", "string_match": {"contains": "e,t"}}"#, None),
        (r#"{"name": "b", "string_match": {"exact": "x"}, "invert_match": true}"#, Some(false)),
        (r#"{"name": "n", "range_match": {"start": 7, "end": 8.0}}"#, None),
        (r#"{"name": "n", "range_match": {"start": "1", "end": "7"}}"#, Some(false)),
        (r#"{"name": "a", "range_match": {"end": 8}}"#, Some(false)),
        (&format!(r#"{exact}, {{"name": "b"}}"#), Some(false)),
        (&format!(r#"{{"name": "a"}}, {exact}"#), None),
    ] {
        assert_eq!(is_met(matchers, true), expected, "{matchers}");
        assert_eq!(is_met(matchers, false), expected.map(|is_met| !is_met), "{matchers}");
    }
}

#[test]
fn header_value_match_compares_the_only_value() {
    let request = FakeRequest::with(&[("n", "7")]);
    for (range, expected) in [(r#"{"start": 7, "end": 8}"#, 1), (r#"{"start": 1, "end": 7}"#, 0)] {
        let action = format!(
            r#"[{{"header_value_match": {{"descriptor_value": "v",
            "headers": [{{"name": "n", "range_match": {range}}}]}}}}]"#
        );
        assert_eq!(descriptors(&action, &request).len(), expected, "{range}");
    }
}
