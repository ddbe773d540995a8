#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod appendix_c;
mod decoding;
mod encoding;
mod laws;
#[cfg(feature = "python")]
mod python;
mod reference;

use super::integer::write_integer;
use super::{Decoder, ENTRY_OVERHEAD, Encoder, HpackError, huffman};

/// A name and a value.
pub(super) type OwnedField = (Vec<u8>, Vec<u8>);

pub(super) fn field(name: &str, value: &str) -> OwnedField {
    (name.into(), value.into())
}

/// Parses hexadecimal digits, which spaces may separate.
pub(super) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Returns the fields of a block, and `true` if it left the table unchanged.
pub(super) fn decode(
    decoder: &mut Decoder,
    block: &[u8],
) -> Result<(Vec<OwnedField>, bool), HpackError> {
    let mut fields = Vec::new();
    let is_unchanged =
        decoder.decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok((fields, is_unchanged))
}

/// Returns the entries of the dynamic table, newest first, read through references to them.
fn entries(decoder: &mut Decoder) -> Vec<OwnedField> {
    let mut entries = Vec::new();
    for index in 62.. {
        match decode(decoder, &indexed(index)) {
            Ok((field, true)) => entries.extend(field),
            result => {
                assert_eq!(result, Err(HpackError::IndexOutOfRange));
                break;
            }
        }
    }
    entries
}

/// Returns the size of entries, as RFC 7541 4.1 counts.
fn size(entries: &[OwnedField]) -> usize {
    entries.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum()
}

fn indexed(index: usize) -> Vec<u8> {
    let mut block = Vec::new();
    write_integer(index, 0x7f, 0x80, &mut block);
    block
}

/// Returns the block that an encoder writes for one field that it does not insert.
fn block_of(encoder: &mut Encoder, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.field(name, value, &mut block);
    block
}
