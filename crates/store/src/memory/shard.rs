//! A shard of the memory store: a hash table from keys to counters, counters in pages, and a clock
//! hand that cycles through them to find expired counters.
//!
//! A counter costs an entry of a page, its key and 10 to 24 bytes of table, which is more than
//! three eighths full. Pages never move, so growth copies only the table. The table has the hashes:
//! computed from the keys, they would cost a cache miss each, and all shards grow at about the same
//! number of counters.
#![allow(clippy::arithmetic_side_effects, reason = "numbers and bytes of counters in memory")]

mod index;

use std::sync::Arc;

use hashbrown::HashTable;
use tollgate_core::algorithm::State;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::{CounterKey, hash_of};

use self::index::IndexEntry;
use super::budget::{MemoryAccount, MemoryBudget};

/// Entries per page: fills 8 KiB, which the allocator serves with little waste.
const PAGE: usize = (8 << 10) / size_of::<CounterEntry>();
/// Bytes of a counter besides the heap memory of its key and state: the entry, its share of the
/// table, and the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<CounterEntry>() + 24 + 16;
/// Entries visited per insert to find expired counters: two for each one filled, so that the hand
/// keeps up.
const SWEEP_PER_INSERT: usize = 2;
/// Entries visited before a new counter is refused.
const SWEEP_WHEN_FULL: usize = 128;
/// Counters expire at ticks of 2^21 us (two seconds), so that four bytes hold every instant: all of
/// them are below 2^53 us.
const TICK_BITS: u32 = 21;

/// Counters with their keys and expiry times.
pub(super) struct Shard {
    table: HashTable<IndexEntry>,
    pages: Vec<Box<[CounterEntry]>>,
    /// Head of the free list.
    free: Option<u32>,
    /// Next entry to check for expiry.
    hand: u32,
    /// Lower bound on the expiry ticks of all counters, so that a full shard is not swept for each
    /// counter that it refuses.
    earliest: u32,
    /// Lower bound on the expiry ticks of the counters before the hand, and of those written since
    /// it was at the first entry.
    earliest_passed: u32,
    /// Accounts of the domains with counters in this shard.
    accounts: Vec<Arc<MemoryAccount>>,
    /// Indexes of the accounts, by the hash of the domain.
    numbers: HashTable<u32>,
}

enum CounterEntry {
    Used(StoredCounter),
    Free { next: Option<u32> },
}

struct StoredCounter {
    key: Box<[u8]>,
    /// `None` only while a request that holds the shard's lock works on it.
    state: Option<State>,
    /// First tick at which the counter may be removed.
    expires: u32,
    /// Index of the domain's account.
    domain: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            pages: Vec::new(),
            free: None,
            hand: 0,
            earliest: u32::MAX,
            earliest_passed: u32::MAX,
            accounts: Vec::new(),
            numbers: HashTable::new(),
        }
    }
}

impl Shard {
    /// Returns the number of the entry whose key has the same hash bits, nearly always the entry of
    /// this key's counter. Reads the table only.
    pub(super) fn candidate(&self, key: &CounterKey<'_>) -> Option<u32> {
        let hash = IndexEntry::hash_bits(key.hash());
        let found = self.table.find(IndexEntry::table_hash(hash), |entry| entry.hash == hash);
        found.map(|entry| entry.number)
    }

    /// Returns the number of the entry with this key's counter, of which `candidate` is the
    /// [candidate](Self::candidate).
    pub(super) fn confirm(&self, candidate: u32, key: &CounterKey<'_>) -> Option<u32> {
        if self.key(candidate) == key.bytes() { Some(candidate) } else { self.find(key) }
    }

    /// Returns the number of the entry with this key's counter.
    pub(super) fn find(&self, key: &CounterKey<'_>) -> Option<u32> {
        let hash = IndexEntry::hash_bits(key.hash());
        let found = self.table.find(IndexEntry::table_hash(hash), |entry| {
            entry.hash == hash && self.key(entry.number) == key.bytes()
        });
        found.map(|entry| entry.number)
    }

    /// Returns a counter's state.
    pub(super) fn state(&self, number: u32) -> Option<&State> {
        self.counter(number)?.state.as_ref()
    }

