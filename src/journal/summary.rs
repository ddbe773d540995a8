//! The keys that came most often, of a stream of many more: space-saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! While there is room each key has a count of its own. When there is none, a new key takes the place of the one with the least
//! weight and inherits that weight, as what it may have missed. So with m places and N notes a weight is never too small and at
//! most N / m too large, and each key that came more often than N / m is there.
//!
//! Worked example, two places: a, a, b, c leaves a with weight 2 and c with weight 2, of which 1 is inherited from b.

use hashbrown::HashTable;

/// Keys with their weights, and something more of each.
#[derive(Clone, Debug)]
pub struct Summary<T> {
    slots: Vec<Slot<T>>,
    by_key: HashTable<u32>,
    /// All slots, none lighter than its parent: a binary heap. Empty until a key has to go; from then on there are no more slots
    /// than now.
    heap: Vec<Weighed>,
    /// How often a key may have come that is not here, for what was told by others.
    others: u64,
}

/// A slot in the heap, with its weight beside it: to find the lightest, slots are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weighed {
    weight: u64,
    slot: u32,
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct Slot<T> {
    /// The key.
    pub key: Box<str>,
    hash: u64,
    /// Where it is in the heap, once there is one.
    place: u32,
    /// Notes while the key was here.
    pub counted: u64,
    /// Notes that it may have had before, at most.
    pub inherited: u64,
    /// What else is known.
    pub value: T,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The key was here.
    Known,
    /// It is now.
    Added,
    /// It is now, in the place of another, whose text had so many bytes.
    Replaced {
        /// Bytes.
        text: usize,
    },
}

/// What a new key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A place more.
    More,
    /// The place of another.
    Same,
    /// Nothing.
    None,
}

impl<T> Slot<T> {
    /// Notes of the key, at most.
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
    /// Counts one of `key`, whose value `begin` makes where it is new. `None` where there is no place at all.
    pub fn note(&mut self, key: &str, hash: u64, room: Room, begin: impl FnOnce() -> T) -> Option<(Noted, &mut T)> {
        let known = self.find(key, hash);
        let (number, noted) = match known {
            Some(number) => (number, Noted::Known),
            None if room == Room::More && self.heap.is_empty() => (self.add(key, hash, begin())?, Noted::Added),
            None if room == Room::None => return None,
            None => {
                let (number, text) = self.replace(key, hash, begin())?;
                (number, Noted::Replaced { text })
            }
        };
        let slot = self.slots.get_mut(index(number))?;
        slot.counted = slot.counted.saturating_add(1);
        let (place, weight) = (slot.place, slot.weight());
        if !self.heap.is_empty() {
            self.sink(index(place), Weighed { weight, slot: number });
        }
        Some((noted, &mut self.slots.get_mut(index(number))?.value))
    }

    /// One that was told, to be read: keys with their counts, what each may have had besides, and what is known of it. `others`:
    /// how often a key may have come that is not among them.
    pub(super) fn told(keys: impl Iterator<Item = (Box<str>, u64, u64, T)>, others: u64) -> Self {
        let slot = |(key, counted, inherited, value)| Slot { key, hash: 0, place: 0, counted, inherited, value };
        Self { slots: keys.map(slot).collect(), others, ..Self::default() }
    }

    /// Whether a key is here.
    #[cfg(test)]
    pub(super) fn has(&self, key: &str, hash: u64) -> bool {
        self.find(key, hash).is_some()
    }

    /// All that is known, in no order.
    pub fn slots(&self) -> &[Slot<T>] {
        &self.slots
    }

    /// How often a key may have come that is not here, at most.
    pub(super) fn floor(&self) -> u64 {
        self.heap.first().map_or(self.others, |lightest| lightest.weight)
    }

    fn find(&self, key: &str, hash: u64) -> Option<u32> {
        let is_it = |number: &u32| self.slots.get(index(*number)).is_some_and(|slot| *slot.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    fn add(&mut self, key: &str, hash: u64, value: T) -> Option<u32> {
        let number = u32::try_from(self.slots.len()).ok()?;
        // Not twice the room at once: what is not used yet counts too.
        if self.slots.len() == self.slots.capacity() {
            let more = (self.slots.len() >> 3).max(4);
            self.slots.reserve_exact(more);
        }
        let slot = Slot { key: key.into(), hash, place: 0, counted: 0, inherited: 0, value };
        self.slots.push(slot);
        let slots = &self.slots;
        self.by_key.insert_unique(hash, number, |number| slots.get(index(*number)).map_or(0, |slot| slot.hash));
        Some(number)
    }

    /// Puts a key in the place of the lightest: which, and the bytes of its text.
    fn replace(&mut self, key: &str, hash: u64, value: T) -> Option<(u32, usize)> {
        if self.heap.is_empty() {
            self.weigh();
        }
        let number = self.heap.first()?.slot;
        let slot = self.slots.get_mut(index(number))?;
        if let Ok(entry) = self.by_key.find_entry(slot.hash, |found| *found == number) {
            entry.remove();
        }
        let (inherited, text) = (slot.weight(), slot.key.len());
        *slot = Slot { key: key.into(), hash, place: slot.place, counted: 0, inherited, value };
        let slots = &self.slots;
        self.by_key.insert_unique(hash, number, |number| slots.get(index(*number)).map_or(0, |slot| slot.hash));
        Some((number, text))
    }

    /// Begins the heap: in ascending order it is one.
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

    /// Puts what has become heavier, and was at this place of the heap, to where it belongs: those that are lighter move up.
    fn sink(&mut self, mut place: usize, heavier: Weighed) {
        loop {
            let left = place.saturating_mul(2).saturating_add(1);
            let below = [left, left.saturating_add(1)].into_iter();
            let lighter = below.filter_map(|at| Some((*self.heap.get(at)?, at))).min_by_key(|(below, _)| below.weight);
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
        if let (Some(at), Some(slot)) = (self.heap.get_mut(place), self.slots.get_mut(index(weighed.slot))) {
            *at = weighed;
            slot.place = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
}

/// What one slot takes besides its key's text, at most: itself with an eighth unused, and its places in the heap and in the table.
pub(super) const fn slot_bytes<T>() -> usize {
    let room = size_of::<Slot<T>>();
    room.saturating_add(room >> 3).saturating_add(size_of::<Weighed>()).saturating_add(12)
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
            let room = if summary.slots.len() < places { Room::More } else { Room::Same };
            assert!(summary.note(key, hash(key), room, || ()).is_some());
        }
        summary
    }

    #[test]
    fn the_worked_example() {
        let summary = summary(&["a", "a", "b", "c"].map(str::to_owned), 2);
        let mut slots: Vec<_> = summary.slots.iter().map(|slot| (&*slot.key, slot.counted, slot.inherited)).collect();
        slots.sort_unstable();
        assert_eq!(slots, [("a", 2, 0), ("c", 1, 1)]);
        assert_eq!(summary.floor(), 2);
    }

    #[test]
    fn where_there_is_no_place_nothing_is_noted() {
        assert!(Summary::<()>::default().note("a", 1, Room::Same, || ()).is_none());
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
            prop_assert_eq!(summary.slots.iter().map(Slot::weight).sum::<u64>(), u64::try_from(keys.len()).unwrap());
        }

        #[test]
        fn the_lightest_is_found_at_once(keys in prop::collection::vec("[a-z]{1,2}", 1..300), places in 1usize..40) {
            let summary = summary(&keys, places);
            let least = summary.slots.iter().map(Slot::weight).min();
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
