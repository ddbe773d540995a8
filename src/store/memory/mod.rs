//! The embedded store: counters in this process, in shards that lock apart.
//!
//! A request locks the shards of its counters in the order of their numbers, judges and writes, and lets go: all or nothing,
//! without waiting for anything but other requests of the same shards. Counters that have expired go little by little, a few
//! with each new one and the rest by [`MemoryStore::sweep`]. A live counter is never dropped: where there is no room, a new
//! counter is refused.

mod amend;
mod budget;
mod lend;
mod shard;

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use self::budget::Budget;
use self::shard::{Shard, bytes_of};
use super::clock::{Clock, SystemClock};
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::{Few, Hits, Question, judge};
use crate::algorithm::tallies::{Recorded, Tally, ranked};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::Prior;
use crate::algorithm::{GRACE, State};
use crate::descriptor::CounterKey;

/// Shards; many more than cores, so that two requests rarely want the same one. No power of two, since their tables double at
/// one: a million counters would be just past it, with tables half empty.
const SHARDS: u8 = 48;
/// Slots that a sweep looks at before it lets other requests have the shard.
const SWEEP_AT_ONCE: usize = 1024;

/// How much memory counters may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes for all counters.
    pub max_bytes: usize,
    /// Bytes for the counters of one domain.
    pub domain_max_bytes: usize,
}

/// A store in this process's memory.
pub struct MemoryStore<C = SystemClock> {
    shards: Box<[Mutex<Shard>]>,
    budget: Budget,
    clock: C,
}

/// One counter of a request: where it is, and what of it has to be undone or settled.
struct Counter {
    shard: usize,
    /// Its slot; `None` while it is new.
    slot: Option<u32>,
    /// Bytes taken of the budget for this request, besides what the counter held before.
    reserved: usize,
    held: usize,
}

/// What a request works on, while it holds the locks.
struct Work<'a, 's> {
    budget: &'s Budget,
    now: Timestamp,
    guards: Few<(u8, MutexGuard<'s, Shard>)>,
    questions: Few<Question<'a>>,
    /// The check that first named each counter.
    first: Few<usize>,
    counters: Few<Counter>,
    states: Few<State>,
}

impl<C: Clock> MemoryStore<C> {
    /// An empty store.
    pub fn new(bounds: Bounds, clock: C) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            budget: Budget::new(bounds.max_bytes, bounds.domain_max_bytes),
            clock,
        }
    }

    /// Forgets counters that have expired, a sixteenth of all slots a call: called once a second, none stays a minute longer.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            let mut left = shard.lock().slots().div_ceil(16);
            while left > 0 {
                let count = left.min(SWEEP_AT_ONCE);
                shard.lock().sweep(&self.budget, count, now);
                left = left.saturating_sub(count);
            }
        }
    }

    /// Counters in the store, live or not yet forgotten.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).fold(0, usize::saturating_add)
    }

    /// Whether there is no counter at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the counters take, of [`Bounds::max_bytes`].
    pub fn used_bytes(&self) -> usize {
        self.budget.used()
    }

    /// The tallies of a counter, those who used most first. None where there is no counter, or nothing is recorded.
    pub fn tallies(&self, key: &CounterKey<'_>) -> Vec<Tally> {
        let shard = self.shards.get(usize::from(shard_of(key))).map(Mutex::lock);
        let tallies = shard.and_then(|shard| Some(shard.state(shard.find(key)?)?.tallies().to_vec()));
        ranked(tallies.unwrap_or_default())
    }

    /// Locks what the checks are about, and takes the time.
    fn begin<'a>(&self, checks: &[Check<'a>]) -> Work<'a, '_> {
        let mut wanted: Few<u8> =
            checks.iter().filter(|check| !check.limit.is_ban()).map(|check| shard_of(&check.key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // Always in ascending order, so that no two requests wait for each other.
        let guards = wanted.iter().filter_map(|number| Some((*number, self.shards.get(usize::from(*number))?.lock())));
        Work {
            budget: &self.budget,
            guards: guards.collect(),
            now: self.clock.now(),
            questions: Few::new(),
            first: Few::new(),
            counters: Few::new(),
            states: Few::new(),
        }
    }

    fn decide_now(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        let mut work = self.begin(checks);
        for number in 0..checks.len() {
            work.ask(checks, number);
        }
        let judgement = judge(&work.questions, &mut work.states, prior, work.now);
        work.finish(checks, &judgement.written);
        let missing = |question: &Question<'_>| match question.counter {
            Some(_) => StoreError::Unreadable,
            None => StoreError::NoRoom,
        };
        let outcomes = judgement.outcomes.iter().zip(&work.questions);
        outcomes.map(|(outcome, question)| outcome.ok_or_else(|| missing(question))).collect()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, _: Instant) -> Outcomes {
        self.decide_now(checks, prior)
    }

    async fn amend(&self, check: &Check<'_>, amendment: Amendment, _: Instant) -> Result<Amended, StoreError> {
        self.amend_now(check, amendment)
    }
}

