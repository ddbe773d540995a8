//! JSON Schemas of messages, from the protocol's descriptor set, for an OpenAPI document.

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::{JsonError, descriptor};

/// Returns the schemas of messages and of all messages within them, by their names. References are
/// to `#/components/schemas/NAME`.
///
/// # Errors
/// The descriptor set has no message of a name.
pub fn schemas(names: &[&'static str]) -> Result<Map<String, Value>, JsonError> {
    let mut schemas = Map::new();
    for name in names {
        add(&descriptor(name)?, &mut schemas);
    }
    Ok(schemas)
}

/// Returns a reference to the schema of a message.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn add(message: &MessageDescriptor, schemas: &mut Map<String, Value>) {
    let name = message.full_name().to_owned();
    if schemas.contains_key(&name) {
        return;
    }
    // Added first, so that a message within itself ends.
    schemas.insert(name.clone(), Value::Null);
    let fields = message.fields();
    let properties: Map<_, _> =
        fields.map(|field| (field.json_name().to_owned(), of_field(&field, schemas))).collect();
    let schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    schemas.insert(name, schema);
}

fn of_field(field: &FieldDescriptor, schemas: &mut Map<String, Value>) -> Value {
    if field.is_map()
        && let Kind::Message(entry) = field.kind()
    {
        let value = of_kind(&entry.map_entry_value_field().kind(), schemas);
        return json!({ "type": "object", "additionalProperties": value });
    }
    let one = of_kind(&field.kind(), schemas);
    if field.is_list() { json!({ "type": "array", "items": one }) } else { one }
}

/// Returns the schema of a value, as proto3 JSON writes and reads it.
fn of_kind(kind: &Kind, schemas: &mut Map<String, Value>) -> Value {
    match kind {
        Kind::Double | Kind::Float => json!({ "type": "number" }),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            json!({ "type": "integer", "format": "int32" })
        }
        Kind::Uint32 | Kind::Fixed32 => {
            json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64 => {
            json!({ "type": ["string", "integer"], "pattern": "^-?[0-9]+$" })
        }
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::String => json!({ "type": "string" }),
        Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        Kind::Enum(words) => json!({ "enum": names_of(words) }),
        Kind::Message(message) => of_message(message, schemas),
    }
}

fn names_of(words: &EnumDescriptor) -> Vec<Value> {
    words.values().map(|word| Value::from(word.name())).collect()
}

/// Returns the schema of a message; those of Google have forms of their own in JSON.
fn of_message(message: &MessageDescriptor, schemas: &mut Map<String, Value>) -> Value {
    match message.full_name() {
        "google.protobuf.Duration" => {
            json!({ "type": "string", "pattern": "^-?[0-9]+([.][0-9]{1,9})?s$" })
        }
        "google.protobuf.Timestamp" => json!({ "type": "string", "format": "date-time" }),
        "google.protobuf.Struct" => json!({ "type": "object" }),
        "google.protobuf.UInt64Value" => {
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]+$" })
        }
        "google.protobuf.UInt32Value" => {
            json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
        }
        "google.protobuf.BoolValue" => json!({ "type": "boolean" }),
        name => {
            add(message, schemas);
            reference(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_have_the_fields_of_the_protocol() {
        let request = "envoy.service.ratelimit.v3.RateLimitRequest";
        let schemas = schemas(&[request]).unwrap();
        let properties = &schemas[request]["properties"];
        assert_eq!(properties["domain"]["type"], "string");
        assert_eq!(properties["hitsAddend"]["maximum"], u32::MAX);
        let descriptor = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
        assert_eq!(properties["descriptors"]["items"], reference(descriptor));
        let fields = &schemas[descriptor]["properties"];
        assert_eq!(fields["hitsAddend"]["type"], json!(["string", "integer"]));
        let unit = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride";
        let words = schemas[unit]["properties"]["unit"]["enum"].as_array().unwrap();
        assert!(words.contains(&json!("MINUTE")), "{words:?}");
        let google = |name: &&String| name.starts_with("google.");
        assert_eq!(schemas.keys().filter(google).count(), 0);
    }

    /// Every type of Google in a message has a form here, and so no schema with its fields.
    #[test]
    fn responses_have_no_schema_of_google() {
        let schemas = schemas(&[
            "envoy.service.ratelimit.v3.RateLimitResponse",
            "tollgate.v1.ReserveRequest",
            "tollgate.v1.ExtendRequest",
            "tollgate.v1.CommitRequest",
            "tollgate.v1.CancelRequest",
        ]);
        let google = |name: &&String| name.starts_with("google.");
        assert_eq!(schemas.unwrap().keys().filter(google).collect::<Vec<_>>(), [""; 0]);
    }
}
