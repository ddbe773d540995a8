//! `dynamic_metadata`: the request, what its limits have left and the metadata of the matched
//! rules, for the proxy's access log and later filters.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::Value as Json;

use super::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::proto::rate_limit_response::rate_limit::Unit;
use super::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::limiter::{Decision, StatusKind};

/// Maximum nesting depth of mappings and lists in a rule's metadata; deeper ones become null. A
/// level takes up to three messages, and protobuf parsers stop at a depth of 100: the proxy would
/// treat the whole response as an error and let the request pass.
const MAX_LEVELS: usize = 24;

/// Returns the metadata of a response, in the fields of envoyproxy/ratelimit, and `remaining`.
pub(super) fn of(message: &RateLimitRequest, decision: &Decision<'_>) -> Struct {
    let mut all = Struct::default();
    all.fields.insert("domain".to_owned(), text(message.domain.clone()));
    all.fields.insert("descriptors".to_owned(), list(message.descriptors.iter().map(descriptor)));
    if message.hits_addend != 0 {
        all.fields.insert("hitsAddend".to_owned(), number(message.hits_addend.into()));
    }
    if let Some(remaining) = remaining(decision) {
        all.fields.insert("remaining".to_owned(), number(remaining.into()));
    }
    let metadata = of_rules(decision);
    if !metadata.fields.is_empty() {
        all.fields.insert("metadata".to_owned(), structure(metadata));
    }
    all
}

/// Returns the fewest remaining hits of the limits that can deny the request.
fn remaining(decision: &Decision<'_>) -> Option<u32> {
    let statuses = decision.statuses().iter();
    let denying = statuses.filter(|status| !status.rule().is_some_and(|rule| rule.shadow_mode()));
    let fewest = denying.filter_map(|status| status.remaining()).min()?;
    Some(u32::try_from(fewest).unwrap_or(u32::MAX))
}

/// Merges the metadata of the rules of all descriptors within their limits, in order.
fn of_rules(decision: &Decision<'_>) -> Struct {
    let mut merged = Struct::default();
    let passed = decision.statuses().iter().filter(|status| match status.kind() {
        StatusKind::Allowed | StatusKind::ShadowDenied | StatusKind::PresumedAllowed => true,
        StatusKind::NoLimit
        | StatusKind::Unlimited
        | StatusKind::Denied
        | StatusKind::PresumedDenied => false,
    });
    for metadata in passed.filter_map(|status| status.rule()?.metadata()?.as_object()) {
        merge(&mut merged, metadata, MAX_LEVELS);
    }
    merged
}

/// Merges mappings recursively; for any other value, the first one wins.
fn merge(into: &mut Struct, metadata: &serde_json::Map<String, Json>, levels: usize) {
    let below = levels.saturating_sub(1);
    for (name, value) in metadata {
        match (into.fields.get_mut(name).map(|known| &mut known.kind), value) {
            (Some(Some(Kind::StructValue(known))), Json::Object(more)) => merge(known, more, below),
            (Some(_), _) => {}
            (None, _) => {
                into.fields.insert(name.clone(), value_of(value, below));
            }
        }
    }
}

fn value_of(json: &Json, levels: usize) -> Value {
    match json {
        Json::Array(_) | Json::Object(_) if levels == 0 => value_of(&Json::Null, 0),
        Json::Null => Value { kind: Some(Kind::NullValue(0)) },
        Json::Bool(truth) => boolean(*truth),
        // Protobuf's `Struct` has only doubles.
        Json::Number(any) => number(any.as_f64().unwrap_or_default()),
        Json::String(any) => text(any.clone()),
        Json::Array(items) => {
            list(items.iter().map(|item| value_of(item, levels.saturating_sub(1))))
        }
        Json::Object(fields) => {
            let mut all = Struct::default();
            merge(&mut all, fields, levels);
            structure(all)
        }
    }
}

fn descriptor(message: &RateLimitDescriptor) -> Value {
    let mut fields = Struct::default();
    fields.fields.insert("entries".to_owned(), list(message.entries.iter().map(entry)));
    if let Some(limit) = &message.limit {
        fields.fields.insert("limit".to_owned(), text(limit_text(limit)));
    }
    if let Some(hits) = message.hits_addend {
        // Larger hits are invalid and fail before a decision.
        fields.fields.insert(
            "hitsAddend".to_owned(),
            number(u32::try_from(hits).unwrap_or(u32::MAX).into()),
        );
    }
    if message.is_negative_hits {
        fields.fields.insert("isNegativeHits".to_owned(), boolean(true));
    }
    structure(fields)
}