    /// Takes a counter's state out, to be [put back](Self::put) before unlocking.
    pub(super) fn take(&mut self, number: u32) -> Option<State> {
        self.counter_mut(number).and_then(|counter| counter.state.take())
    }

    /// Puts a counter's state back; `expires` is set if it was written.
    pub(super) fn put(&mut self, number: u32, state: State, expires: Option<Timestamp>) {
        let expires = expires.map(next_tick);
        if let Some(counter) = self.counter_mut(number) {
            counter.state = Some(state);
            counter.expires = expires.unwrap_or(counter.expires);
        }
        self.note_expiry(expires.unwrap_or(u32::MAX));
    }

    /// Lowers the bounds on expiries to that of a counter.
    fn note_expiry(&mut self, tick: u32) {
        self.earliest = self.earliest.min(tick);
        self.earliest_passed = self.earliest_passed.min(tick);
    }

    /// Reserves room for a new counter, or for `bytes` more of an existing one, removing expired
    /// counters if needed.
    pub(super) fn reserve(
        &mut self,
        budget: &MemoryBudget,
        domain: &str,
        bytes: usize,
        now: Timestamp,
    ) -> bool {
        let number = self.number(budget, domain);
        let Some(account) = self.account(number) else { return false };
        budget.take(&account, bytes) || {
            self.sweep(budget, SWEEP_WHEN_FULL, now);
            budget.take(&account, bytes)
        }
    }

    /// Corrects a reservation to the actual usage.
    pub(super) fn settle(
        &mut self,
        budget: &MemoryBudget,
        domain: &str,
        reserved: usize,
        used: usize,
    ) {
        let number = self.number(budget, domain);
        let Some(account) = self.account(number) else { return };
        budget.give(&account, reserved.saturating_sub(used));
        // A reservation covers all that one charge can allocate. Any excess is counted, but never
        // refused after the fact.
        budget.book(&account, used.saturating_sub(reserved));
    }

    /// Inserts a counter whose room is reserved.
    pub(super) fn insert(
        &mut self,
        budget: &MemoryBudget,
        key: &CounterKey<'_>,
        state: State,
        expires: Timestamp,
    ) {
        let expires = next_tick(expires);
        let domain = self.number(budget, key.domain());
        let counter =
            StoredCounter { key: key.bytes().into(), state: Some(state), expires, domain };
        self.note_expiry(expires);
        let number = self.free_entry();
        if let Some(place) = self.entry_mut(number) {
            *place = CounterEntry::Used(counter);
        }
        index::insert(&mut self.table, IndexEntry::new(number, key.hash()));
    }

    /// Removes expired counters from the next `count` entries and returns their number.
    pub(super) fn sweep(&mut self, budget: &MemoryBudget, count: usize, now: Timestamp) -> usize {
        let now = tick(now);
        let mut forgotten = 0usize;
        for _ in 0..count.min(self.entries()) {
            if self.earliest > now {
                break;
            }
            let number = self.hand;
            match self.counter(number) {
                Some(StoredCounter { expires, state: Some(_), .. }) if *expires <= now => {
                    self.forget(budget, number);
                    forgotten += 1;
                }
                Some(StoredCounter { expires, .. }) => {
                    self.earliest_passed = self.earliest_passed.min(*expires)
                }
                None => {}
            }
            self.advance_hand();
        }
        forgotten
    }

    /// Moves the hand to the next entry. Once it has passed all of them, replaces the bound.
    fn advance_hand(&mut self) {
        let next = self.hand + 1;
        self.hand =
            if usize::try_from(next).is_ok_and(|next| next < self.entries()) { next } else { 0 };
        if self.hand == 0 {
            self.earliest = std::mem::replace(&mut self.earliest_passed, u32::MAX);
        }
    }

    /// Advances the hand by a few entries, for each new counter.
    pub(super) fn sweep_a_little(&mut self, budget: &MemoryBudget, now: Timestamp) {
        self.sweep(budget, SWEEP_PER_INSERT, now);
    }

    /// Returns the keys in `count` entries from `first` on.
    pub(super) fn keys(&self, first: usize, count: usize) -> impl Iterator<Item = &[u8]> {
        let entries = self.pages.iter().flatten().skip(first).take(count);
        entries.filter_map(|entry| match entry {
            CounterEntry::Used(counter) => Some(&*counter.key),
            CounterEntry::Free { .. } => None,
        })
    }

