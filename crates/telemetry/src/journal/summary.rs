//! The most frequent keys of a larger stream, by space-saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! While there is memory, each key has its own count. After that, a new key replaces the one with
//! the least weight and inherits that weight as an upper bound of its missed occurrences. With m
//! entries and N occurrences, a weight is thus never too small and at most N / m too large, and
//! every key with more than N / m occurrences is present.
//!
//! Worked example, two entries: a, a, b, c leaves a with weight 2 and c with weight 2, of which 1
//! is inherited from b.

use hashbrown::HashTable;

/// A set of keys with their weights, and a value for each.
#[derive(Clone, Debug)]
pub struct Summary<T> {
    entries: Vec<SummaryEntry<T>>,
    by_key: HashTable<u32>,
    /// All entries as a binary min-heap by weight. Empty until the first key is replaced; after
    /// that, no entries are added.
    heap: Vec<Weighed>,
    /// Maximum number of occurrences of an absent key, for a summary received from another process.
    others: u64,
}

/// An element of the heap with the weight of its entry, so that heap operations read no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weighed {
    weight: u64,
    entry: u32,
}

/// The state of one key.
#[derive(Clone, Debug)]
pub struct SummaryEntry<T> {
    /// Text of the key.
    pub key: Box<str>,
    hash: u64,
    /// Index in the heap, once there is one.
    place: u32,
    /// Occurrences counted while the key was present.
    pub counted: u64,
    /// Maximum number of occurrences before that.
    pub inherited: u64,
    /// Value of the key.
    pub value: T,
}

/// The effect of counting an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountEffect {
    /// The key was present.
    Known,
    /// The key was added.
    Added,
    /// The key replaced another one.
    Replaced {
        /// Length of the replaced text in bytes.
        text: usize,
    },
}

/// The memory available for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeMemory {
    /// Enough for a new entry.
    More,
    /// Only the entry of another key.
    Same,
    /// No memory at all.
    None,
}

impl<T> SummaryEntry<T> {
    /// Returns the maximum number of occurrences of the key.
    pub fn weight(&self) -> u64 {
        self.counted.saturating_add(self.inherited)
    }
}

impl<T> Default for Summary<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), by_key: HashTable::new(), heap: Vec::new(), others: 0 }
    }
}

impl<T> Summary<T> {
    /// Counts one occurrence of `key`; `begin` creates the value of a new key. `None` if there is
    /// no entry for it.
    pub fn note(
        &mut self,
        key: &str,
        hash: u64,
        room: FreeMemory,
        begin: impl FnOnce() -> T,
    ) -> Option<(CountEffect, &mut T)> {
        let known = self.find(key, hash);
        let (number, noted) = match known {
            Some(number) => (number, CountEffect::Known),
            None if room == FreeMemory::More && self.heap.is_empty() => {
                (self.add(key, hash, begin())?, CountEffect::Added)
            }
            None if room == FreeMemory::None => return None,
            None => {
                let (number, text) = self.replace(key, hash, begin())?;
                (number, CountEffect::Replaced { text })
            }
        };
        let entry = self.entries.get_mut(index(number))?;
        entry.counted += 1;
        let place = entry.place;
        let weight = entry.weight();
        if !self.heap.is_empty() {
            self.sink(index(place), Weighed { weight, entry: number });
        }
        Some((noted, &mut self.entries.get_mut(index(number))?.value))
    }

    /// Creates a summary from a received message: keys with their counts, their maximum missed
    /// occurrences and their values. `others` bounds the occurrences of an absent key.
    pub(super) fn from_peer(
        keys: impl Iterator<Item = (Box<str>, u64, u64, T)>,
        others: u64,
    ) -> Self {
        let entries = keys.map(|(key, counted, inherited, value)| SummaryEntry {
            key,
            hash: 0,
            place: 0,
            counted,
            inherited,
            value,
        });
        Self { entries: entries.collect(), others, ..Self::default() }
    }

    /// Returns `true` if a key is present.
    #[cfg(test)]
    pub(super) fn has(&self, key: &str, hash: u64) -> bool {
        self.find(key, hash).is_some()
    }

    /// Returns all entries, unordered.
    pub fn entries(&self) -> &[SummaryEntry<T>] {
        &self.entries
    }

    /// Returns the maximum number of occurrences of an absent key.
    pub(super) fn floor(&self) -> u64 {
        self.heap.first().map_or(self.others, |lightest| lightest.weight)
    }

