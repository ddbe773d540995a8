//! The Huffman code of strings (RFC 7541 5.2 and Appendix B), of which a server needs the decoder.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their
//! symbols, and continue those of the shorter length. Hence all tables follow from the lengths.

use std::slice::IterMut;

use super::HpackError;

/// Number of symbols: the 256 octets, and EOS.
const SYMBOLS: usize = 257;
/// The symbol that no string may contain.
const EOS: u16 = 256;
/// Length of the longest code, in bits.
const LONGEST: u32 = 30;
/// Number of bits that index the table of short codes. The next longer code has 10.
const SHORT: u32 = 8;

/// Length of the code of each symbol, in bits.
#[rustfmt::skip]
pub(super) const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// A symbol and the length of its code.
#[derive(Clone, Copy, Default)]
struct SymbolCode {
    symbol: u16,
    length: u8,
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct CodeRange {
    /// The first code, left-aligned in 32 bits.
    first: u32,
    /// The last code of this length or shorter, left-aligned in 32 bits and padded with ones.
    last: u32,
    /// Index in `HuffmanTables::symbols` of the symbol that has the first code.
    position: usize,
}

struct HuffmanTables {
    /// Symbols by the next 8 bits, which begin with their code; length 0 if the code is longer.
    short: [SymbolCode; 1 << SHORT],
    /// Ranges of codes, by length.
    rows: [CodeRange; LONGEST as usize + 1],
    /// Symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
}

static TABLES: HuffmanTables = tables();

/// Appends the decoded string to `out`.
///
/// # Errors
/// If the string contains EOS, or does not end with fewer than 8 ones after the last symbol.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let begin = out.len();
    // The shortest code has 5 bits.
    let most = input.len().saturating_mul(8) / 5;
    out.resize(begin.saturating_add(most), 0);
    let mut slots = out.get_mut(begin..).unwrap_or_default().iter_mut();
    let mut bits = BitReader { next: 0, count: 0, rest: input };
    while !bits.rest.is_empty() {
        bits.refill();
        while bits.count >= LONGEST {
            let code = code_of(bits.next);
            put(code, &mut slots)?;
            bits.next = bits.next.wrapping_shl(code.length.into());
            bits.count = bits.count.saturating_sub(code.length.into());
        }
    }
    decode_end(&bits, &mut slots)?;
    let unused = slots.len();
    out.truncate(out.len().saturating_sub(unused));
    Ok(())
}

/// Writes the symbol of a code.
#[inline]
fn put(code: SymbolCode, slots: &mut IterMut<'_, u8>) -> Result<(), HpackError> {
    let symbol = u8::try_from(code.symbol).map_err(|_| HpackError::HuffmanEos)?;
    // A slot is left: each code takes at least 5 bits of the input.
    if let Some(slot) = slots.next() {
        *slot = symbol;
    }
    Ok(())
}

/// Decodes the last symbols and the padding: fewer than [`LONGEST`] bits, all of them in `bits`.
#[inline]
fn decode_end(bits: &BitReader<'_>, slots: &mut IterMut<'_, u8>) -> Result<(), HpackError> {
    // Ones beyond the end, so that the remaining padding looks like the start of EOS.
    let mut next = bits.next | u64::MAX.wrapping_shr(bits.count);
    let mut count = bits.count;
    // Only EOS has a code of ones alone, and that code is too long to occur here.
    while next != u64::MAX {
        let code = code_of(next);
        let length = code.length.into();
        if length > count {
            return Err(HpackError::HuffmanPaddingNotOnes);
        }
        put(code, slots)?;
        next = !(!next).wrapping_shl(length);
        count = count.saturating_sub(length);
    }
    if count < 8 { Ok(()) } else { Err(HpackError::HuffmanPaddingTooLong) }
}

/// A reader of bits, from the highest of each octet.
struct BitReader<'a> {
    /// The next bits, left-aligned.
    next: u64,
    /// Number of valid bits in `next`.
    count: u32,
    /// Octets that are not in `next`.
    rest: &'a [u8],
}

