//! Encoding of a descriptor's status in one pass.
//!
//! prost computes the length of a nested message before it writes it, and so reads its fields
//! several times. Here the length is written after the fields. The bytes are those of prost; a
//! property test verifies this.

use prost_types::Duration;

use super::proto::rate_limit_response::{DescriptorStatus, RateLimit};

/// Wire types of protobuf.
const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

/// Appends `status` as field `field` of a message. Its quota is left out, since it is never set.
pub(super) fn append(field: u8, status: &DescriptorStatus, bytes: &mut Vec<u8>) {
    append_message(field, bytes, |bytes| {
        append_integer(1, signed(status.code), bytes);
        if let Some(limit) = &status.current_limit {
            append_message(2, bytes, |bytes| append_rate_limit(limit, bytes));
        }
        append_integer(3, status.limit_remaining.into(), bytes);
        if let Some(Duration { seconds, nanos }) = status.duration_until_reset {
            append_message(4, bytes, |bytes| {
                append_integer(1, seconds.cast_unsigned(), bytes);
                append_integer(2, signed(nanos), bytes);
            });
        }
    });
}

fn append_rate_limit(limit: &RateLimit, bytes: &mut Vec<u8>) {
    append_integer(1, limit.requests_per_unit.into(), bytes);
    append_integer(2, signed(limit.unit), bytes);
    if !limit.name.is_empty() {
        append_message(3, bytes, |bytes| bytes.extend_from_slice(limit.name.as_bytes()));
    }
    if let Some(multiplier) = limit.unit_multiplier {
        append_message(4, bytes, |bytes| append_integer(1, multiplier.into(), bytes));
    }
}

/// Appends a length-delimited field; `write` appends its content.
#[inline]
fn append_message(field: u8, bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    bytes.extend_from_slice(&[tag(field, LENGTH_DELIMITED), 0]);
    let start = bytes.len();
    write(bytes);
    let length = bytes.len() - start;
    let last = start - 1;
    match (u8::try_from(length), bytes.get_mut(last)) {
        (Ok(length @ ..0x80), Some(written)) => *written = length,
        // A long name.
        _ => {
            let mut encoded = Vec::new();
            append_varint(u64::try_from(length).unwrap_or(u64::MAX), &mut encoded);
            bytes.splice(last..start, encoded);
        }
    }
}

/// Appends a field with a number, unless it is 0, the default.
#[inline]
fn append_integer(field: u8, value: u64, bytes: &mut Vec<u8>) {
    if value != 0 {
        bytes.push(tag(field, VARINT));
        append_varint(value, bytes);
    }
}

/// Appends a number, seven bits per byte, lowest first.
#[inline]
fn append_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        bytes.push(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    bytes.push(low);
}

/// Returns the tag of a field. The fields of this message have numbers below 16, so it is one byte.
const fn tag(field: u8, wire_type: u8) -> u8 {
    (field << 3) | wire_type
}

/// Returns the number that protobuf sends for a signed one of 32 bits.
fn signed(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding;

    use super::*;

    /// Generates any number, and often 0, which is not encoded.
    fn or_zero<T: Arbitrary + Clone + Default + 'static>() -> impl Strategy<Value = T> {
        prop_oneof![Just(T::default()), any::<T>()]
    }

    fn limits() -> impl Strategy<Value = RateLimit> {
        let name = prop_oneof![Just(String::new()), "[a-z]{1,20}", "é{60,70}", "x{16300,16400}"];
        (name, or_zero::<u32>(), or_zero::<i32>(), prop::option::of(or_zero::<u32>())).prop_map(
            |(name, requests_per_unit, unit, unit_multiplier)| RateLimit {
                name,
                requests_per_unit,
                unit,
                unit_multiplier,
            },
        )
    }

    proptest! {
        #[test]
        fn bytes_equal_those_of_prost(
            code in prop_oneof![0..3, any::<i32>()],
            current_limit in prop::option::of(limits()),
            limit_remaining in prop_oneof![0u32..300, any::<u32>()],
            time in prop::option::of((or_zero::<i64>(), or_zero::<i32>())),
        ) {
            let duration_until_reset = time.map(|(seconds, nanos)| Duration { seconds, nanos });
            let status = DescriptorStatus {
                code,
                current_limit,
                limit_remaining,
                duration_until_reset,
                quota: None,
            };
            let mut expected = b"before".to_vec();
            encoding::message::encode(2, &status, &mut expected);
            let mut bytes = b"before".to_vec();
            append(2, &status, &mut bytes);
            prop_assert_eq!(bytes, expected);
        }
    }
}
