//! The most frequent keys of a larger stream, by space-saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! While there is memory, each key has its own count. After that, a new key replaces the one with
//! the least weight and inherits that weight as an upper bound of its missed occurrences. With m
//! slots and N occurrences, a weight is thus never too small and at most N / m too large, and every
//! key with more than N / m occurrences is present.
//!
//! Worked example, two slots: a, a, b, c leaves a with weight 2 and c with weight 2, of which 1 is
//! inherited from b.

use hashbrown::HashTable;

/// A set of keys with their weights, and a value for each.
#[derive(Clone, Debug)]
pub struct Summary<T> {
    slots: Vec<SummaryEntry<T>>,
    by_key: HashTable<u32>,
    /// All slots as a binary min-heap by weight. Empty until the first key is replaced; after that,
    /// no slots are added.
    heap: Vec<Weighed>,
    /// Maximum number of occurrences of an absent key, for a summary received from another process.
    others: u64,
}

/// A heap entry with the weight of its slot, so that heap operations need not read slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weighed {
    weight: u64,
    slot: u32,
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
    /// Enough for a new slot.
    More,
    /// Only the slot of another key.
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
        Self { slots: Vec::new(), by_key: HashTable::new(), heap: Vec::new(), others: 0 }
    }
}

impl<T> Summary<T> {
    /// Counts one occurrence of `key`; `begin` creates the value of a new key. `None` if there is
    /// no slot for it.
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
        let slot = self.slots.get_mut(index(number))?;
        slot.counted += 1;
        let place = slot.place;
        let weight = slot.weight();
        if !self.heap.is_empty() {
            self.sink(index(place), Weighed { weight, slot: number });
        }
        Some((noted, &mut self.slots.get_mut(index(number))?.value))
    }

    /// Creates a summary from a received message: keys with their counts, their maximum missed
    /// occurrences and their values. `others` bounds the occurrences of an absent key.
    pub(super) fn from_peer(
        keys: impl Iterator<Item = (Box<str>, u64, u64, T)>,
        others: u64,
    ) -> Self {
        let slots = keys.map(|(key, counted, inherited, value)| SummaryEntry {
            key,
            hash: 0,
            place: 0,
            counted,
            inherited,
            value,
        });
        Self { slots: slots.collect(), others, ..Self::default() }
    }

    /// Returns `true` if a key is present.
    #[cfg(test)]
    pub(super) fn has(&self, key: &str, hash: u64) -> bool {
        self.find(key, hash).is_some()
    }

    /// Returns all slots, unordered.
    pub fn slots(&self) -> &[SummaryEntry<T>] {
        &self.slots
    }

    /// Returns the maximum number of occurrences of an absent key.
    pub(super) fn floor(&self) -> u64 {
        self.heap.first().map_or(self.others, |lightest| lightest.weight)
    }

    fn find(&self, key: &str, hash: u64) -> Option<u32> {
        let is_it =
            |number: &u32| self.slots.get(index(*number)).is_some_and(|slot| *slot.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    fn add(&mut self, key: &str, hash: u64, value: T) -> Option<u32> {
        let number = u32::try_from(self.slots.len()).ok()?;
        // Grows by an eighth instead of doubling, since unused capacity counts too.
        if self.slots.len() == self.slots.capacity() {
            let more = (self.slots.len() >> 3).max(4);
            self.slots.reserve_exact(more);
        }
        let slot =
            SummaryEntry { key: key.into(), hash, place: 0, counted: 0, inherited: 0, value };
        self.slots.push(slot);
        let slots = &self.slots;
        self.by_key.insert_unique(hash, number, |number| {
            slots.get(index(*number)).map_or(0, |slot| slot.hash)
        });
        Some(number)
    }

    /// Replaces the lightest key. Returns the slot and the length of the replaced text in bytes.
    fn replace(&mut self, key: &str, hash: u64, value: T) -> Option<(u32, usize)> {
        if self.heap.is_empty() {
            self.weigh();
        }
        let number = self.heap.first()?.slot;
        let slot = self.slots.get_mut(index(number))?;
        if let Ok(entry) = self.by_key.find_entry(slot.hash, |found| *found == number) {
            entry.remove();
        }
        let inherited = slot.weight();
        let text = slot.key.len();
        *slot =
            SummaryEntry { key: key.into(), hash, place: slot.place, counted: 0, inherited, value };
        let slots = &self.slots;
        self.by_key.insert_unique(hash, number, |number| {
            slots.get(index(*number)).map_or(0, |slot| slot.hash)
        });
        Some((number, text))
    }

    /// Builds the heap: a sorted list is one.
    fn weigh(&mut self) {
        let slots = (0..).zip(&self.slots);
        self.heap = slots.map(|(slot, found)| Weighed { weight: found.weight(), slot }).collect();
        self.heap.sort_unstable();
        for (place, weighed) in (0..).zip(&self.heap) {
            if let Some(slot) = self.slots.get_mut(index(weighed.slot)) {
                slot.place = place;
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
            && let Some(slot) = self.slots.get_mut(index(weighed.slot))
        {
            *at = weighed;
            slot.place = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
}

/// Returns the maximum memory of a slot in bytes, key text excluded: the slot with an eighth
/// unused, and its entries in the heap and the table.
pub(super) const fn slot_bytes<T>() -> usize {
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
                if summary.slots.len() < places { FreeMemory::More } else { FreeMemory::Same };
            assert!(summary.note(key, hash(key), room, || ()).is_some());
        }
        summary
    }

    #[test]
    fn the_worked_example() {
        let summary = summary(&["a", "a", "b", "c"].map(str::to_owned), 2);
        let mut slots: Vec<_> =
            summary.slots.iter().map(|slot| (&*slot.key, slot.counted, slot.inherited)).collect();
        slots.sort_unstable();
        assert_eq!(slots, [("a", 2, 0), ("c", 1, 1)]);
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
            prop_assert!(summary.slots.len() <= places);
            for slot in &summary.slots {
                let count = truth[&*slot.key];
                prop_assert!(slot.counted <= count && count <= slot.weight(), "{} {} {}", slot.counted, count, slot.weight());
                prop_assert!(slot.inherited <= error);
            }
            for (key, count) in truth {
                let is_here = summary.has(key, hash(key));
                prop_assert!(is_here || (count <= error && count <= summary.floor()));
            }
            prop_assert_eq!(summary.slots.iter().map(SummaryEntry::weight).sum::<u64>(), u64::try_from(keys.len()).unwrap());
        }

        #[test]
        fn the_lightest_is_found_at_once(keys in prop::collection::vec("[a-z]{1,2}", 1..300), places in 1usize..40) {
            let summary = summary(&keys, places);
            let least = summary.slots.iter().map(SummaryEntry::weight).min();
            prop_assert!(summary.heap.is_empty() || summary.heap.first().map(|lightest| lightest.weight) == least);
            prop_assert!(summary.heap.is_empty() || summary.heap.len() == summary.slots.len());
            for (place, weighed) in summary.heap.iter().enumerate() {
                let slot = &summary.slots[index(weighed.slot)];
                prop_assert_eq!((index(slot.place), slot.weight()), (place, weighed.weight));
                prop_assert!(place == 0 || summary.heap[place.saturating_sub(1) / 2].weight <= weighed.weight);
            }
        }
    }
}
