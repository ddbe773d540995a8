//! Elements of a shard's hash table, and its growth.

use hashbrown::HashTable;

/// An element of the table: the number of an entry of the pages, and the bits of its key's hash
/// that the table uses.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry {
    pub(super) number: u32,
    pub(super) hash: u32,
}

impl IndexEntry {
    /// Creates the element of an entry whose key has a hash.
    pub(super) fn new(number: u32, hash: u64) -> Self {
        Self { number, hash: Self::hash_bits(hash) }
    }

    /// Returns the bits of a hash that are kept: the highest byte, from which a table takes its
    /// tags on machines of 64 bits, and the low three, enough buckets for any shard.
    pub(super) fn hash_bits(hash: u64) -> u32 {
        let [tag, .., high, middle, low] = hash.to_be_bytes();
        u32::from_be_bytes([tag, high, middle, low])
    }

    /// Returns the hash that the table uses, from the bits that are kept.
    pub(super) fn table_hash(bits: u32) -> u64 {
        let [tag, high, middle, low] = bits.to_be_bytes();
        u64::from_be_bytes([tag, 0, 0, 0, 0, high, middle, low])
    }
}

/// Inserts an element that is not in a table, which is rebuilt before if that makes room.
pub(super) fn insert(table: &mut HashTable<IndexEntry>, entry: IndexEntry) {
    make_room(table);
    put(table, entry);
}

fn put(table: &mut HashTable<IndexEntry>, entry: IndexEntry) {
    table.insert_unique(IndexEntry::table_hash(entry.hash), entry, |entry| {
        IndexEntry::table_hash(entry.hash)
    });
}

/// Rebuilds a table without room for another entry if removed ones take some of it. On its own
/// it would double, and with counters that come and go stay less than half full.
fn make_room(table: &mut HashTable<IndexEntry>) {
    let buckets = table.num_buckets();
    if !is_worth_rebuilding(table.len(), table.capacity(), buckets) {
        return;
    }
    let mut rebuilt = HashTable::with_capacity(seven_eighths(buckets));
    table.drain().for_each(|entry| put(&mut rebuilt, entry));
    *table = rebuilt;
}

/// Returns `true` if removed entries take all room of a table for another one, and an eighth of its
/// room or more, so that a rebuilt one is not full again soon.
fn is_worth_rebuilding(len: usize, capacity: usize, buckets: usize) -> bool {
    capacity == len && len < seven_eighths(seven_eighths(buckets))
}

fn seven_eighths(count: usize) -> usize {
    count * 7 / 8
}

#[cfg(test)]
mod tests {
    use tollgate_core::descriptor::hash_of;

    use super::*;

    fn entry(number: u32) -> IndexEntry {
        IndexEntry::new(number, hash_of(&number.to_be_bytes()))
    }

    #[test]
    fn a_key_is_compared_with_few_others() {
        let mut table = HashTable::new();
        (0..1_000).for_each(|number| put(&mut table, entry(number)));
        let compared = (0..1_000)
            .map(|number| table.iter_hash(IndexEntry::table_hash(entry(number).hash)).count());
        assert!((1_000..1_500).contains(&compared.sum::<usize>()));
    }

    #[test]
    fn a_table_without_room_because_of_removed_entries_is_rebuilt_in_its_size() {
        let mut table = HashTable::with_capacity(56);
        (0..48).for_each(|number| put(&mut table, entry(number)));
        for number in 48..1_000_000 {
            let hash = IndexEntry::table_hash(entry(number - 48).hash);
            let old = table.find_entry(hash, |entry| entry.number == number - 48);
            old.map(hashbrown::hash_table::OccupiedEntry::remove).ok().unwrap();
            put(&mut table, entry(number));
            if table.capacity() == table.len() {
                break;
            }
        }
        assert_eq!((table.len(), table.capacity(), table.num_buckets()), (48, 48, 64));
        make_room(&mut table);
        assert_eq!((table.len(), table.capacity(), table.num_buckets()), (48, 56, 64));
    }

    #[test]
    fn a_table_is_rebuilt_if_removed_entries_take_its_room_and_are_an_eighth_of_it() {
        for (len, capacity, is_rebuilt) in
            [(48, 48, true), (48, 49, false), (49, 49, false), (55, 55, false), (56, 56, false)]
        {
            assert_eq!(is_worth_rebuilding(len, capacity, 64), is_rebuilt, "{len} of {capacity}");
        }
    }
}
