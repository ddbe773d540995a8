//! The most frequent of any number of keys, in bounded memory.

use crate::descriptor::hash_of;
use crate::printable::counted;
use crate::telemetry::journal::summary::{FreeMemory, Summary};

/// Maximum number of keys that are counted individually.
const MAX_COUNTED: usize = 1_000;

/// Keys and their counts.
#[derive(Debug, Default)]
pub(super) struct TopKeys {
    keys: Summary<()>,
    total: u64,
}

/// A key and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrequentKey<'t> {
    pub(super) key: &'t str,
    pub(super) count: u64,
    pub(super) is_estimate: bool,
}

impl TopKeys {
    pub(super) fn add(&mut self, key: &str) {
        self.total += 1;
        let room = if self.keys.entries().len() < MAX_COUNTED {
            FreeMemory::More
        } else {
            FreeMemory::Same
        };
        self.keys.note(key, hash_of(key.as_bytes()), room, || ());
    }

    /// Returns the total count of all keys.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Formats the number of keys: exact, or a lower bound.
    pub(super) fn keys(&self) -> String {
        let (count, is_exact) = self.key_count();
        format!("{}{}", if is_exact { "" } else { "more than " }, counted(count, "key"))
    }

    /// Returns the number of keys, and `true` if it is exact; it is a lower bound if not.
    pub(super) fn key_count(&self) -> (usize, bool) {
        let entries = self.keys.entries();
        (entries.len(), entries.iter().all(|entry| entry.inherited == 0))
    }

    /// Returns the most frequent keys and their counts.
    pub(super) fn first(&self, number: usize) -> impl Iterator<Item = FrequentKey<'_>> {
        let mut entries: Vec<_> = self.keys.entries().iter().collect();
        entries.sort_unstable_by(|one, other| {
            other.weight().cmp(&one.weight()).then_with(|| one.key.cmp(&other.key))
        });
        entries.into_iter().take(number).map(|entry| FrequentKey {
            key: &entry.key,
            count: entry.weight(),
            is_estimate: entry.inherited != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_are_found_among_more_keys_than_are_counted() {
        let mut top = TopKeys::default();
        for number in 0..20_000 {
            top.add(&format!("rare {number}"));
            top.add(&format!("frequent {}", number % 3));
        }
        let first: Vec<_> = top.first(3).map(|first| first.key.to_owned()).collect();
        assert!(first.iter().all(|key| key.starts_with("frequent")), "{first:?}");
        assert_eq!(
            (top.total(), top.keys.entries().len(), top.keys().as_str()),
            (40_000, MAX_COUNTED, "more than 1000 keys")
        );
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top = TopKeys::default();
        ["b", "a", "b"].into_iter().for_each(|key| top.add(key));
        assert_eq!(
            top.first(9).map(|first| (first.count, first.key)).collect::<Vec<_>>(),
            [(2, "b"), (1, "a")]
        );
        assert_eq!(top.keys(), "2 keys");
    }
}
