//! The dynamic table of a decoder (RFC 7541 2.3.2 and 4).
//!
//! Names and values are in one buffer, in insertion order. Evicted bytes stay at its start until
//! the space is needed; then the live ones move there. The position of an entry counts all bytes
//! ever inserted, so that no entry changes when they move.

use std::collections::VecDeque;

use super::{DEFAULT_MAX_TABLE, ENTRY_OVERHEAD};

/// A table of at most `max` bytes, as RFC 7541 4.1 counts. Allocates nothing before the first
/// insertion.
pub(super) struct DynamicTable {
    /// Names and values of the entries, preceded by evicted bytes. Its capacity is at most `max`.
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes` among all bytes ever inserted, modulo 2^32.
    base: u32,
    /// Entries from oldest to newest; at most `max / 32`.
    entries: VecDeque<TableEntry>,
    /// Sum of the sizes of the entries.
    size: usize,
    /// Bound on `size`, chosen by the encoder.
    limit: usize,
    /// Bound on `limit`.
    max: usize,
}

/// A name, immediately followed by its value.
struct TableEntry {
    /// Position of the name, counted like `base`.
    start: u32,
    name_len: u32,
    value_len: u32,
}

impl DynamicTable {
    /// Creates an empty table of the default size, or of `max` if that is smaller. An encoder that
    /// uses more must send a size update first.
    pub(super) fn new(max: usize) -> Self {
        let limit = max.min(DEFAULT_MAX_TABLE);
        Self { bytes: Vec::new(), base: 0, entries: VecDeque::new(), size: 0, limit, max }
    }

    /// Returns the maximum that a size update may set.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Returns a field by its age; 0 is the newest.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let newest = self.entries.len().checked_sub(1)?;
        let entry = self.entries.get(newest.checked_sub(age)?)?;
        let bytes = self.bytes.get(self.offset(entry)..)?;
        let (name, bytes) = bytes.split_at_checked(entry.name_len as usize)?;
        Some((name, bytes.get(..entry.value_len as usize)?))
    }

    /// Inserts a field, evicting as many of the oldest entries as needed. A field larger than the
    /// table empties it and is not inserted (RFC 7541 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let length = name.len().saturating_add(value.len());
        let size = length.saturating_add(ENTRY_OVERHEAD);
        self.evict_to(self.limit.saturating_sub(size));
        // No table has 4 GiB: its size is a 32-bit setting.
        let (Ok(name_len), Ok(value_len)) = (u32::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        if size > self.limit {
            return;
        }
        self.make_room(length);
        let start = self.base.wrapping_add(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(TableEntry { start, name_len, value_len });
        self.size = self.size.saturating_add(size);
    }

    /// Sets the bound, capped at `max`, and evicts the oldest entries above it.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit.min(self.max);
        self.evict_to(self.limit);
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_front() else { return };
            let length = (entry.name_len as usize).saturating_add(entry.value_len as usize);
            self.size = self.size.saturating_sub(length.saturating_add(ENTRY_OVERHEAD));
        }
    }

    /// Makes space for `length` more bytes in the buffer; the caller ensures that the table permits
    /// them. A new buffer has twice the space needed, up to `max`, so that bytes rarely move.
    fn make_room(&mut self, length: usize) {
        if self.bytes.capacity().saturating_sub(self.bytes.len()) >= length {
            return;
        }
        let evicted = self.entries.front().map_or(self.bytes.len(), |oldest| self.offset(oldest));
        self.bytes.drain(..evicted.min(self.bytes.len()));
        self.base = self.base.wrapping_add(u32::try_from(evicted).unwrap_or(u32::MAX));
        let wanted = self.bytes.len().saturating_add(length).saturating_mul(2).min(self.max);
        self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
    }

    fn offset(&self, entry: &TableEntry) -> usize {
        entry.start.wrapping_sub(self.base) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The insertion of a name and a value of these lengths, or a new limit.
    #[derive(Clone, Debug)]
    enum TableChange {
        Insert(usize, usize),
        Resize(usize),
    }

    fn changes() -> impl Strategy<Value = Vec<TableChange>> {
        let lengths = || prop_oneof![8 => 0..50_usize, 2 => 0..1000_usize, 1 => 0..5000_usize];
        let insert =
            (lengths(), lengths()).prop_map(|(name, value)| TableChange::Insert(name, value));
        vec(prop_oneof![20 => insert, 1 => (0..6000_usize).prop_map(TableChange::Resize)], 0..200)
    }

    #[test]
    fn a_table_holds_no_memory_before_the_first_insertion() {
        let table = DynamicTable::new(4096);
        assert_eq!((table.bytes.capacity(), table.entries.capacity()), (0, 0));
    }

    proptest! {
        #[test]
        fn a_table_never_holds_more_than_its_bound(changes in changes(), base in any::<u32>()) {
            let mut table = DynamicTable { base, ..DynamicTable::new(4096) };
            for change in changes {
                match change {
                    TableChange::Insert(name, value) => table.insert(&vec![b'n'; name], &vec![b'v'; value]),
                    TableChange::Resize(limit) => table.resize(limit),
                }
                prop_assert!(table.size <= table.limit && table.limit <= 4096);
                prop_assert!(table.bytes.capacity() <= 4096);
                prop_assert!(table.entries.capacity() <= 4096 / ENTRY_OVERHEAD);
                for age in 0..table.entries.len() {
                    let (name, value) = table.get(age).unwrap();
                    prop_assert!(name.iter().all(|octet| *octet == b'n') && value.iter().all(|octet| *octet == b'v'));
                }
                prop_assert_eq!(table.get(table.entries.len()), None);
            }
        }

        #[test]
        fn a_table_that_was_full_once_allocates_no_more(changes in changes()) {
            let mut table = DynamicTable::new(4096);
            table.insert(&[b'n'; 2000], &[b'v'; 2000]);
            (0..4096 / ENTRY_OVERHEAD).for_each(|_| table.insert(b"", b""));
            let before = (table.bytes.as_ptr(), table.entries.capacity());
            for change in changes {
                match change {
                    TableChange::Insert(name, value) => table.insert(&vec![b'n'; name], &vec![b'v'; value]),
                    TableChange::Resize(limit) => table.resize(limit),
                }
            }
            prop_assert_eq!((table.bytes.as_ptr(), table.entries.capacity()), before);
        }
    }
}
