//! Tallies of the request entries that used a counter, stored beside its state and bounded.
//!
//! Each recorded entry has the hits charged for it and the hits denied; hits that are denied but
//! still charged are in both. At most `PLACES` entries have a tally of their own. The next one
//! evicts the entry with the fewest hits, whose hits move to the tally of all other entries, which
//! has an empty name. Heavy users thus keep their tallies.
//!
//! Example, with space for two: ann is charged 5 hits, bob 1, cy 2. bob is evicted, and the tallies
//! are ann 5, cy 2, all others 1.
//!
//! `lua/beside.lua` performs the same steps.

use super::quota::MAX_HITS;
use super::{Limit, State};

/// Maximum number of entries with a tally of their own.
const PLACES: usize = 40;
/// Name of the tally of all other entries.
const OTHERS: &[u8] = b"";
/// Overhead of one heap allocation in bytes.
const ALLOCATION: usize = 16;

/// The hits of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTally {
    /// Entry as `key=value`; empty for all entries without a tally of their own.
    pub entry: Box<[u8]>,
    /// Hits charged to the counter.
    pub charged: u64,
    /// Hits that the limit denied; hits that are denied but still charged are in both.
    pub denied: u64,
}

/// The entries of a request to tally with a counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded<'a> {
    /// Entries as `key=value`.
    pub entries: &'a [Vec<u8>],
    /// `true` if there is memory for new tallies; otherwise new entries count among all others.
    pub may_grow: bool,
}

/// The tallies of one counter, unordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tallies(Vec<EntryTally>);

/// Sorts tallies by charged, then denied hits, highest first, with that of all others last.
pub fn ranked(mut tallies: Vec<EntryTally>) -> Vec<EntryTally> {
    tallies.sort_by(|one, other| {
        other.rank().cmp(&one.rank()).then_with(|| one.entry.cmp(&other.entry))
    });
    tallies
}

impl Limit {
    /// Adds hits to the tallies of entries. Returns `true` if the counter changed.
    pub fn tally(
        &self,
        state: &mut State,
        recorded: Recorded<'_>,
        charged: u64,
        denied: u64,
    ) -> bool {
        let Recorded { entries, may_grow } = recorded;
        if (charged, denied) == (0, 0) || !state.tallies_grow(recorded) {
            return false;
        }
        state.attach(self, |extended| {
            let tallies = &mut extended.tallies;
            entries.iter().for_each(|entry| tallies.add(entry, charged, denied, may_grow));
        });
        true
    }

    /// Subtracts the hits of an undone charge from the tallies of its entries.
    pub fn untally(&self, state: &mut State, entries: &[Vec<u8>], charged: u64) {
        if !entries.is_empty() && !state.tallies().is_empty() {
            state.attach(self, |extended| {
                let tallies = &mut extended.tallies;
                entries.iter().for_each(|entry| tallies.take_off(entry, charged));
            });
        }
    }
}

impl State {
    /// Returns `true` if hits of these entries are tallied.
    pub(super) fn tallies_grow(&self, recorded: Recorded<'_>) -> bool {
        !recorded.entries.is_empty() && (recorded.may_grow || !self.tallies().is_empty())
    }

    /// Returns the tallies, unordered.
    pub fn tallies(&self) -> &[EntryTally] {
        self.extended().map_or(&[], |extended| &extended.tallies.0)
    }

    /// Returns the number of bytes by which tallying these entries may grow the counter.
    pub fn tallying_bytes(&self, entries: &[Vec<u8>]) -> usize {
        let new = entries
            .iter()
            .filter(|entry| self.tallies().iter().all(|tally| *tally.entry != ***entry))
            .map(|entry| EntryTally::bytes_of(entry))
            .fold(0, usize::saturating_add);
        match (new, self.extended()) {
            (0, _) => 0,
            // The first eviction adds the tally of all other entries.
            (_, Some(_)) => new.saturating_add(EntryTally::bytes_of(OTHERS)),
            (_, None) => new.saturating_add(State::EXTENSION_BYTES).saturating_add(ALLOCATION),
        }
    }
}

impl EntryTally {
    fn is_named(&self) -> bool {
        *self.entry != *OTHERS
    }

    /// Returns the rank in a sorted list: the highest comes first.
    fn rank(&self) -> (bool, u64, u64) {
        (self.is_named(), self.charged, self.denied)
    }

    fn hits(&self) -> u64 {
        self.charged.saturating_add(self.denied)
    }

    fn bytes_of(entry: &[u8]) -> usize {
        let allocation = if entry.is_empty() { 0 } else { ALLOCATION };
        size_of::<Self>().saturating_add(entry.len()).saturating_add(allocation)
    }
}

