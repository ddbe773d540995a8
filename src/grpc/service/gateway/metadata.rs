//! The metadata of a gateway, read in its encoding: a tree of it would take fifty times as much
//! memory.

use prost::encoding::{self, DecodeContext, WireType, skip_field};

use super::check_request::{each, pair};
use crate::grpc::request::{RequestError, bytes_of, fields};
use crate::policy::requests::{MAX_VALUE_BYTES, Unmappable, ValueTree, scalar};

/// Field of a message of Envoy's metadata with the filters, and of a struct with its members.
const ENTRIES: u32 = 1;

/// Encoded `envoy.config.core.v3.Metadata`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedMetadata<'a>(pub(super) &'a [u8]);

impl ValueTree for EncodedMetadata<'_> {
    fn text_at(&self, keys: &[String]) -> Result<Option<Vec<u8>>, Unmappable> {
        let value = value_at(self.0, keys).map_err(|_| Unmappable::Metadata)?;
        match value {
            Some(Leaf::Text(text)) if text.len() > MAX_VALUE_BYTES => Err(Unmappable::TooLong),
            Some(Leaf::Text(text)) => Ok(Some(text.to_vec())),
            Some(Leaf::Number(number)) => Ok(scalar(&number_of(number))),
            Some(Leaf::Bool(truth)) => Ok(scalar(&truth.into())),
            None => Ok(None),
        }
    }
}

/// A value that is neither a list nor a struct.
#[derive(Clone, Copy, Debug)]
enum Leaf<'a> {
    Text(&'a [u8]),
    Number(f64),
    Bool(bool),
}

/// A `google.protobuf.Value`.
#[derive(Clone, Copy, Debug)]
enum Member<'a> {
    Leaf(Leaf<'a>),
    Struct(&'a [u8]),
}

/// Returns the value at a path: the name of a filter, then keys of structs.
fn value_at<'a>(metadata: &'a [u8], keys: &[String]) -> Result<Option<Leaf<'a>>, RequestError> {
    let Some((filter, keys)) = keys.split_first() else { return Ok(None) };
    let mut found = entry(metadata, filter)?.map(Member::Struct);
    for key in keys {
        let Some(Member::Struct(members)) = found else { return Ok(None) };
        found = entry(members, key)?.map(member).transpose()?.flatten();
    }
    Ok(match found {
        Some(Member::Leaf(leaf)) => Some(leaf),
        Some(Member::Struct(_)) | None => None,
    })
}

/// Returns the value of a key of a map; the last, if there are several.
fn entry<'a>(message: &'a [u8], key: &str) -> Result<Option<&'a [u8]>, RequestError> {
    let mut found = None;
    each(message, |tag, field| {
        if tag == ENTRIES {
            let (name, value) = pair(field)?;
            if name == key.as_bytes() {
                found = Some(value);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the contents of a `google.protobuf.Value`; `None` for a list or null.
fn member(message: &[u8]) -> Result<Option<Member<'_>>, RequestError> {
    let mut found = None;
    fields(message, |tag, wire_type, rest| {
        let context = DecodeContext::default();
        match (tag, wire_type) {
            (2, WireType::SixtyFourBit) => {
                let mut number = 0.0;
                encoding::double::merge(wire_type, &mut number, rest, context)?;
                found = Some(Member::Leaf(Leaf::Number(number)));
            }
            (3, _) => found = Some(Member::Leaf(Leaf::Text(bytes_of(wire_type, rest)?))),
            (4, WireType::Varint) => {
                let mut truth = false;
                encoding::bool::merge(wire_type, &mut truth, rest, context)?;
                found = Some(Member::Leaf(Leaf::Bool(truth)));
            }
            (5, _) => found = Some(Member::Struct(bytes_of(wire_type, rest)?)),
            _ => {
                skip_field(wire_type, tag, rest, context)?;
                if matches!(tag, 1 | 6) {
                    found = None;
                }
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns a number as JSON. A whole one has no fraction, since it becomes a text.
fn number_of(number: f64) -> serde_json::Value {
    /// Largest number below which every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        format!("{number:.0}").parse::<i64>().map_or(serde_json::Value::Null, Into::into)
    } else {
        number.into()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};

    use super::*;
    use crate::grpc::proto::envoy::config::core::v3::Metadata;

    fn struct_of(members: impl IntoIterator<Item = (&'static str, Kind)>) -> Struct {
        let member = |(key, kind): (&str, Kind)| (key.to_owned(), Value { kind: Some(kind) });
        Struct { fields: members.into_iter().map(member).collect() }
    }

    fn text_at(metadata: &[u8], path: &str) -> Result<Option<String>, Unmappable> {
        let keys: Vec<String> = path.split('/').map(str::to_owned).collect();
        let text = EncodedMetadata(metadata).text_at(&keys)?;
        Ok(text.map(|text| String::from_utf8(text).unwrap()))
    }

    #[test]
    fn values_are_found_by_their_paths_and_anything_else_is_none() {
        let claims = struct_of([
            ("sub", Kind::StringValue("ann".to_owned())),
            ("level", Kind::NumberValue(-3.0)),
            ("ratio", Kind::NumberValue(0.5)),
            ("admin", Kind::BoolValue(true)),
            ("nothing", Kind::NullValue(0)),
            ("groups", Kind::ListValue(ListValue::default())),
        ]);
        let filter = struct_of([("claims", Kind::StructValue(claims))]);
        let filter_metadata = [("jwt".to_owned(), filter)].into();
        let metadata = Metadata { filter_metadata, ..Metadata::default() }.encode_to_vec();
        for (path, expected) in [
            ("jwt/claims/sub", Some("ann")),
            ("jwt/claims/level", Some("-3")),
            ("jwt/claims/ratio", Some("0.5")),
            ("jwt/claims/admin", Some("true")),
            ("jwt/claims/nothing", None),
            ("jwt/claims/groups", None),
            ("jwt/claims/other", None),
            ("jwt/claims/sub/more", None),
            ("jwt/claims", None),
            ("jwt", None),
            ("other/claims/sub", None),
        ] {
            assert_eq!(text_at(&metadata, path), Ok(expected.map(str::to_owned)), "{path}");
        }
        let cut = &metadata[..metadata.len() - 1];
        assert_eq!(text_at(cut, "jwt/claims/sub"), Err(Unmappable::Metadata));
    }

    #[test]
    fn a_value_beyond_the_bound_is_refused() {
        for (length, is_refused) in [(MAX_VALUE_BYTES, false), (MAX_VALUE_BYTES + 1, true)] {
            let filter = struct_of([("sub", Kind::StringValue("x".repeat(length)))]);
            let filter_metadata = [("jwt".to_owned(), filter)].into();
            let metadata = Metadata { filter_metadata, ..Metadata::default() }.encode_to_vec();
            let found = text_at(&metadata, "jwt/sub");
            assert_eq!(found == Err(Unmappable::TooLong), is_refused, "{length}");
        }
    }
}