impl BitReader<'_> {
    /// Moves as many whole octets into `next` as fit. The bits of one more octet that fit are there
    /// too; the next call writes the same bits again.
    #[inline]
    fn refill(&mut self) {
        self.next |= first_octets(self.rest).wrapping_shr(self.count);
        let octets = usize::try_from(u64::BITS.saturating_sub(self.count) / 8)
            .unwrap_or(0)
            .min(self.rest.len());
        self.rest = self.rest.get(octets..).unwrap_or_default();
        self.count =
            self.count.saturating_add(u32::try_from(octets).unwrap_or(0).saturating_mul(8));
    }
}

/// Returns the first 8 octets as a big-endian number, padded with zeros if there are fewer.
#[inline]
fn first_octets(octets: &[u8]) -> u64 {
    if let Some(all) = octets.first_chunk::<8>() {
        u64::from_be_bytes(*all)
    } else if let (Some(first), Some(last)) = (octets.first_chunk::<4>(), octets.last_chunk::<4>())
    {
        // The halves overlap if there are fewer than 8 octets; both have the same bits there.
        let [first, last] = [first, last].map(|half| u64::from(u32::from_be_bytes(*half)));
        let bits = u32::try_from(octets.len()).unwrap_or(0).saturating_mul(8);
        first.wrapping_shl(32) | last.wrapping_shl(u64::BITS.saturating_sub(bits))
    } else {
        let [a, b, c] = match *octets {
            [a, b, c, ..] => [a, b, c],
            [a, b] => [a, b, 0],
            [a] => [a, 0, 0],
            [] => [0; 3],
        };
        u64::from_be_bytes([a, b, c, 0, 0, 0, 0, 0])
    }
}

/// Returns the code at the start of `bits`. All bits begin with some code.
#[inline]
fn code_of(bits: u64) -> SymbolCode {
    let [first, b, c, d, ..] = bits.to_be_bytes();
    match TABLES.short.get(usize::from(first)) {
        Some(code) if code.length > 0 => *code,
        _ => long_code_of(u32::from_be_bytes([first, b, c, d])),
    }
}

#[cold]
fn long_code_of(bits: u32) -> SymbolCode {
    for (length, row) in (0..).zip(&TABLES.rows).skip(9) {
        if bits <= row.last {
            let code = bits
                .saturating_sub(row.first)
                .wrapping_shr(32_u32.saturating_sub(u32::from(length)));
            let position = row.position.saturating_add(code as usize);
            let symbol = TABLES.symbols.get(position).copied().unwrap_or(EOS);
            return SymbolCode { symbol, length };
        }
    }
    // Unreachable: the last row ends with 32 ones.
    SymbolCode { symbol: EOS, length: 0 }
}

/// Derives the tables from the lengths.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]
const fn tables() -> HuffmanTables {
    // Evaluated only at compile time: a wrong index or an overflow fails the build.
    let mut short = [SymbolCode { symbol: 0, length: 0 }; 1 << SHORT];
    let mut rows = [CodeRange { first: 0, last: 0, position: 0 }; LONGEST as usize + 1];
    let mut symbols = [0; SYMBOLS];
    // The next code, left-aligned in 32 bits, and the number of symbols that have one.
    let mut code: u64 = 0;
    let mut position = 0;
    let mut length = 1;
    while length <= LONGEST {
        rows[length as usize].first = code as u32;
        rows[length as usize].position = position;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as u32 == length {
                let end = code + (1 << (32 - length));
                symbols[position] = symbol as u16;
                let mut slot = code >> (32 - SHORT);
                while length <= SHORT && slot < end >> (32 - SHORT) {
                    short[slot as usize] =
                        SymbolCode { symbol: symbol as u16, length: length as u8 };
                    slot += 1;
                }
                position += 1;
                code = end;
            }
            symbol += 1;
        }
        rows[length as usize].last = code.saturating_sub(1) as u32;
        length += 1;
    }
    HuffmanTables { short, rows, symbols }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_takes_no_more_memory_than_the_shortest_codes_need() {
        let mut out = Vec::new();
        // Eight times the symbol whose code is five zeros.
        decode(&[0; 5], &mut out).unwrap();
        assert_eq!((out.as_slice(), out.capacity()), (&b"00000000"[..], 8));
    }
}
