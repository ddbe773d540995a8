//! Differential tests against other implementations, in both directions: the crate h2, over whole
//! connections of its client, and, with the feature `python`, Python's hpack, which
//! `tests/run --all` installs.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod h2;
#[cfg(feature = "python")]
mod python;

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{OwnedField, decode};
use super::{Decoder, Encoder};

/// Fields of every response.
const REPEATED: [(&[u8], &[u8]); 3] =
    [(b"content-type", b"application/grpc"), (b"server", b"tollgate"), (b"grpc-status", b"0")];

/// A field as a client may send it.
#[derive(Clone, Debug)]
struct ClientField {
    name: String,
    value: Vec<u8>,
    /// `true` if the field is never indexed.
    is_sensitive: bool,
}

impl ClientField {
    fn field(&self) -> OwnedField {
        (self.name.clone().into(), self.value.clone())
    }
}

/// Generates fields that HTTP permits: a few that repeat, and many that do not.
fn fields() -> impl Strategy<Value = Vec<ClientField>> {
    let frequent =
        &["user-agent", "accept-encoding", "x-a", "x-b", "grpc-timeout", "authorization"][..];
    let names = prop_oneof![
        proptest::sample::select(frequent).prop_map(str::to_owned),
        "x-[a-z0-9-]{0,30}"
    ];
    let values = prop_oneof![
        16 => "[a-c]{0,1}".prop_map(String::into_bytes),
        16 => "([!-~]([ -~]{0,60}[!-~])?)?".prop_map(String::into_bytes),
        8 => vec(any::<u8>(), 0..100).prop_map(visible),
        1 => (any::<u8>(), 1000..9000_usize).prop_map(|(octet, length)| visible(vec![octet; length])),
    ];
    let sent = (names, values, prop::bool::weighted(0.1));
    vec(
        sent.prop_map(|(name, value, is_sensitive)| ClientField { name, value, is_sensitive }),
        0..8,
    )
}

/// Replaces octets that a field value must not contain, or not at its ends.
fn visible(octets: Vec<u8>) -> Vec<u8> {
    octets
        .into_iter()
        .map(|octet| if matches!(octet, 0..0x21 | 0x7f) { b'a' } else { octet })
        .collect()
}

/// Writes a response with these fields. Returns all of its fields.
fn write_response(
    encoder: &mut Encoder,
    fields: &[ClientField],
    block: &mut Vec<u8>,
) -> Vec<OwnedField> {
    encoder.begin(block);
    encoder.field(b":status", b"200", block);
    for field in fields {
        encoder.field(field.name.as_bytes(), &field.value, block);
    }
    for (name, value) in REPEATED {
        encoder.repeated(name, value, block);
    }
    let repeated = REPEATED.map(|(name, value)| (name.to_vec(), value.to_vec()));
    let status = (b":status".to_vec(), b"200".to_vec());
    [status].into_iter().chain(fields.iter().map(ClientField::field)).chain(repeated).collect()
}