    fn find(&self, key: &str, hash: u64) -> Option<u32> {
        let is_it =
            |number: &u32| self.entries.get(index(*number)).is_some_and(|entry| *entry.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    fn add(&mut self, key: &str, hash: u64, value: T) -> Option<u32> {
        let number = u32::try_from(self.entries.len()).ok()?;
        // Grows by an eighth instead of doubling, since unused capacity counts too.
        if self.entries.len() == self.entries.capacity() {
            let more = (self.entries.len() >> 3).max(4);
            self.entries.reserve_exact(more);
        }
        let entry =
            SummaryEntry { key: key.into(), hash, place: 0, counted: 0, inherited: 0, value };
        self.entries.push(entry);
        let entries = &self.entries;
        self.by_key.insert_unique(hash, number, |number| {
            entries.get(index(*number)).map_or(0, |entry| entry.hash)
        });
        Some(number)
    }

    /// Replaces the lightest key. Returns the entry and the length of the replaced text in bytes.
    fn replace(&mut self, key: &str, hash: u64, value: T) -> Option<(u32, usize)> {
        if self.heap.is_empty() {
            self.weigh();
        }
        let number = self.heap.first()?.entry;
        let entry = self.entries.get_mut(index(number))?;
        if let Ok(entry) = self.by_key.find_entry(entry.hash, |found| *found == number) {
            entry.remove();
        }
        let inherited = entry.weight();
        let text = entry.key.len();
        *entry = SummaryEntry {
            key: key.into(),
            hash,
            place: entry.place,
            counted: 0,
            inherited,
            value,
        };
        let entries = &self.entries;
        self.by_key.insert_unique(hash, number, |number| {
            entries.get(index(*number)).map_or(0, |entry| entry.hash)
        });
        Some((number, text))
    }

    /// Builds the heap: a sorted list is one.
    fn weigh(&mut self) {
        let entries = (0..).zip(&self.entries);
        self.heap =
            entries.map(|(entry, found)| Weighed { weight: found.weight(), entry }).collect();
        self.heap.sort_unstable();
        for (place, weighed) in (0..).zip(&self.heap) {
            if let Some(entry) = self.entries.get_mut(index(weighed.entry)) {
                entry.place = place;
            }
        }
    }

    /// Sinks an entry that became heavier, at this heap index; lighter ones move up.
    fn sink(&mut self, mut place: usize, heavier: Weighed) {
        loop {
            let left = place * 2 + 1;
            let below = [left, left + 1].into_iter();
            let lighter = below
                .filter_map(|at| Some((*self.heap.get(at)?, at)))
                .min_by_key(|(below, _)| below.weight);
            match lighter.filter(|(below, _)| below.weight < heavier.weight) {
                Some((below, at)) => {
                    self.put(place, below);
                    place = at;
                }
                None => return self.put(place, heavier),
            }
        }
    }

    fn put(&mut self, place: usize, weighed: Weighed) {
        if let Some(at) = self.heap.get_mut(place)
            && let Some(entry) = self.entries.get_mut(index(weighed.entry))
        {
            *at = weighed;
            entry.place = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
}

/// Returns the maximum memory of an entry in bytes, key text excluded: the entry with an eighth
/// unused, and its entries in the heap and the table.
pub(super) const fn entry_bytes<T>() -> usize {
    let room = size_of::<SummaryEntry<T>>();
    room + (room >> 3) + size_of::<Weighed>() + 12
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn hash(key: &str) -> u64 {
        key.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
    }

    fn summary(keys: &[String], places: usize) -> Summary<()> {
        let mut summary = Summary::default();
        for key in keys {
            let room =
                if summary.entries.len() < places { FreeMemory::More } else { FreeMemory::Same };
            assert!(summary.note(key, hash(key), room, || ()).is_some());
        }
        summary
    }

    #[test]
    fn the_worked_example() {
        let summary = summary(&["a", "a", "b", "c"].map(str::to_owned), 2);
        let mut entries: Vec<_> = summary
            .entries
            .iter()
            .map(|entry| (&*entry.key, entry.counted, entry.inherited))
            .collect();
        entries.sort_unstable();
        assert_eq!(entries, [("a", 2, 0), ("c", 1, 1)]);
        assert_eq!(summary.floor(), 2);
    }

    #[test]
    fn where_there_is_no_place_nothing_is_noted() {
        assert!(Summary::<()>::default().note("a", 1, FreeMemory::Same, || ()).is_none());
    }

    proptest! {
        #[test]
        fn weights_are_within_the_bound_and_heavy_keys_are_here(
            keys in prop::collection::vec("[a-h]|[a-z]{2}", 1..400),
            places in 1usize..20,
        ) {
            let summary = summary(&keys, places);
            let mut truth: HashMap<&str, u64> = HashMap::new();
            keys.iter().for_each(|key| {
                let count = truth.entry(key).or_default();
                *count = count.saturating_add(1);
            });
            let error = u64::try_from(keys.len().checked_div(places).unwrap()).unwrap();
            prop_assert!(summary.entries.len() <= places);
            for entry in &summary.entries {
                let count = truth[&*entry.key];
                prop_assert!(entry.counted <= count && count <= entry.weight(), "{} {} {}", entry.counted, count, entry.weight());
                prop_assert!(entry.inherited <= error);
            }
            for (key, count) in truth {
                let is_here = summary.has(key, hash(key));
                prop_assert!(is_here || (count <= error && count <= summary.floor()));
            }
            prop_assert_eq!(summary.entries.iter().map(SummaryEntry::weight).sum::<u64>(), u64::try_from(keys.len()).unwrap());
        }

        #[test]
        fn the_lightest_is_found_at_once(keys in prop::collection::vec("[a-z]{1,2}", 1..300), places in 1usize..40) {
            let summary = summary(&keys, places);
            let least = summary.entries.iter().map(SummaryEntry::weight).min();
            prop_assert!(summary.heap.is_empty() || summary.heap.first().map(|lightest| lightest.weight) == least);
            prop_assert!(summary.heap.is_empty() || summary.heap.len() == summary.entries.len());
            for (place, weighed) in summary.heap.iter().enumerate() {
                let entry = &summary.entries[index(weighed.entry)];
                prop_assert_eq!((index(entry.place), entry.weight()), (place, weighed.weight));
                prop_assert!(place == 0 || summary.heap[place.saturating_sub(1) / 2].weight <= weighed.weight);
            }
        }
    }
}
