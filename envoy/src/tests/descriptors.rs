//! Descriptors of requests. The test `inside` of the root package compares them with those of
//! Envoy's rate limit filter.

use super::FakeRequest;
use crate::config::RateLimits;
use crate::filter::descriptors as descriptors_of;

/// Returns the descriptors of a request by some actions, as text.
fn descriptors(actions: &str, request: &FakeRequest) -> Vec<String> {
    let limits = format!(r#"{{"rate_limits": [{{"actions": {actions}}}]}}"#);
    let limits = RateLimits::read(limits.as_bytes()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let described = descriptors_of(&limits, request);
    described
        .iter()
        .map(|descriptor| {
            let entries = descriptor.message().entries;
            let entries =
                entries.iter().map(|entry| format!("{}={}", text(&entry.key), text(&entry.value)));
            entries.collect::<Vec<_>>().join(", ")
        })
        .collect()
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
fn header_value_match_compares_joined_values() {
    let request = FakeRequest::with(&[("a", "One"), ("a", "two"), ("n", "7")]);
    let is_met = |matcher: &str, expected: bool| {
        let action = format!(
            r#"[{{"header_value_match": {{"descriptor_value": "v", "expect_match": {expected},
            "headers": [{matcher}]}}}}]"#
        );
        descriptors(&action, &request) == ["header_match=v"]
    };
    for (matcher, expected) in [
        (r#"{"name": "A"}"#, true),
        (r#"{"name": "b"}"#, false),
        (r#"{"name": "b", "present_match": false}"#, true),
        (r#"{"name": "a", "present_match": true, "invert_match": true}"#, false),
        (r#"{"name": "a", "string_match": {"exact": "One,two"}}"#, true),
        (r#"{"name": "a", "string_match": {"exact": "One"}}"#, false),
        (r#"{"name": "a", "string_match": {"prefix": "one"}}"#, false),
        (r#"{"name": "a", "string_match": {"prefix": "one", "ignore_case": true}}"#, true),
        (r#"{"name": "a", "string_match": {"suffix": "two"}}"#, true),
        (r#"{"name": "a", "string_match": {"contains": "e,t"}}"#, true),
        (r#"{"name": "a", "string_match": {"contains": "e,t"}, "invert_match": true}"#, false),
        (r#"{"name": "b", "string_match": {"exact": "x"}, "invert_match": true}"#, false),
        (r#"{"name": "n", "range_match": {"start": 7, "end": 8.0}}"#, true),
        (r#"{"name": "n", "range_match": {"start": "1", "end": "7"}}"#, false),
        (r#"{"name": "a", "range_match": {"end": 8}}"#, false),
    ] {
        assert_eq!(is_met(matcher, true), expected, "{matcher}");
        assert_eq!(is_met(matcher, false), !expected, "{matcher}");
    }
}