impl<'a> Work<'a, '_> {
    /// Turns check number `number` into a question about one of the request's counters.
    fn ask(&mut self, checks: &[Check<'a>], number: usize) {
        let Some(check) = checks.get(number) else { return };
        let seen = self.first.iter().position(|first| checks.get(*first).is_some_and(|other| same(other, check)));
        let counter = seen.or_else(|| self.open(check, number));
        let counter = counter.filter(|counter| self.has_room(check, *counter, &[]));
        // Without room for those who charge there may still be room for the charge.
        let may_grow =
            !check.recorded.is_empty() && counter.is_some_and(|counter| self.has_room(check, counter, check.recorded));
        let recorded = Recorded { entries: check.recorded, may_grow };
        self.questions.push(Question { limit: check.limit, hits: check.hits, role: check.role, counter, recorded });
    }

    /// Finds the check's counter, or prepares a new one, and takes its state to work on.
    fn open(&mut self, check: &Check<'a>, number: usize) -> Option<usize> {
        let mut counter = Counter { shard: 0, slot: None, reserved: 0, held: 0 };
        let mut state = None;
        if !check.limit.is_ban() {
            let wanted = shard_of(&check.key);
            counter.shard = self.guards.iter().position(|(number, _)| *number == wanted)?;
            let (_, shard) = self.guards.get_mut(counter.shard)?;
            counter.slot = shard.find(&check.key);
            state = counter.slot.and_then(|slot| shard.take(slot));
            counter.held = state.as_ref().map_or(0, |state| bytes_of(check.key.bytes().len(), Some(state)));
        }
        self.states.push(state.unwrap_or_else(|| check.limit.unused()));
        self.counters.push(counter);
        self.first.push(number);
        self.counters.len().checked_sub(1)
    }

    /// Whether the counter may take what the check, with tallies of `recorded`, could make it take; a charge of a new one needs all
    /// of it.
    fn has_room(&mut self, check: &Check<'_>, index: usize, recorded: &[Vec<u8>]) -> bool {
        let charges = matches!(check.hits, Hits::Charge(_)) && !check.limit.is_ban();
        let (Some(counter), Some(state)) = (self.counters.get_mut(index), self.states.get(index)) else { return false };
        let Some((_, shard)) = self.guards.get_mut(counter.shard).filter(|_| charges) else { return true };
        let growth = state.growth_bytes().saturating_add(state.tallying_bytes(recorded));
        let whole = bytes_of(check.key.bytes().len(), Some(state)).saturating_add(growth);
        let need = whole.saturating_sub(counter.held).saturating_sub(counter.reserved);
        let taken = need == 0 || shard.reserve(self.budget, check.key.domain(), need, self.now);
        counter.reserved = counter.reserved.saturating_add(if taken { need } else { 0 });
        taken
    }

    /// Puts every counter back, the new ones only where they were written, and corrects the budget.
    fn finish(&mut self, checks: &[Check<'_>], written: &[bool]) {
        let counters = self.counters.iter().zip(self.states.drain(..)).zip(written).zip(&self.first);
        for (((counter, state), written), first) in counters {
            let (Some(check), Some((_, shard))) = (checks.get(*first), self.guards.get_mut(counter.shard)) else {
                continue;
            };
            let kept = *written || counter.slot.is_some();
            let used = if kept { bytes_of(check.key.bytes().len(), Some(&state)) } else { 0 };
            // Tallies are kept beside a counter that does not matter.
            let expires = || check.limit.matters_until(&state).unwrap_or_default().max(self.now) + GRACE;
            let expires = written.then(expires);
            match (counter.slot, expires) {
                (Some(slot), expires) => shard.put(slot, state, expires),
                (None, Some(expires)) => shard.insert(self.budget, &check.key, state, expires),
                (None, None) => {}
            }
            if counter.reserved > 0 || counter.held != used {
                let (held, domain) = (counter.held.saturating_add(counter.reserved), check.key.domain());
                shard.settle(self.budget, domain, held, used);
            }
            if *written && counter.slot.is_none() {
                shard.sweep_a_little(self.budget, self.now);
            }
        }
    }
}

fn shard_of(key: &CounterKey<'_>) -> u8 {
    // Bits that the table inside the shard does not look at, as a fraction of all that they could be.
    let [.., high, low, _, _, _] = key.hash().to_le_bytes();
    let part = u32::from(u16::from_be_bytes([high, low])).saturating_mul(u32::from(SHARDS)) >> 16;
    u8::try_from(part).unwrap_or_default()
}

/// Whether two checks are about the same counter. A ban has none, whatever its key.
fn same(one: &Check<'_>, other: &Check<'_>) -> bool {
    !one.limit.is_ban() && !other.limit.is_ban() && one.key.bytes() == other.key.bytes()
}

#[cfg(test)]
mod tests;
