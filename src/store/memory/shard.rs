//! A shard of the memory store: a hash table from keys to slots, slots in pages, and a clock hand
//! that cycles through them to find expired counters.
//!
//! A counter costs a slot, its key and five bytes of table at about half load. Pages never move, so
//! growth copies only the table of four-byte slot numbers.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;

use super::budget::{Account, Budget};
use crate::algorithm::State;
use crate::algorithm::time::Timestamp;
use crate::descriptor::{CounterKey, hash_of};

/// Slots per page: fills 16 KiB, which the allocator serves with little waste.
const PAGE: usize = (16 << 10) / size_of::<Slot>();
/// Bytes of a counter besides the heap memory of its key and state: the slot, its share of the
/// table, and the allocator's overhead.
const SLOT_BYTES: usize = size_of::<Slot>() + 12 + 16;
/// Slots visited per insert to find expired counters: two for each one filled, so that the hand
/// keeps up.
const SWEEP_PER_INSERT: usize = 2;
/// Slots visited before a new counter is refused.
const SWEEP_WHEN_FULL: usize = 128;
/// Counters expire at ticks of 2^21 us (two seconds), so that four bytes hold every instant: all of
/// them are below 2^53 us.
const TICK_BITS: u32 = 21;

/// Counters with their keys and expiry times.
#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    pages: Vec<Box<[Slot]>>,
    /// Head of the free list.
    free: Option<u32>,
    /// Next slot to check for expiry.
    hand: u32,
    /// Accounts of the domains with counters in this shard; `numbers` holds their indexes.
    accounts: Vec<Arc<Account>>,
    numbers: HashMap<Box<str>, u32>,
}

enum Slot {
    Used(Counter),
    Free { next: Option<u32> },
}

struct Counter {
    key: Box<[u8]>,
    /// `None` only while a request that holds the shard's lock works on it.
    state: Option<State>,
    /// First tick at which the counter may be removed.
    expires: u32,
    domain: u32,
}

impl Shard {
    /// Returns the number of the slot with this key's counter.
    pub(super) fn find(&self, key: &CounterKey<'_>) -> Option<u32> {
        self.table.find(key.hash(), |slot| self.key(*slot) == key.bytes()).copied()
    }

    /// Returns a counter's state.
    pub(super) fn state(&self, slot: u32) -> Option<&State> {
        self.counter(slot)?.state.as_ref()
    }

    /// Takes a counter's state out, to be [put back](Self::put) before unlocking.
    pub(super) fn take(&mut self, slot: u32) -> Option<State> {
        self.counter_mut(slot).and_then(|counter| counter.state.take())
    }

    /// Puts a counter's state back; `expires` is set if it was written.
    pub(super) fn put(&mut self, slot: u32, state: State, expires: Option<Timestamp>) {
        if let Some(counter) = self.counter_mut(slot) {
            counter.state = Some(state);
            counter.expires = expires.map_or(counter.expires, next_tick);
        }
    }

    /// Reserves room for a new counter, or for `bytes` more of an existing one, removing expired
    /// counters if needed.
    pub(super) fn reserve(&mut self, budget: &Budget, domain: &str, bytes: usize, now: Timestamp) -> bool {
        let number = self.number(budget, domain);
        let Some(account) = self.account(number) else { return false };
        budget.take(&account, bytes) || (self.sweep(budget, SWEEP_WHEN_FULL, now) > 0 && budget.take(&account, bytes))
    }

    /// Corrects a reservation to the actual usage.
    pub(super) fn settle(&mut self, budget: &Budget, domain: &str, reserved: usize, used: usize) {
        let number = self.number(budget, domain);
        let Some(account) = self.account(number) else { return };
        budget.give(&account, reserved.saturating_sub(used));
        // A reservation covers all that one charge can allocate. Any excess is counted, but never
        // refused after the fact.
        budget.book(&account, used.saturating_sub(reserved));
    }

    /// Inserts a counter whose room is reserved.
    pub(super) fn insert(&mut self, budget: &Budget, key: &CounterKey<'_>, state: State, expires: Timestamp) {
        let counter = Counter {
            key: key.bytes().into(),
            state: Some(state),
            expires: next_tick(expires),
            domain: self.number(budget, key.domain()),
        };
        let slot = self.free_slot();
        if let Some(place) = self.slot_mut(slot) {
            *place = Slot::Used(counter);
        }
        let pages = &self.pages;
        self.table.insert_unique(key.hash(), slot, |slot| hash_of(key_in(pages, *slot)));
    }

