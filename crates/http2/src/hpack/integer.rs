//! The primitives of HPACK: integers with a prefix, and strings (RFC 7541 5.1 and 5.2).

use super::HpackError;

/// Shifts of the continuation octets of an integer. Five octets hold 35 bits, more than any value
/// has.
const SHIFTS: [u32; 5] = [0, 7, 14, 21, 28];
/// Bit of a continuation octet that announces another.
const MORE: u8 = 0x80;
/// Bit that marks a string as Huffman-coded.
const HUFFMAN: u8 = 0x80;
/// Mask of the length in a string's first octet.
const LENGTH: u8 = 0x7f;

/// A reader of one header block.
pub(super) struct BlockReader<'a> {
    rest: &'a [u8],
}

/// A string as encoded in the block.
pub(super) struct StringLiteral<'a> {
    pub(super) is_huffman: bool,
    pub(super) bytes: &'a [u8],
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    /// Returns the next octet without consuming it, or `None` at the end.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Returns the next octet, or `None` at the end.
    #[inline]
    pub(super) fn octet(&mut self) -> Option<u8> {
        let (octet, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*octet)
    }

    /// Reads the rest of an integer whose first octet is `first`; `mask` has the bits of its
    /// prefix.
    ///
    /// # Errors
    /// If it is truncated, exceeds `u32::MAX`, or has more than 5 octets after the first.
    #[inline]
    pub(super) fn integer(&mut self, first: u8, mask: u8) -> Result<usize, HpackError> {
        let prefix = first & mask;
        if prefix < mask { Ok(usize::from(prefix)) } else { self.long_integer(mask) }
    }

    fn long_integer(&mut self, mask: u8) -> Result<usize, HpackError> {
        let mut value = u64::from(mask);
        for shift in SHIFTS {
            let octet = self.octet().ok_or(HpackError::Truncated)?;
            value = value.saturating_add(u64::from(octet & !MORE).wrapping_shl(shift));
            if octet & MORE == 0 {
                let value = u32::try_from(value).map_err(|_| HpackError::IntegerOverflow)?;
                return usize::try_from(value).map_err(|_| HpackError::IntegerOverflow);
            }
        }
        Err(HpackError::IntegerTooLong)
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If it is longer than the rest of the block, or its length is not a valid integer.
    #[inline]
    pub(super) fn text(&mut self) -> Result<StringLiteral<'a>, HpackError> {
        let first = self.octet().ok_or(HpackError::Truncated)?;
        let length = self.integer(first, LENGTH)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
        self.rest = rest;
        Ok(StringLiteral { is_huffman: first & HUFFMAN != 0, bytes })
    }
}

/// Writes an integer whose prefix has the bits of `mask`; `pattern` fills the bits above it.
#[inline]
pub(super) fn write_integer(value: usize, mask: u8, pattern: u8, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(value) if value < mask => out.push(pattern | value),
        Ok(_) | Err(_) => {
            write_long_integer(value.saturating_sub(usize::from(mask)), pattern | mask, out)
        }
    }
}

fn write_long_integer(mut value: usize, first: u8, out: &mut Vec<u8>) {
    out.push(first);
    loop {
        let [low, ..] = value.to_le_bytes();
        value = value.wrapping_shr(7);
        if value == 0 {
            out.push(low & !MORE);
            return;
        }
        out.push(low | MORE);
    }
}

/// Writes a string without Huffman coding: the receiver decodes it faster, and so does a cache.
#[inline]
pub(super) fn write_text(bytes: &[u8], out: &mut Vec<u8>) {
    write_integer(bytes.len(), LENGTH, 0, out);
    out.extend_from_slice(bytes);
}
