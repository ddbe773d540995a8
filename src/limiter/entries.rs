//! Lookup of the request entries that rules record.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::descriptor::{Entry, Request};

/// Maximum number of entries for a linear search; more are indexed by key.
const FEW: usize = 32;

/// An index of the first entry with each key, over all descriptors of a request.
pub(super) struct FirstEntries<'r, 'e> {
    request: &'r Request<'e>,
    /// Built at the first lookup in a request with many entries.
    by_key: OnceCell<HashMap<&'e [u8], &'r Entry<'e>>>,
}

impl<'r, 'e> FirstEntries<'r, 'e> {
    pub(super) fn of(request: &'r Request<'e>) -> Self {
        Self { request, by_key: OnceCell::new() }
    }

    fn entries(&self) -> impl Iterator<Item = &'r Entry<'e>> + use<'r, 'e> {
        self.request.descriptors.iter().flat_map(|descriptor| &descriptor.entries)
    }

    /// Returns the first entry with a key.
    pub(super) fn with_key(&self, key: &[u8]) -> Option<&'r Entry<'e>> {
        let lengths = self.request.descriptors.iter().map(|descriptor| descriptor.entries.len());
        if self.request.descriptors.len() <= FEW && lengths.sum::<usize>() <= FEW {
            return self.entries().find(|entry| entry.key == key);
        }
        let by_key = self.by_key.get_or_init(|| {
            let mut by_key = HashMap::new();
            for entry in self.entries() {
                by_key.entry(entry.key).or_insert(entry);
            }
            by_key
        });
        by_key.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::judge::Hits;
    use crate::descriptor::Descriptor;

    #[test]
    fn the_first_entry_with_a_key_is_found_among_few_and_many() {
        for count in [1usize, FEW, FEW + 1, 1_000] {
            let keys: Vec<String> = (0..count).map(|number| (number % 300).to_string()).collect();
            let values: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            let entries = keys
                .iter()
                .zip(&values)
                .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() });
            let of = |entry| Descriptor {
                entries: [entry].into_iter().collect(),
                hits: Hits::Charge(1),
                hold: None,
                limit: None,
            };
            let request = Request { domain: "d", descriptors: entries.map(of).collect() };
            let found = FirstEntries::of(&request);
            for number in 0..count.min(300) {
                assert_eq!(
                    found.with_key(keys[number].as_bytes()).unwrap().value,
                    values[number].as_bytes()
                );
            }
            assert_eq!(found.with_key(b"none"), None);
            assert_eq!(found.by_key.get().is_some(), count > FEW, "an index of many");
        }
    }

    #[test]
    fn many_entries_of_few_descriptors_have_an_index_too_and_so_have_many_descriptors() {
        for (descriptors, entries) in [(1, FEW + 1), (FEW + 1, 0)] {
            let one = Entry { key: b"a", value: b"1" };
            let of = |_| Descriptor {
                entries: [one].into_iter().cycle().take(entries).collect(),
                hits: Hits::Charge(1),
                hold: None,
                limit: None,
            };
            let request = Request { domain: "d", descriptors: (0..descriptors).map(of).collect() };
            let found = FirstEntries::of(&request);
            assert_eq!(found.with_key(b"a").is_some(), entries > 0);
            assert!(found.by_key.get().is_some());
        }
    }
}
