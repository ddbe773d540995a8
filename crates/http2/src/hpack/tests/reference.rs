//! A second decoder, as simple as RFC 7541 permits, as the reference for the fast one.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::{huffman, static_table};
use super::{HpackError, OwnedField, size, write_integer};

/// A decoder that allocates every string and reads Huffman codes bit by bit.
pub(super) struct ReferenceDecoder {
    /// Entries from newest to oldest.
    pub(super) entries: Vec<OwnedField>,
    pub(super) limit: usize,
    pub(super) max: usize,
    /// Size updates of the last block.
    pub(super) updates: Vec<usize>,
}

/// Remaining bytes of a block.
type Rest<'a> = &'a [u8];

impl ReferenceDecoder {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: Vec::new(), limit: max.min(4096), max, updates: Vec::new() }
    }

    /// Returns the fields of a block, and `true` if nothing in it concerned the table.
    pub(super) fn decode(
        &mut self,
        mut rest: Rest<'_>,
    ) -> Result<(Vec<OwnedField>, bool), HpackError> {
        let mut fields = Vec::new();
        let mut has_insertion = false;
        self.updates.clear();
        while let Some(first) = rest.first().copied() {
            match first {
                0x80.. => fields.push(self.at(integer(&mut rest, 7)?)?),
                0x20..=0x3f if !fields.is_empty() => return Err(HpackError::LateSizeUpdate),
                0x20..=0x3f if self.updates.len() == 2 => {
                    return Err(HpackError::TooManySizeUpdates);
                }
                0x20..=0x3f => {
                    let limit = integer(&mut rest, 5)?;
                    if limit > self.max {
                        return Err(HpackError::SizeUpdateTooLarge);
                    }
                    self.updates.push(limit);
                    self.limit = limit;
                    self.evict(limit);
                }
                0x40..=0x7f => {
                    has_insertion = true;
                    let field = self.literal(&mut rest, 6)?;
                    fields.push(field.clone());
                    self.insert(field);
                }
                0x00..=0x1f => fields.push(self.literal(&mut rest, 4)?),
            }
        }
        Ok((fields, !has_insertion && self.updates.is_empty()))
    }

    fn literal(&self, rest: &mut Rest<'_>, prefix: u32) -> Result<OwnedField, HpackError> {
        let name = match integer(rest, prefix)? {
            0 => string(rest)?,
            index => self.at(index)?.0,
        };
        Ok((name, string(rest)?))
    }

    fn at(&self, index: usize) -> Result<OwnedField, HpackError> {
        match (index, static_table::get(index)) {
            (0, _) => Err(HpackError::IndexZero),
            (_, Some((name, value))) => Ok((name.to_vec(), value.to_vec())),
            (_, None) => self.entries.get(index - 62).cloned().ok_or(HpackError::IndexOutOfRange),
        }
    }

    fn insert(&mut self, field: OwnedField) {
        let bytes = size(std::slice::from_ref(&field));
        self.evict(self.limit.saturating_sub(bytes));
        if bytes <= self.limit {
            self.entries.insert(0, field);
        }
    }

    fn evict(&mut self, limit: usize) {
        while size(&self.entries) > limit {
            self.entries.pop();
        }
    }
}

fn octet(rest: &mut Rest<'_>) -> Result<u8, HpackError> {
    let (first, after) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = after;
    Ok(*first)
}

fn integer(rest: &mut Rest<'_>, prefix: u32) -> Result<usize, HpackError> {
    let mask = (1 << prefix) - 1;
    let mut value = u64::from(octet(rest)?) & mask;
    if value < mask {
        return Ok(usize::try_from(value).unwrap());
    }
    for position in 0..5 {
        let octet = octet(rest)?;
        value += u64::from(octet % 128) * 128_u64.pow(position);
        if octet < 128 {
            return u32::try_from(value)
                .map(|value| value.try_into().unwrap())
                .map_err(|_| HpackError::IntegerOverflow);
        }
    }
    Err(HpackError::IntegerTooLong)
}

