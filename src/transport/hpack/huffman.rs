//! The Huffman code of strings (RFC 7541 5.2 and Appendix B), of which a server needs the decoder.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their
//! symbols, and continue those of the shorter length. Hence all tables follow from the lengths.

use std::slice::IterMut;

use super::HpackError;

/// Symbols: the 256 octets, and EOS.
const SYMBOLS: usize = 257;
/// The symbol that no string may contain.
const EOS: u16 = 256;
/// Bits of the longest code.
const LONGEST: u32 = 30;
/// Bits that the table of short codes is indexed by. The next longer code has 10.
const SHORT: u32 = 8;

/// Bits of the code of each symbol.
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
    /// The first code, in the upper bits of 32.
    first: u32,
    /// The last code of this length or a shorter one, in the upper bits of 32, and ones below.
    last: u32,
    /// Position in `HuffmanTables::symbols` of the symbol that has the first code.
    position: usize,
}

struct HuffmanTables {
    /// By the next 8 bits: the symbol whose code they begin with; length 0 if the code is longer.
    short: [SymbolCode; 1 << SHORT],
    /// By the length of a code.
    rows: [CodeRange; LONGEST as usize + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
}

static TABLES: HuffmanTables = tables();

/// Appends the decoded string to `out`.
///
/// # Errors
/// If the string has EOS in it, or does not end with less than 8 ones after the last symbol.
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
    // There is a slot: each code has 5 bits or more of the input.
    if let Some(slot) = slots.next() {
        *slot = symbol;
    }
    Ok(())
}

/// Decodes the last symbols and the padding: less than [`LONGEST`] bits, all of them in `bits`.
#[inline]
fn decode_end(bits: &BitReader<'_>, slots: &mut IterMut<'_, u8>) -> Result<(), HpackError> {
    // Ones beyond the end, so that what remains of the padding looks like the beginning of EOS.
    let mut next = bits.next | u64::MAX.wrapping_shr(bits.count);
    let mut count = bits.count;
    // No symbol but EOS has a code of ones only, and that is too long to be here.
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

/// Input that is decoded from the highest bit on.
struct BitReader<'a> {
    /// The next bits, the first of them highest.
    next: u64,
    /// Number of bits of `next` that are valid.
    count: u32,
    /// The octets that are not in `next`.
    rest: &'a [u8],
}

impl BitReader<'_> {
    /// Moves as many whole octets into `next` as fit. Of one more octet, the bits that fit are
    /// there too; the next call writes the same bits again.
    #[inline]
    fn refill(&mut self) {
        self.next |= first_octets(self.rest).wrapping_shr(self.count);
        let octets = usize::try_from(u64::BITS.saturating_sub(self.count) / 8).unwrap_or(0).min(self.rest.len());
        self.rest = self.rest.get(octets..).unwrap_or_default();
        self.count = self.count.saturating_add(u32::try_from(octets).unwrap_or(0).saturating_mul(8));
    }
}

/// Returns the first 8 octets, the first of them highest, and zeros if there are fewer.
#[inline]
fn first_octets(octets: &[u8]) -> u64 {
    if let Some(all) = octets.first_chunk::<8>() {
        u64::from_be_bytes(*all)
    } else if let (Some(first), Some(last)) = (octets.first_chunk::<4>(), octets.last_chunk::<4>()) {
        // The two halves overlap if there are fewer than 8 octets; both have the same bits there.
        let [first, last] = [first, last].map(|half| u64::from(u32::from_be_bytes(*half)));
        let bits = u32::try_from(octets.len()).unwrap_or(0).saturating_mul(8);
        first.wrapping_shl(32) | last.wrapping_shl(u64::BITS.saturating_sub(bits))
    } else {
        let octet = |at| octets.get(at).copied().unwrap_or(0);
        u64::from_be_bytes([octet(0), octet(1), octet(2), 0, 0, 0, 0, 0])
    }
}

/// Returns the code that `bits` begin with. There is one for any bits.
#[inline]
fn code_of(bits: u64) -> SymbolCode {
    let [first, ..] = bits.to_be_bytes();
    match TABLES.short.get(usize::from(first)) {
        Some(code) if code.length > 0 => *code,
        _ => long_code_of(u32::try_from(bits.wrapping_shr(32)).unwrap_or(u32::MAX)),
    }
}

#[cold]
fn long_code_of(bits: u32) -> SymbolCode {
    for (length, row) in (0..).zip(&TABLES.rows).skip(9) {
        if bits <= row.last {
            let code = bits.saturating_sub(row.first).wrapping_shr(32_u32.saturating_sub(u32::from(length)));
            let position = row.position.saturating_add(usize::try_from(code).unwrap_or(usize::MAX));
            let symbol = TABLES.symbols.get(position).copied().unwrap_or(EOS);
            return SymbolCode { symbol, length };
        }
    }
    // Not reached: the last row ends with 32 ones.
    SymbolCode { symbol: EOS, length: 0 }
}

/// Derives the tables from the lengths.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
const fn tables() -> HuffmanTables {
    // Evaluated at compile time only: a wrong index or an overflow is an error of the build.
    let mut short = [SymbolCode { symbol: 0, length: 0 }; 1 << SHORT];
    let mut rows = [CodeRange { first: 0, last: 0, position: 0 }; LONGEST as usize + 1];
    let mut symbols = [0; SYMBOLS];
    // The next code in the upper bits of 32, and how many symbols have one.
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
                    short[slot as usize] = SymbolCode { symbol: symbol as u16, length: length as u8 };
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
