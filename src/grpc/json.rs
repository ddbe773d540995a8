//! Requests and responses as proto3 JSON, based on the protocol's descriptor set, with the same
//! names, numbers and defaults as other implementations.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::Deserializer;
use serde_json::Value;

use super::methods::{MAX_HOLD_MESSAGE, MAX_LEASE_MESSAGE};
use super::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use super::proto::lease::{ExchangeRequest, ExchangeResponse};
use super::proto::{PROTOCOL, RateLimitRequest, RateLimitResponse};
use super::service::HoldCall;
use unique_keys::UniqueKeys;

pub mod schema;
mod unique_keys;

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(PROTOCOL).ok());

/// Reads the descriptor set, which takes some ms, so that no request waits for it.
pub fn prepare() {
    LazyLock::force(&POOL);
}

/// An error in converting a message from or to JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The JSON does not match the message type.
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
    /// The bytes do not decode as the message type.
    #[error("{0}")]
    Message(#[from] prost::DecodeError),
    /// The message is larger than the method permits.
    #[error("the message has {found} bytes, and may have {max}")]
    TooLarge {
        /// Its size, without the syntax of JSON.
        found: usize,
        /// The maximum size.
        max: usize,
    },
    /// The descriptor set has no message type of this name.
    #[error("unknown protobuf message {0}")]
    Unknown(&'static str),
}

/// Encodes a request, given as JSON, as `RateLimitRequest`.
///
/// # Errors
/// If the JSON is not a valid request, such as for an unknown field or a wrong type.
pub fn request(json: Value) -> Result<Vec<u8>, JsonError> {
    read("envoy.service.ratelimit.v3.RateLimitRequest", json)
}

/// Decodes a request.
///
/// # Errors
/// If the JSON is not a valid request: an unknown field, a wrong type.
pub fn request_message(json: Value) -> Result<RateLimitRequest, JsonError> {
    Ok(RateLimitRequest::decode(request(json)?.as_slice())?)
}

/// Encodes a request, given as JSON text, as `RateLimitRequest`.
///
/// # Errors
/// If the text is not JSON or not a valid request; with line and column.
pub fn request_text(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    message_of_text("envoy.service.ratelimit.v3.RateLimitRequest", text)
}

/// A method of `HoldService`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol's words")]
pub enum HoldPath {
    Reserve,
    Extend,
    Commit,
    Cancel,
}

/// Reads a request of `HoldService`, given as JSON text.
///
/// # Errors
/// If the text is not JSON or not a valid request; with line and column.
pub fn hold_text(path: HoldPath, text: &[u8]) -> Result<HoldCall, JsonError> {
    fn call<M: Message + Default + Into<HoldCall>>(
        name: &'static str,
        text: &[u8],
    ) -> Result<HoldCall, JsonError> {
        decode::<M>(name, text, MAX_HOLD_MESSAGE).map(Into::into)
    }
    match path {
        HoldPath::Reserve => call::<ReserveRequest>("tollgate.v1.ReserveRequest", text),
        HoldPath::Extend => call::<ExtendRequest>("tollgate.v1.ExtendRequest", text),
        HoldPath::Commit => call::<CommitRequest>("tollgate.v1.CommitRequest", text),
        HoldPath::Cancel => call::<CancelRequest>("tollgate.v1.CancelRequest", text),
    }
}

/// Reads a request of `LeaseService`, given as JSON text.
///
/// # Errors
/// If the text is not JSON or not a valid request; with line and column.
pub fn exchange_text(text: &[u8]) -> Result<ExchangeRequest, JsonError> {
    decode("tollgate.v1.ExchangeRequest", text, MAX_LEASE_MESSAGE)
}

/// Reads a message, given as JSON text. `name` is that of its type, and `max` its maximum size as
/// over gRPC, in bytes.
fn decode<M: Message + Default>(
    name: &'static str,
    text: &[u8],
    max: usize,
) -> Result<M, JsonError> {
    let message = message_of_text(name, text)?;
    let found = message.len();
    if found > max { Err(JsonError::TooLarge { found, max }) } else { Ok(M::decode(&*message)?) }
}

fn message_of_text(name: &'static str, text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let request = read(name, &mut json)?;
    json.end()?;
    serde_json::from_slice::<UniqueKeys>(text)?;
    Ok(request)
}

fn read<'de, D: Deserializer<'de, Error = serde_json::Error>>(
    name: &'static str,
    json: D,
) -> Result<Vec<u8>, JsonError> {
    let message = DynamicMessage::deserialize(descriptor(name)?, json)?;
    Ok(message.encode_to_vec())
}

/// Converts an encoded `RateLimitResponse` to JSON.
///
/// # Errors
/// None for a response of this service.
pub fn response(message: &[u8]) -> Result<Value, JsonError> {
    write("envoy.service.ratelimit.v3.RateLimitResponse", message)
}

/// Converts a response of `LeaseService` to JSON.
///
/// # Errors
/// None for a response of this service.
pub fn exchange_response(response: &ExchangeResponse) -> Result<Value, JsonError> {
    write("tollgate.v1.ExchangeResponse", &response.encode_to_vec())
}

fn write(name: &'static str, message: &[u8]) -> Result<Value, JsonError> {
    let message = DynamicMessage::decode(descriptor(name)?, message)?;
    Ok(message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())?)
}

/// Converts a response to JSON.
///
/// # Errors
/// None for a response of this service.
pub fn response_of(message: &RateLimitResponse) -> Result<Value, JsonError> {
    response(&message.encode_to_vec())
}

fn descriptor(name: &'static str) -> Result<MessageDescriptor, JsonError> {
    POOL.as_ref().and_then(|pool| pool.get_message_by_name(name)).ok_or(JsonError::Unknown(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_reads_as_every_other_implementation_writes_it() {
        let text = json!({"domain": "d", "descriptors": [
            {"entries": [{"key": "k", "value": "ü"}], "hitsAddend": "0", "isNegativeHits": true},
            {"entries": [], "hits_addend": 7, "limit": {"unit": "HOUR", "requestsPerUnit": 3, "unitMultiplier": 2}},
        ]});
        let request = RateLimitRequest::decode(request(text).unwrap().as_slice()).unwrap();
        assert_eq!(request.descriptors[0].entries[0].value, "ü".as_bytes());
        assert_eq!(
            (request.descriptors[0].hits_addend, request.descriptors[0].is_negative_hits),
            (Some(0), true)
        );
        let limit = request.descriptors[1].limit.as_ref().unwrap();
        assert_eq!((limit.unit, limit.requests_per_unit, limit.unit_multiplier), (3, 3, Some(2)));
    }

    #[test]
    fn a_key_twice_is_an_error_that_names_it() {
        for text in [
            r#"{"domain": "a", "domain": "b"}"#,
            r#"{"domain": "a", "descriptors": [{"hitsAddend": 1, "hits_addend": 2}]}"#,
        ] {
            let error = request_text(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("twice"), "{error}");
        }
        let once = r#"{"domain": "a", "descriptors": [{"entries": [{"key": "a"}, {"key": "b"}]}]}"#;
        assert!(request_text(once.as_bytes()).is_ok());
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let error = request(json!({"domian": "d"})).unwrap_err().to_string();
        assert!(error.contains("domian"), "{error}");
    }
}