    /// Returns the number of entries, used or free.
    pub(super) fn entries(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Returns the entry that the next sweep begins with.
    #[cfg(test)]
    pub(super) fn hand(&self) -> u32 {
        self.hand
    }

    /// Returns the bytes of the table.
    #[cfg(test)]
    pub(super) fn table_bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// Returns the number of counters.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn forget(&mut self, budget: &MemoryBudget, number: u32) {
        let hash = IndexEntry::hash_bits(hash_of(self.key(number)));
        if let Ok(entry) =
            self.table.find_entry(IndexEntry::table_hash(hash), |entry| entry.number == number)
        {
            entry.remove();
        }
        let next = self.free;
        let Some(place) = self.entry_mut(number) else { return };
        let CounterEntry::Used(counter) = std::mem::replace(place, CounterEntry::Free { next })
        else {
            return;
        };
        self.free = Some(number);
        if let Some(account) = self.account(counter.domain) {
            budget.give(&account, bytes_of(counter.key.len(), counter.state.as_ref()));
        }
    }

    /// Takes a free entry from the list or from a new page.
    fn free_entry(&mut self) -> u32 {
        let number = self.free.unwrap_or_else(|| {
            let first = u32::try_from(self.entries()).unwrap_or(u32::MAX);
            let others = (1..).take(PAGE - 1).map(|number| Some(first + number));
            let page = others.chain([None]).map(|next| CounterEntry::Free { next });
            self.pages.push(page.collect());
            first
        });
        self.free = match self.entry(number) {
            Some(CounterEntry::Free { next }) => *next,
            Some(CounterEntry::Used(_)) | None => None,
        };
        number
    }

    fn number(&mut self, budget: &MemoryBudget, domain: &str) -> u32 {
        let name_of = |number: &u32| {
            let account = self.accounts.get(usize::try_from(*number).unwrap_or(usize::MAX));
            account.map_or("", |account| account.domain())
        };
        let hash = hash_of(domain.as_bytes());
        if let Some(number) = self.numbers.find(hash, |number| name_of(number) == domain) {
            return *number;
        }
        let number = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
        self.numbers.insert_unique(hash, number, |number| hash_of(name_of(number).as_bytes()));
        self.accounts.push(budget.account(domain));
        number
    }

    fn account(&self, number: u32) -> Option<Arc<MemoryAccount>> {
        self.accounts.get(usize::try_from(number).ok()?).map(Arc::clone)
    }

    fn entry(&self, number: u32) -> Option<&CounterEntry> {
        let number = usize::try_from(number).ok()?;
        self.pages.get(number / PAGE)?.get(number % PAGE)
    }

    fn entry_mut(&mut self, number: u32) -> Option<&mut CounterEntry> {
        let number = usize::try_from(number).ok()?;
        self.pages.get_mut(number / PAGE)?.get_mut(number % PAGE)
    }

    fn key(&self, number: u32) -> &[u8] {
        self.counter(number).map_or(&[], |counter| &*counter.key)
    }

    fn counter(&self, number: u32) -> Option<&StoredCounter> {
        match self.entry(number)? {
            CounterEntry::Used(counter) => Some(counter),
            CounterEntry::Free { .. } => None,
        }
    }

    fn counter_mut(&mut self, number: u32) -> Option<&mut StoredCounter> {
        match self.entry_mut(number)? {
            CounterEntry::Used(counter) => Some(counter),
            CounterEntry::Free { .. } => None,
        }
    }
}

/// Returns the bytes of a counter that count against the budget.
pub(super) fn bytes_of(key_len: usize, state: Option<&State>) -> usize {
    ENTRY_BYTES + key_len + state.map_or(0, State::heap_bytes)
}

/// Returns the tick of an instant, capped at the last tick but one, at which a counter that never
/// expires is still kept.
fn tick(at: Timestamp) -> u32 {
    u32::try_from(at.as_micros() >> TICK_BITS).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

/// Returns the first tick after an instant, or else the last tick, which is never reached.
fn next_tick(at: Timestamp) -> u32 {
    u32::try_from((at.as_micros() >> TICK_BITS) + 1).unwrap_or(u32::MAX)
}
