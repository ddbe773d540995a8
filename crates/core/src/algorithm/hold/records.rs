//! Records of the holds of one counter: by ID, the charges that may still be corrected.
//!
//! A record is one allocation, since a counter may have 100,000: the ID, the instant until which it
//! is kept, and up to four receipts, some with a grant or tallied entries. Each insert examines a
//! few records in turn and removes those that have expired, so that at most one in eight is an
//! expired one.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::algorithm::growth_of;
use crate::algorithm::time::Timestamp;

/// Maximum number of receipts of one record: of open holds of an ID at a counter.
pub const MAX_RECEIPTS: usize = 4;
/// Maximum number of records of one counter.
const MAX_RECORDS: usize = 100_000;
/// Records that an insert examines for expiry.
const EXAMINED: usize = 8;
/// Records that are examined before a new one is refused.
const EXAMINED_WHEN_FULL: usize = 128;
/// Bytes of a packed receipt: instant and hits.
const RECEIPT_BYTES: usize = 12;
/// Bytes of a packed record besides its ID and receipts: length of the ID, expiry, flags, number of
/// receipts.
const HEAD_BYTES: usize = 1 + 8 + 2;
/// Bytes of what a receipt has besides, in a record where any receipt has it: the instant of a
/// grant, and the number of entries.
const EXTRA_BYTES: usize = 8 + 1;
/// Flags of a record: a hold of it has ended, and its receipts are followed by what they have
/// besides.
const HAS_ENDED: u8 = 1;
const HAS_EXTRAS: u8 = 2;
/// Estimated overhead of an allocation in bytes.
const ALLOCATION: usize = 8;
/// Bytes of a record in the table: a pointer with its length, and a tag.
const ENTRY_BYTES: usize = 17;

/// A charge that is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldReceipt {
    /// Instant of the charge by the counter's clock.
    pub at: Timestamp,
    /// Hits charged.
    pub hits: u32,
    /// Instant of the grant from which the hits were taken; `None` if they count against the limit.
    pub grant: Option<Timestamp>,
    /// Entries in whose tallies the hits are.
    pub entries: Vec<Vec<u8>>,
}

/// The holds of one ID at one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// First instant at which the record is gone.
    pub until: Timestamp,
    /// `true` once a hold of it has ended, or if a commit made it: it is then kept until it
    /// expires, so that a repeated commit changes nothing.
    pub has_ended: bool,
    /// Open holds, oldest first.
    pub receipts: SmallVec<[HoldReceipt; MAX_RECEIPTS]>,
}

impl HoldReceipt {
    fn has_extras(&self) -> bool {
        self.grant.is_some() || !self.entries.is_empty()
    }
}

impl Record {
    /// Returns the hits of all open holds.
    pub fn hits(&self) -> u32 {
        self.receipts.iter().fold(0, |sum, held| sum.saturating_add(held.hits))
    }

    /// Removes the oldest hold, and returns it.
    pub(super) fn end_oldest(&mut self) -> Option<HoldReceipt> {
        if self.receipts.is_empty() {
            return None;
        }
        self.has_ended = true;
        Some(self.receipts.remove(0))
    }
}

/// The records of a counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    table: HashTable<Box<[u8]>>,
    /// Hashes of the IDs, next to be examined first.
    queue: VecDeque<u32>,
    hasher: RandomState,
    /// Bytes of the packed records.
    packed_bytes: usize,
    /// Latest expiry of any record so far.
    latest: Timestamp,
}

impl Records {
    /// Returns the record of an ID that has not expired.
    pub(super) fn get(&self, id: &[u8], now: Timestamp) -> Option<Record> {
        let packed = self.table.find(spread(self.hash(id)), |packed| id_of(packed) == id)?;
        Some(unpacked(packed)).filter(|record| record.until > now)
    }

    /// Stores a record in place of an earlier one of this ID.
    pub(super) fn put(&mut self, id: &[u8], record: &Record, now: Timestamp) {
        let hash = self.hash(id);
        let packed = packed(id, record);
        self.packed_bytes = self.packed_bytes.saturating_add(allocated(packed.len()));
        self.latest = self.latest.max(record.until);
        if let Some(place) = self.table.find_mut(spread(hash), |packed| id_of(packed) == id) {
            let old = std::mem::replace(place, packed);
            self.packed_bytes = self.packed_bytes.saturating_sub(allocated(old.len()));
            return;
        }
        self.forget_expired(EXAMINED, now);
        let hasher = &self.hasher;
        self.table
            .insert_unique(spread(hash), packed, |packed| spread(hash_of(hasher, id_of(packed))));
        self.queue.push_back(hash);
    }

