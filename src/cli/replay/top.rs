//! The keys that came most often, of any number of keys, in bounded room: space-saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! While there is room each key has a count of its own. When there is none, a new key takes the place of the rarest and inherits
//! its count, so that a count is never too small, and too large by what was inherited at most.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Keys that are counted one by one.
const PLACES: usize = 1_000;

/// Keys and how often they came.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// Of each key the count, and what of it is inherited.
    counts: HashMap<Arc<str>, (u64, u64)>,
    by_count: BTreeSet<(u64, Arc<str>)>,
    total: u64,
}

impl Top {
    pub(super) fn add(&mut self, key: String) {
        self.total = self.total.saturating_add(1);
        let known = self.counts.remove_entry(key.as_str());
        let (key, (count, inherited)) = match known {
            Some(known) => known,
            None if self.counts.len() < PLACES => (key.into(), (0, 0)),
            None => {
                let rarest = self.by_count.pop_first();
                let count = rarest.map_or(0, |(count, rarest)| {
                    self.counts.remove(&rarest);
                    count
                });
                (key.into(), (count, count))
            }
        };
        self.by_count.remove(&(count, Arc::clone(&key)));
        let count = count.saturating_add(1);
        self.by_count.insert((count, Arc::clone(&key)));
        self.counts.insert(key, (count, inherited));
    }

    /// How many came.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many keys: exactly, or that there were at least so many.
    pub(super) fn keys(&self) -> String {
        let is_exact = self.counts.values().all(|(_, inherited)| *inherited == 0);
        let plural = if self.counts.len() == 1 { "" } else { "s" };
        format!("{}{} key{plural}", if is_exact { "" } else { "more than " }, self.counts.len())
    }

    /// Those that came most often, and how often; `~` where that is an estimate.
    pub(super) fn first(&self, number: usize) -> impl Iterator<Item = (String, &str)> {
        self.by_count.iter().rev().take(number).map(|(count, key)| {
            let is_exact = self.counts.get(key).is_some_and(|(_, inherited)| *inherited == 0);
            (format!("{}{count}", if is_exact { "" } else { "~" }), &**key)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequent_are_found_among_many_more_keys_than_there_are_places() {
        let mut top = Top::default();
        for number in 0..20_000 {
            top.add(format!("rare {number}"));
            top.add(format!("frequent {}", number % 3));
        }
        let first: Vec<_> = top.first(3).map(|(_, key)| key.to_owned()).collect();
        assert!(first.iter().all(|key| key.starts_with("frequent")), "{first:?}");
        assert_eq!((top.total(), top.counts.len(), top.keys().as_str()), (40_000, PLACES, "more than 1000 keys"));
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top = Top::default();
        ["b", "a", "b"].into_iter().for_each(|key| top.add(key.to_owned()));
        assert_eq!(top.first(9).collect::<Vec<_>>(), [("2".to_owned(), "b"), ("1".to_owned(), "a")]);
        assert_eq!(top.keys(), "2 keys");
    }
}