fn string(rest: &mut Rest<'_>) -> Result<Vec<u8>, HpackError> {
    let is_huffman = rest.first().is_some_and(|first| *first >= 0x80);
    let length = integer(rest, 7)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = after;
    if is_huffman { huffman_decode(bytes) } else { Ok(bytes.to_vec()) }
}

/// The code of each symbol in binary digits: consecutive numbers, by length and then by symbol.
static CODES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut symbols: Vec<usize> = (0..huffman::LENGTHS.len()).collect();
    symbols.sort_by_key(|symbol| huffman::LENGTHS[*symbol]);
    let mut codes = vec![String::new(); symbols.len()];
    let mut code: u64 = 0;
    let mut last_length = 0;
    for symbol in symbols {
        let length = usize::from(huffman::LENGTHS[symbol]);
        code <<= length - last_length;
        codes[symbol] = format!("{code:0length$b}");
        code += 1;
        last_length = length;
    }
    codes
});

static SYMBOLS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    CODES.iter().enumerate().map(|(symbol, code)| (code.as_str(), symbol)).collect()
});

/// Decodes a Huffman-coded string bit by bit.
pub(super) fn huffman_decode(bytes: &[u8]) -> Result<Vec<u8>, HpackError> {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut decoded = Vec::new();
    let mut begin = 0;
    for end in 1..=bits.len() {
        if let Some(symbol) = SYMBOLS.get(&bits[begin..end]) {
            decoded.push(u8::try_from(*symbol).map_err(|_| HpackError::HuffmanEos)?);
            begin = end;
        }
    }
    let padding = &bits[begin..];
    match padding.len() {
        _ if padding.contains('0') => Err(HpackError::HuffmanPaddingNotOnes),
        0..8 => Ok(decoded),
        _ => Err(HpackError::HuffmanPaddingTooLong),
    }
}

/// Encodes a string as Huffman codes with the shortest padding.
pub(super) fn huffman_encode(bytes: &[u8]) -> Vec<u8> {
    let mut bits: String = bytes.iter().map(|byte| CODES[usize::from(*byte)].as_str()).collect();
    bits.push_str(&"1".repeat(bits.len().next_multiple_of(8) - bits.len()));
    let octets: Vec<char> = bits.chars().collect();
    octets
        .chunks(8)
        .map(|octet| u8::from_str_radix(&String::from_iter(octet), 2).unwrap())
        .collect()
}

/// One representation of a block, valid or not.
#[derive(Clone, Debug)]
pub(super) enum Representation {
    Indexed(usize),
    Literal { kind: LiteralKind, name: LiteralName, value: LiteralText },
    SizeUpdate(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LiteralKind {
    Inserted,
    NotInserted,
    NeverIndexed,
}

#[derive(Clone, Debug)]
pub(super) enum LiteralName {
    Index(usize),
    New(LiteralText),
}

#[derive(Clone, Debug)]
pub(super) struct LiteralText {
    pub(super) bytes: Vec<u8>,
    pub(super) is_huffman: bool,
}

impl Representation {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Indexed(index) => write_integer(*index, 0x7f, 0x80, out),
            Self::SizeUpdate(limit) => write_integer(*limit, 0x1f, 0x20, out),
            Self::Literal { kind, name, value } => {
                let (mask, pattern) = match kind {
                    LiteralKind::Inserted => (0x3f, 0x40),
                    LiteralKind::NotInserted => (0x0f, 0x00),
                    LiteralKind::NeverIndexed => (0x0f, 0x10),
                };
                match name {
                    LiteralName::Index(index) => write_integer(*index, mask, pattern, out),
                    LiteralName::New(name) => {
                        out.push(pattern);
                        name.write(out);
                    }
                }
                value.write(out);
            }
        }
    }
}

impl LiteralText {
    fn write(&self, out: &mut Vec<u8>) {
        let (bytes, pattern) = if self.is_huffman {
            (&huffman_encode(&self.bytes), 0x80)
        } else {
            (&self.bytes, 0x00)
        };
        write_integer(bytes.len(), 0x7f, pattern, out);
        out.extend_from_slice(bytes);
    }
}