    /// Removes expired counters from the next `count` slots and returns their number.
    pub(super) fn sweep(&mut self, budget: &Budget, count: usize, now: Timestamp) -> usize {
        let now = tick(now);
        let slots = self.slots();
        let mut forgotten = 0usize;
        for _ in 0..count.min(slots) {
            let slot = self.hand;
            self.hand =
                slot.checked_add(1).filter(|next| usize::try_from(*next).is_ok_and(|next| next < slots)).unwrap_or(0);
            let expired = self.counter(slot).is_some_and(|counter| counter.expires <= now && counter.state.is_some());
            if expired {
                self.forget(budget, slot);
                forgotten = forgotten.saturating_add(1);
            }
        }
        forgotten
    }

    /// Advances the hand by a few slots, for each new counter.
    pub(super) fn sweep_a_little(&mut self, budget: &Budget, now: Timestamp) {
        self.sweep(budget, SWEEP_PER_INSERT, now);
    }

    /// Returns the number of slots, used or free.
    pub(super) fn slots(&self) -> usize {
        self.pages.len().saturating_mul(PAGE)
    }

    /// Returns the number of counters.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn forget(&mut self, budget: &Budget, slot: u32) {
        let hash = hash_of(self.key(slot));
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        let next = self.free;
        let Some(place) = self.slot_mut(slot) else { return };
        let Slot::Used(counter) = std::mem::replace(place, Slot::Free { next }) else { return };
        self.free = Some(slot);
        if let Some(account) = self.account(counter.domain) {
            budget.give(&account, bytes_of(counter.key.len(), counter.state.as_ref()));
        }
    }

    /// Takes a free slot from the list or from a new page.
    fn free_slot(&mut self) -> u32 {
        let slot = self.free.unwrap_or_else(|| {
            let first = u32::try_from(self.slots()).unwrap_or(u32::MAX);
            let last = first.saturating_add(u32::try_from(PAGE).unwrap_or(u32::MAX)).saturating_sub(1);
            let page = (first..=last).map(|slot| Slot::Free { next: slot.checked_add(1).filter(|next| *next <= last) });
            self.pages.push(page.collect());
            first
        });
        self.free = match self.slot(slot) {
            Some(Slot::Free { next }) => *next,
            Some(Slot::Used(_)) | None => None,
        };
        slot
    }

    fn number(&mut self, budget: &Budget, domain: &str) -> u32 {
        if let Some(number) = self.numbers.get(domain) {
            return *number;
        }
        let number = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
        self.accounts.push(budget.account(domain));
        self.numbers.insert(domain.into(), number);
        number
    }

    fn account(&self, number: u32) -> Option<Arc<Account>> {
        self.accounts.get(usize::try_from(number).ok()?).map(Arc::clone)
    }

    fn slot(&self, slot: u32) -> Option<&Slot> {
        slot_in(&self.pages, slot)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let slot = usize::try_from(slot).ok()?;
        self.pages.get_mut(slot / PAGE)?.get_mut(slot % PAGE)
    }

    fn key(&self, slot: u32) -> &[u8] {
        key_in(&self.pages, slot)
    }

    fn counter(&self, slot: u32) -> Option<&Counter> {
        match self.slot(slot)? {
            Slot::Used(counter) => Some(counter),
            Slot::Free { .. } => None,
        }
    }

    fn counter_mut(&mut self, slot: u32) -> Option<&mut Counter> {
        match self.slot_mut(slot)? {
            Slot::Used(counter) => Some(counter),
            Slot::Free { .. } => None,
        }
    }
}

fn slot_in(pages: &[Box<[Slot]>], slot: u32) -> Option<&Slot> {
    let slot = usize::try_from(slot).ok()?;
    pages.get(slot / PAGE)?.get(slot % PAGE)
}

fn key_in(pages: &[Box<[Slot]>], slot: u32) -> &[u8] {
    match slot_in(pages, slot) {
        Some(Slot::Used(counter)) => &counter.key,
        Some(Slot::Free { .. }) | None => &[],
    }
}

/// Returns the bytes of a counter that count against the budget.
pub(super) fn bytes_of(key_len: usize, state: Option<&State>) -> usize {
    SLOT_BYTES.saturating_add(key_len).saturating_add(state.map_or(0, State::heap_bytes))
}

/// Returns the tick of an instant, capped at the last tick but one, at which a counter that never
/// expires is still kept.
fn tick(at: Timestamp) -> u32 {
    u32::try_from(at.as_micros() >> TICK_BITS).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

/// Returns the first tick after an instant, or else the last tick, which is never reached.
fn next_tick(at: Timestamp) -> u32 {
    u32::try_from((at.as_micros() >> TICK_BITS).saturating_add(1)).unwrap_or(u32::MAX)
}
