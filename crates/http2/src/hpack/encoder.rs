//! The encoder of header blocks (RFC 7541 4.2 and 6).

use super::integer::{write_integer, write_text};
use super::static_table::{self, StaticMatch};
use super::{DEFAULT_MAX_TABLE, ENTRY_OVERHEAD};

/// First octets of the representations, RFC 7541 6, and the masks of the integers in them.
const INDEXED: (u8, u8) = (0x80, 0x7f);
const LITERAL_INSERTED: (u8, u8) = (0x40, 0x3f);
const SIZE_UPDATE: (u8, u8) = (0x20, 0x1f);
const LITERAL: (u8, u8) = (0x00, 0x0f);

/// An encoder of header blocks. Never uses Huffman coding. Its dynamic table holds only fields that
/// repeat in every response, each once.
///
/// All blocks must be sent, in the order in which they were encoded: a block that the peer does not
/// decode leaves its table different from this one.
pub(crate) struct Encoder {
    /// The dynamic table, from oldest to newest entry.
    fields: Vec<RepeatedField>,
    /// Sum of the sizes of the entries, as RFC 7541 4.1 counts.
    size: usize,
    /// Bound on `size`, as announced to the peer.
    limit: usize,
    /// Changes of `limit` that the next block announces.
    due: Option<LimitChange>,
}

#[derive(Clone, Copy)]
struct RepeatedField {
    name: &'static [u8],
    value: &'static [u8],
}

/// The changes of the limit since the last block.
#[derive(Clone, Copy)]
struct LimitChange {
    smallest: usize,
    last: usize,
}

impl Encoder {
    /// Creates an encoder for a peer whose table is the default, 4096 bytes.
    pub(crate) fn new() -> Self {
        Self { fields: Vec::new(), size: 0, limit: DEFAULT_MAX_TABLE, due: None }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes, from the next block on. The table
    /// never uses more than the default.
    pub(crate) fn set_max_table(&mut self, bytes: u32) {
        let last = (bytes as usize).min(DEFAULT_MAX_TABLE);
        match &mut self.due {
            Some(due) => *due = LimitChange { smallest: due.smallest.min(last), last },
            None if last == self.limit => {}
            None => self.due = Some(LimitChange { smallest: last, last }),
        }
    }

    /// Begins a block by writing pending size updates. Must be called before the first field of
    /// each block.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(due) = self.due.take() {
            self.resize(due, out);
        }
    }

    /// Writes a field: as an index if the static table has its name and value, otherwise as a
    /// literal that is not inserted.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let found = static_table::find(name, value);
        if let StaticMatch::Field(index) = found {
            return write(index, INDEXED, out);
        }
        write_name(found, name, LITERAL, out);
        write_text(value, out);
    }

    /// Writes a field of every response: as an index from its second use on. Its first use inserts
    /// it if all such fields together fit into half of the peer's table.
    pub(crate) fn repeated(
        &mut self,
        name: &'static [u8],
        value: &'static [u8],
        out: &mut Vec<u8>,
    ) {
        let position = self
            .fields
            .iter()
            .rposition(|field| std::ptr::eq(field.name, name) && std::ptr::eq(field.value, value));
        match position {
            Some(position) => write(self.index(position), INDEXED, out),
            None => self.first_use(RepeatedField { name, value }, out),
        }
    }

    /// Writes a field whose address is not in the table; an equal field at another address may be.
    fn first_use(&mut self, field: RepeatedField, out: &mut Vec<u8>) {
        let RepeatedField { name, value } = field;
        let equal =
            self.fields.iter().rposition(|field| field.name == name && field.value == value);
        if let Some(position) = equal {
            return write(self.index(position), INDEXED, out);
        }
        let found = static_table::find(name, value);
        let size = self.size.saturating_add(field.size());
        if matches!(found, StaticMatch::Field(_)) || size > self.limit / 2 {
            return self.field(name, value, out);
        }
        write_name(found, name, LITERAL_INSERTED, out);
        write_text(value, out);
        self.fields.push(field);
        self.size = size;
    }

    #[cold]
    fn resize(&mut self, due: LimitChange, out: &mut Vec<u8>) {
        if due.smallest < due.last {
            write(due.smallest, SIZE_UPDATE, out);
        }
        write(due.last, SIZE_UPDATE, out);
        self.limit = due.last;
        while self.size > due.smallest && !self.fields.is_empty() {
            let evicted = self.fields.remove(0);
            self.size = self.size.saturating_sub(evicted.size());
        }
    }

    /// Returns the index of the entry at a position of `fields`: the newest directly follows the
    /// static table.
    fn index(&self, position: usize) -> usize {
        static_table::LEN.saturating_add(self.fields.len()).saturating_sub(position)
    }
}

impl RepeatedField {
    fn size(&self) -> usize {
        self.name.len().saturating_add(self.value.len()).saturating_add(ENTRY_OVERHEAD)
    }
}

/// Writes the name of a literal: as an index if the static table has it.
fn write_name(found: StaticMatch, name: &[u8], kind: (u8, u8), out: &mut Vec<u8>) {
    match found {
        StaticMatch::Field(index) | StaticMatch::Name(index) => write(index, kind, out),
        StaticMatch::Nothing => {
            write(0, kind, out);
            write_text(name, out);
        }
    }
}

#[inline]
fn write(value: usize, (pattern, mask): (u8, u8), out: &mut Vec<u8>) {
    write_integer(value, mask, pattern, out);
}