    /// Returns `true` if there is no room for a new record.
    pub(super) fn is_full(&mut self, now: Timestamp) -> bool {
        if self.table.len() >= MAX_RECORDS {
            self.forget_expired(EXAMINED_WHEN_FULL, now);
        }
        self.table.len() >= MAX_RECORDS
    }

    /// Examines the next `count` records, and removes those that have expired.
    fn forget_expired(&mut self, count: usize, now: Timestamp) {
        for _ in 0..count.min(self.queue.len()) {
            let Some(hash) = self.queue.pop_front() else { return };
            let hasher = &self.hasher;
            let next = self
                .table
                .find_entry(spread(hash), |packed| hash_of(hasher, id_of(packed)) == hash);
            match next {
                Ok(entry) if unpacked(entry.get()).until > now => self.queue.push_back(hash),
                Ok(entry) => {
                    let (packed, _) = entry.remove();
                    self.packed_bytes = self.packed_bytes.saturating_sub(allocated(packed.len()));
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the IDs and records that have not expired, unordered.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (&[u8], Record)> {
        let records = self.table.iter().map(|packed| (id_of(packed), unpacked(packed)));
        records.filter(move |(_, record)| record.until > now)
    }

    /// Returns the latest expiry of any record; the epoch if there are none.
    pub(super) fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Returns `true` if there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.table
            .allocation_size()
            .saturating_add(self.queue.capacity().saturating_mul(size_of::<u32>()))
            .saturating_add(self.packed_bytes)
    }

    /// Returns the number of bytes that a receipt for an ID may allocate, with these entries and
    /// perhaps a grant if `has_extras`.
    pub(super) fn growth_bytes(&self, id: &[u8], entries: &[Vec<u8>], has_extras: bool) -> usize {
        let entries = entries.iter().map(|entry| entry.len().saturating_add(2));
        let extras = if has_extras { MAX_RECEIPTS * EXTRA_BYTES } else { 0 };
        let extras = entries.fold(extras, usize::saturating_add);
        let record = id.len().saturating_add(HEAD_BYTES + RECEIPT_BYTES).saturating_add(extras);
        let grows = self.table.len() >= self.table.capacity();
        let table = if grows { self.table.allocation_size().max(4 * ENTRY_BYTES + 16) } else { 0 };
        allocated(record)
            .saturating_add(table)
            .saturating_add(growth_of::<u32>(self.queue.len(), self.queue.capacity()))
    }

    fn hash(&self, id: &[u8]) -> u32 {
        hash_of(&self.hasher, id)
    }
}

/// Equality of the records, whatever the hashes of their IDs.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.table.len() == other.table.len()
            && self.table.iter().all(|packed| {
                let hash = spread(other.hash(id_of(packed)));
                other.table.find(hash, |own| own == packed).is_some()
            })
    }
}

impl Eq for Records {}

/// Returns the bits of a hash that are kept with each record.
fn hash_of(hasher: &RandomState, id: &[u8]) -> u32 {
    let [.., a, b, c, d] = hasher.hash_one(id).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns a hash for the table, which takes its tags from the highest bits.
fn spread(hash: u32) -> u64 {
    let hash = u64::from(hash);
    hash << 32 | hash
}

fn allocated(len: usize) -> usize {
    len.saturating_add(ALLOCATION).next_multiple_of(16)
}

fn packed(id: &[u8], record: &Record) -> Box<[u8]> {
    let receipts = record.receipts.len().saturating_mul(RECEIPT_BYTES);
    let mut packed =
        Vec::with_capacity(HEAD_BYTES.saturating_add(id.len()).saturating_add(receipts));
    packed.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
    packed.extend_from_slice(id);
    packed.extend(record.until.as_micros().to_be_bytes());
    let has_extras = record.receipts.iter().any(HoldReceipt::has_extras);
    let flags = [(record.has_ended, HAS_ENDED), (has_extras, HAS_EXTRAS)];
    packed.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    packed.push(u8::try_from(record.receipts.len()).unwrap_or(u8::MAX));
    for receipt in &record.receipts {
        packed.extend(receipt.at.as_micros().to_be_bytes());
        packed.extend(receipt.hits.to_be_bytes());
    }
    for receipt in record.receipts.iter().filter(|_| has_extras) {
        packed.extend(receipt.grant.unwrap_or_default().as_micros().to_be_bytes());
        packed.push(u8::try_from(receipt.entries.len()).unwrap_or(u8::MAX));
        for entry in &receipt.entries {
            packed.extend(u16::try_from(entry.len()).unwrap_or(u16::MAX).to_be_bytes());
            packed.extend_from_slice(entry);
        }
    }
    packed.into()
}

fn id_of(packed: &[u8]) -> &[u8] {
    let length = packed.first().copied().map_or(0, usize::from);
    packed.get(1..length.saturating_add(1)).unwrap_or_default()
}

fn unpacked(packed: &[u8]) -> Record {
    let mut rest = packed.get(id_of(packed).len().saturating_add(1)..).unwrap_or_default();
    let until = Timestamp::from_micros(u64::from_be_bytes(first(&mut rest)));
    let [flags, count] = first(&mut rest);
    let mut receipts: SmallVec<[HoldReceipt; MAX_RECEIPTS]> = (0..count)
        .map(|_| {
            let at = Timestamp::from_micros(u64::from_be_bytes(first(&mut rest)));
            let hits = u32::from_be_bytes(first(&mut rest));
            HoldReceipt { at, hits, ..HoldReceipt::default() }
        })
        .collect();
    for receipt in receipts.iter_mut().filter(|_| flags & HAS_EXTRAS != 0) {
        let grant = Timestamp::from_micros(u64::from_be_bytes(first(&mut rest)));
        receipt.grant = Some(grant).filter(|grant| *grant > Timestamp::EPOCH);
        let [count] = first(&mut rest);
        receipt.entries = (0..count)
            .map(|_| {
                let length = u16::from_be_bytes(first(&mut rest)).into();
                let (entry, after) = rest.split_at_checked(length).unwrap_or_default();
                rest = after;
                entry.to_vec()
            })
            .collect();
    }
    Record { until, has_ended: flags & HAS_ENDED != 0, receipts }
}

/// Splits the first bytes off; zeros if there are fewer.
fn first<const COUNT: usize>(rest: &mut &[u8]) -> [u8; COUNT] {
    let (first, after) = rest.split_first_chunk().unwrap_or((&[0; COUNT], &[]));
    *rest = after;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    fn record(hits: u32) -> Record {
        let receipts =
            std::iter::once(HoldReceipt { at: at(1), hits, ..HoldReceipt::default() }).collect();
        Record { until: at(100), has_ended: false, receipts }
    }

    fn of(records: &[(&str, u32)]) -> Records {
        let mut made = Records::default();
        records.iter().for_each(|(id, hits)| made.put(id.as_bytes(), &record(*hits), at(1)));
        made
    }

    #[test]
    fn records_are_equal_by_id_and_contents_in_any_order() {
        let both = of(&[("a", 1), ("b", 2)]);
        assert_eq!(both, of(&[("b", 2), ("a", 1)]));
        for other in [&[("a", 1)][..], &[("a", 1), ("b", 3)], &[("a", 1), ("c", 2)]] {
            assert_ne!(both, of(other));
            assert_ne!(of(other), both);
        }
    }

    #[test]
    fn a_record_grows_the_memory_by_what_was_known_before_while_the_table_does_not() {
        for length in 1..=32 {
            let mut records = Records::default();
            // Three records fit in the first table, four hashes in the first queue.
            for number in 0..3_u8 {
                let id = vec![number; length];
                let before = records.heap_bytes();
                let growth = records.growth_bytes(&id, &[], false);
                records.put(&id, &record(1), at(1));
                assert_eq!(records.heap_bytes() - before, growth, "record {number} of {length}");
            }
        }
    }

    #[test]
    fn a_fourth_receipt_with_a_grant_and_entries_grows_a_record_by_at_most_what_was_known_before() {
        for length in 1..=32 {
            let id = vec![b'a'; length];
            let mut records = Records::default();
            let mut record = record(1);
            record.receipts.extend([record.receipts[0].clone(), record.receipts[0].clone()]);
            records.put(&id, &record, at(1));
            let entries = vec![vec![b'b'; length], vec![b'c']];
            let before = records.heap_bytes();
            let growth = records.growth_bytes(&id, &entries, true);
            record.receipts.push(HoldReceipt { at: at(3), hits: 9, grant: Some(at(2)), entries });
            records.put(&id, &record, at(3));
            let added = records.heap_bytes() - before;
            assert!(added <= growth, "{added} of {growth} bytes for a length of {length}");
            assert_eq!(records.get(&id, at(3)), Some(record));
        }
    }

    #[test]
    fn a_record_is_stored_as_it_is_and_lives_until_its_expiry() {
        let mut records = Records::default();
        assert!(records.is_empty());
        let mut ended = record(7);
        ended.receipts.push(HoldReceipt { at: at(2), hits: 8, ..HoldReceipt::default() });
        ended.end_oldest();
        for (id, record) in [(&b"a"[..], &record(5)), (b"b", &ended)] {
            records.put(id, record, at(1));
            assert_eq!(records.get(id, at(99)).as_ref(), Some(record));
            assert_eq!(records.get(id, at(100)), None);
        }
        assert_eq!((ended.has_ended, ended.hits()), (true, 8));
        assert_eq!([99, 100].map(|now| records.live(at(now)).count()), [2, 0]);
        assert_eq!((records.latest(), records.is_empty()), (at(100), false));
    }
}