/// Formats `key=value`. Bytes that are not UTF-8 are replaced, since they would make the whole
/// response invalid.
fn entry(entry: &Entry) -> Value {
    text(format!(
        "{}={}",
        String::from_utf8_lossy(&entry.key),
        String::from_utf8_lossy(&entry.value)
    ))
}

/// Formats the limit override of a request as protobuf text: fields separated by one space, without
/// those that are 0.
fn limit_text(limit: &RateLimitOverride) -> String {
    let unit = || match Unit::try_from(limit.unit) {
        Ok(unit) => format!("unit:{}", unit.as_str_name()),
        Err(_) => format!("unit:{}", limit.unit),
    };
    let fields = [
        (limit.requests_per_unit != 0)
            .then(|| format!("requests_per_unit:{}", limit.requests_per_unit)),
        (limit.unit != 0).then(unit),
        limit.unit_multiplier.map(|multiplier| format!("unit_multiplier:{{value:{multiplier}}}")),
    ];
    fields.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn text(text: String) -> Value {
    Value { kind: Some(Kind::StringValue(text)) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn boolean(truth: bool) -> Value {
    Value { kind: Some(Kind::BoolValue(truth)) }
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values: values.collect() })) }
}

fn structure(fields: Struct) -> Value {
    Value { kind: Some(Kind::StructValue(fields)) }
}

#[cfg(test)]
mod tests {
    use super::super::proto::RateLimitResponse;
    use super::*;
    use serde_json::json;

    /// Converts back to JSON, to compare.
    fn shown(value: &Value) -> Json {
        match value.kind.as_ref().unwrap() {
            Kind::NullValue(_) => Json::Null,
            Kind::NumberValue(number) => json!(number),
            Kind::StringValue(text) => json!(text),
            Kind::BoolValue(truth) => json!(truth),
            Kind::ListValue(list) => list.values.iter().map(shown).collect(),
            Kind::StructValue(all) => {
                all.fields.iter().map(|(name, value)| (name.clone(), shown(value))).collect()
            }
        }
    }

    #[test]
    fn mappings_are_merged_and_of_anything_else_the_first_stays() {
        let mut merged = Struct::default();
        for metadata in [
            json!({"team": "a", "cost": {"unit": 1, "deep": {"x": [1, 2]}}}),
            json!({"team": "b", "cost": {"unit": 2, "more": null, "deep": {"x": 3, "y": true}}, "new": 0.5}),
            json!({"cost": 7}),
        ] {
            merge(&mut merged, metadata.as_object().unwrap(), MAX_LEVELS);
        }
        let expected = json!({
            "team": "a", "new": 0.5, "cost": {"unit": 1.0, "more": null, "deep": {"x": [1.0, 2.0], "y": true}},
        });
        assert_eq!(shown(&structure(merged)), expected);
    }

    #[test]
    fn metadata_beyond_the_nesting_limit_of_protobuf_is_omitted() {
        use prost::Message as _;
        let deep = |mut json: Json, wrap: fn(Json) -> Json| {
            (0..120).for_each(|_| json = wrap(std::mem::take(&mut json)));
            json
        };
        for json in
            [deep(json!(1), |inner| json!({"a": inner})), deep(json!(1), |inner| json!([inner]))]
        {
            let mut all = Struct::default();
            merge(&mut all, json!({"deep": json}).as_object().unwrap(), MAX_LEVELS);
            let mut outer = Struct::default();
            outer.fields.insert("metadata".to_owned(), structure(all));
            let answer = RateLimitResponse { dynamic_metadata: Some(outer), ..Default::default() };
            assert!(RateLimitResponse::decode(answer.encode_to_vec().as_slice()).is_ok());
        }
    }

    #[test]
    fn a_descriptor_of_any_bytes_has_metadata() {
        let entry = Entry { key: "k".into(), value: vec![0xff, b'a'].into() };
        let limit = RateLimitOverride { requests_per_unit: 3, unit: 3, unit_multiplier: Some(2) };
        let message = RateLimitDescriptor {
            entries: vec![entry],
            limit: Some(limit),
            hits_addend: Some(0),
            is_negative_hits: false,
        };
        let expected = json!({
            "entries": ["k=\u{fffd}a"], "limit": "requests_per_unit:3 unit:HOUR unit_multiplier:{value:2}", "hitsAddend": 0.0,
        });
        assert_eq!(shown(&descriptor(&message)), expected);
    }
}
