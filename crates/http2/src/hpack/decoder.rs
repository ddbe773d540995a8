//! The decoder of header blocks (RFC 7541 3 and 6).

use super::dynamic_table::DynamicTable;
use super::integer::{BlockReader, StringLiteral};
use super::{HpackError, huffman, static_table};

/// Capacity of the buffer for decoded strings kept from block to block, in bytes.
const KEPT_SCRATCH: usize = 4096;
/// Maximum number of size updates at the start of a block, RFC 7541 4.2.
const MAX_SIZE_UPDATES: usize = 2;

/// First octets of the representations, RFC 7541 6. Lower values are literals that are not
/// inserted; the bit that forbids proxies to index them makes no difference to a decoder.
const INDEXED: u8 = 0x80;
const LITERAL_INSERTED: u8 = 0x40;
const SIZE_UPDATE: u8 = 0x20;

/// Bits of the first octet that belong to the integer in it.
const INDEXED_MASK: u8 = 0x7f;
const INSERTED_MASK: u8 = 0x3f;
const SIZE_UPDATE_MASK: u8 = 0x1f;
const LITERAL_MASK: u8 = 0x0f;

/// A decoder for the header blocks of one connection, with its dynamic table.
pub(crate) struct Decoder {
    table: DynamicTable,
    /// Name and value of one field, if they are Huffman-coded in the block or the name is an
    /// entry's.
    scratch: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder. `max_table` is the SETTINGS_HEADER_TABLE_SIZE that this side advertises,
    /// in bytes as RFC 7541 4.1 counts.
    pub(crate) fn new(max_table: usize) -> Self {
        Self { table: DynamicTable::new(max_table), scratch: Vec::new() }
    }

    /// Decodes one whole header block (HEADERS and its CONTINUATIONs joined). Calls `see` with the
    /// name and the value of each field, in order.
    ///
    /// Returns `true` if the block left the dynamic table unchanged, that is, if it has no size
    /// update and no literal to be inserted. The same bytes then decode to the same fields until a
    /// block changes the table.
    ///
    /// # Errors
    /// The connection must end with COMPRESSION_ERROR. `see` has been called with the fields before
    /// the fault.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, HpackError> {
        let mut input = BlockReader::new(block);
        let mut is_unchanged = !self.apply_size_updates(&mut input)?;
        while let Some(first) = input.octet() {
            if first >= INDEXED {
                let (name, value) = field_at(&self.table, input.integer(first, INDEXED_MASK)?)?;
                see(name, value);
            } else if first >= LITERAL_INSERTED {
                is_unchanged = false;
                self.insert_literal(first, &mut input, &mut see)?;
            } else if first >= SIZE_UPDATE {
                return Err(HpackError::LateSizeUpdate);
            } else {
                self.show_literal(first, &mut input, &mut see)?;
            }
        }
        self.scratch.clear();
        self.scratch.shrink_to(KEPT_SCRATCH);
        Ok(is_unchanged)
    }

    /// Reads the size updates at the start of a block. Returns `true` if there was one.
    #[inline]
    fn apply_size_updates(&mut self, input: &mut BlockReader<'_>) -> Result<bool, HpackError> {
        let mut updates: usize = 0;
        while let Some(first @ SIZE_UPDATE..LITERAL_INSERTED) = input.peek() {
            if updates == MAX_SIZE_UPDATES {
                return Err(HpackError::TooManySizeUpdates);
            }
            input.octet();
            let limit = input.integer(first, SIZE_UPDATE_MASK)?;
            if limit > self.table.max() {
                return Err(HpackError::SizeUpdateTooLarge);
            }
            self.table.resize(limit);
            updates = updates.saturating_add(1);
        }
        Ok(updates > 0)
    }

    fn show_literal(
        &mut self,
        first: u8,
        input: &mut BlockReader<'_>,
        see: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let index = input.integer(first, LITERAL_MASK)?;
        self.scratch.clear();
        let name = match index {
            0 => unpack(&input.text()?, &mut self.scratch)?,
            _ => Some(field_at(&self.table, index)?.0),
        };
        let (name, value) = read_value(name, input, &mut self.scratch)?;
        see(name, value);
        Ok(())
    }

    fn insert_literal(
        &mut self,
        first: u8,
        input: &mut BlockReader<'_>,
        see: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let index = input.integer(first, INSERTED_MASK)?;
        self.scratch.clear();
        let name = if index == 0 {
            unpack(&input.text()?, &mut self.scratch)?
        } else if let Some((name, _)) = static_table::get(index) {
            Some(name)
        } else {
            // A copy: the insertion may evict the entry that has this name (RFC 7541 4.4).
            self.scratch.extend_from_slice(field_at(&self.table, index)?.0);
            None
        };
        let (name, value) = read_value(name, input, &mut self.scratch)?;
        see(name, value);
        self.table.insert(name, value);
        Ok(())
    }
}

/// Returns the field at an index of the two tables, RFC 7541 2.3.3.
#[inline]
fn field_at(table: &DynamicTable, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
    if let Some(field) = static_table::get(index) {
        return Ok(field);
    }
    let age =
        index.checked_sub(static_table::LEN.saturating_add(1)).ok_or(HpackError::IndexZero)?;
    table.get(age).ok_or(HpackError::IndexOutOfRange)
}

/// Reads the value of a field and returns it with the name. If `name` is `None`, the name is all of
/// `scratch`.
fn read_value<'a, 'block: 'a>(
    name: Option<&'a [u8]>,
    input: &mut BlockReader<'block>,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], &'a [u8]), HpackError> {
    let name_len = scratch.len();
    let value = unpack(&input.text()?, scratch)?;
    let (unpacked_name, unpacked_value) = scratch.split_at_checked(name_len).unwrap_or_default();
    Ok((name.unwrap_or(unpacked_name), value.unwrap_or(unpacked_value)))
}

/// Returns a plain string unchanged. Appends a Huffman-coded one to `scratch` and returns `None`.
#[inline]
fn unpack<'a>(
    text: &StringLiteral<'a>,
    scratch: &mut Vec<u8>,
) -> Result<Option<&'a [u8]>, HpackError> {
    if !text.is_huffman {
        return Ok(Some(text.bytes));
    }
    huffman::decode(text.bytes, scratch)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::integer::write_integer;
    use super::*;

    /// Returns a literal whose value decodes to `octets / 5 * 8` symbols.
    fn literal(octets: usize) -> Vec<u8> {
        let mut block = vec![0x04];
        write_integer(octets, 0x7f, 0x80, &mut block);
        block.extend(std::iter::repeat_n(0, octets));
        block
    }

    #[test]
    fn the_buffer_of_strings_is_kept_unless_it_is_large() {
        let mut decoder = Decoder::new(4096);
        let mut capacity_after = |octets| {
            decoder.decode(&literal(octets), |_, _| ()).unwrap();
            decoder.scratch.capacity()
        };
        assert_eq!(capacity_after(2560), 4096);
        assert_eq!(capacity_after(10), 4096, "kept");
        assert_eq!(capacity_after(60_000), 4096, "cut to what is kept");
    }
}