impl Tallies {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.iter().map(|tally| EntryTally::bytes_of(&tally.entry)).fold(0, usize::saturating_add)
    }

    fn add(&mut self, entry: &[u8], charged: u64, denied: u64, may_grow: bool) {
        let is_known = self.find(entry).is_some();
        let entry = if is_known || may_grow { entry } else { OTHERS };
        if !is_known
            && entry != OTHERS
            && self.0.iter().filter(|tally| tally.is_named()).count() >= PLACES
        {
            self.make_way();
        }
        self.add_to(entry, charged, denied);
    }

    /// Evicts the entry with the fewest hits, of equal ones the oldest, into the tally of others.
    fn make_way(&mut self) {
        let named = self.0.iter().enumerate().filter(|(_, tally)| tally.is_named());
        if let Some((least, _)) = named.min_by_key(|(_, tally)| tally.hits()) {
            let EntryTally { charged, denied, .. } = self.0.remove(least);
            self.add_to(OTHERS, charged, denied);
        }
    }

    fn add_to(&mut self, entry: &[u8], charged: u64, denied: u64) {
        match self.find(entry) {
            Some(own) => {
                own.charged = own.charged.saturating_add(charged).min(MAX_HITS);
                own.denied = own.denied.saturating_add(denied).min(MAX_HITS);
            }
            None => {
                self.0.reserve_exact(1);
                self.0.push(EntryTally { entry: entry.into(), charged, denied });
            }
        }
    }

    /// Subtracts hits from the entry; if it has been evicted, from the tally of all others.
    fn take_off(&mut self, entry: &[u8], charged: u64) {
        let entry = if self.find(entry).is_some() { entry } else { OTHERS };
        if let Some(own) = self.find(entry) {
            own.charged = own.charged.saturating_sub(charged);
        }
    }

    fn find(&mut self, entry: &[u8]) -> Option<&mut EntryTally> {
        self.0.iter_mut().find(|tally| *tally.entry == *entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, u64, u64)]) -> Vec<EntryTally> {
        let tally = |(entry, charged, denied): &(&str, u64, u64)| EntryTally {
            entry: entry.as_bytes().into(),
            charged: *charged,
            denied: *denied,
        };
        all.iter().map(tally).collect()
    }

    fn names(number: usize) -> String {
        format!("user={number:02}")
    }

    /// Returns as many tallies as fit, the first with one hit, the next with two, and so on.
    fn full() -> Tallies {
        let mut tallies = Tallies::default();
        (1..=PLACES)
            .for_each(|number| tallies.add(names(number).as_bytes(), number as u64, 0, true));
        tallies
    }

    #[test]
    fn charged_and_denied_hits_are_counted_apart_and_the_greatest_users_come_first() {
        let mut tallies = Tallies::default();
        tallies.add(b"user=ann", 2, 0, true);
        tallies.add(b"user=bob", 0, 9, true);
        tallies.add(b"user=ann", 1, 4, true);
        tallies.add(b"user=cy", 0, 9, true);
        assert_eq!(
            ranked(tallies.0),
            of(&[("user=ann", 3, 4), ("user=bob", 0, 9), ("user=cy", 0, 9)])
        );
    }

    #[test]
    fn the_entry_with_the_fewest_hits_makes_way_into_all_others() {
        let mut tallies = full();
        tallies.add(b"user=new", 0, 1, true);
        tallies.add(b"user=newer", 3, 0, true);
        let ranked = ranked(tallies.0);
        assert_eq!(ranked.len(), PLACES + 1);
        // The first one evicted had one hit, as has the new one, which is evicted next.
        assert_eq!(ranked.last(), of(&[("", 1, 1)]).first());
        assert!(ranked.iter().any(|tally| *tally.entry == *b"user=02"));
        assert!(
            !ranked.iter().any(|tally| [&b"user=01"[..], b"user=new"].contains(&&*tally.entry))
        );
    }

    #[test]
    fn of_entries_with_as_few_hits_the_oldest_makes_way() {
        let mut tallies = Tallies::default();
        (0..PLACES + 3).for_each(|number| tallies.add(names(number).as_bytes(), 1, 0, true));
        let named = tallies.0.iter().filter(|tally| tally.is_named());
        let kept: Vec<&[u8]> = named.map(|tally| &*tally.entry).collect();
        let latest: Vec<String> = (3..PLACES + 3).map(names).collect();
        assert_eq!(kept, latest.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn no_entry_makes_way_for_a_known_one_or_for_all_others() {
        let mut tallies = full();
        tallies.add(names(PLACES).as_bytes(), 1, 0, true);
        assert!(tallies.0.iter().all(EntryTally::is_named), "none has made way");
        tallies.add(b"user=new", 1, 0, false);
        assert_eq!(ranked(tallies.0).last(), of(&[("", 1, 0)]).first());
    }

    #[test]
    fn no_hit_is_lost_whoever_comes() {
        let mut tallies = Tallies::default();
        for number in 0..1_000 {
            tallies.add(names(number % 97).as_bytes(), 1, 2, true);
        }
        let sum = tallies
            .0
            .iter()
            .fold((0, 0), |sum, tally| (sum.0 + tally.charged, sum.1 + tally.denied));
        assert_eq!((sum, tallies.0.len()), ((1_000, 2_000), PLACES + 1));
    }

    #[test]
    fn without_memory_new_entries_count_among_all_others_and_known_ones_as_ever() {
        let mut tallies = Tallies::default();
        tallies.add(b"user=ann", 1, 0, true);
        tallies.add(b"user=ann", 1, 0, false);
        tallies.add(b"user=bob", 1, 0, false);
        tallies.add(b"user=cy", 1, 0, false);
        assert_eq!(ranked(tallies.0), of(&[("user=ann", 2, 0), ("", 2, 0)]));
    }

    #[test]
    fn a_take_back_reduces_the_entry_or_the_sum_that_replaced_it() {
        let mut tallies = full();
        tallies.add(b"user=new", 5, 0, true);
        tallies.take_off(b"user=new", 2);
        tallies.take_off(b"user=01", 9);
        let of_entry =
            |entry: &[u8]| tallies.0.iter().find(|tally| *tally.entry == *entry).unwrap().charged;
        assert_eq!((of_entry(b"user=new"), of_entry(OTHERS)), (3, 0));
    }
}
