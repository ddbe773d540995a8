//! The embedded store: counters in this process, in shards with a lock each.
//!
//! A request locks the shards of its counters in ascending order, judges, writes and unlocks: all
//! or nothing, waiting only for other requests on the same shards. Expired counters are removed
//! incrementally, a few per insert and the rest by [`MemoryStore::sweep`]. A live counter is never
//! dropped: if there is no room, a new counter is refused.

mod amend;
mod backend;
mod budget;
mod lend;
mod loan;
mod scan;
mod shard;

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::hold::{HoldList, HoldRequest};
use tollgate_core::algorithm::judge::{Few, Hits, Question, judge};
use tollgate_core::algorithm::tallies::{EntryTally, Recorded, ranked};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::algorithm::{GRACE, Limit, State};
use tollgate_core::descriptor::CounterKey;

use self::budget::MemoryBudget;
use self::shard::{Shard, bytes_of};
use super::clock::{Clock, SystemClock};
use super::duplicates::firsts;
use super::{Check, Outcomes, Store, StoreError};

/// Number of shards: many more than the counters of the requests that are decided at a time, so
/// that two requests rarely wait for each other. Not a power of two, since hash tables double at
/// those: a million counters would be just past one, with half-empty tables.
const SHARDS: u8 = 192;
/// Entries that a sweep visits before it unlocks the shard for other requests.
const SWEEP_AT_ONCE: usize = 1024;

/// Bounds on the memory of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes of all counters.
    pub max_bytes: usize,
    /// Maximum bytes of the counters of one domain.
    pub domain_max_bytes: usize,
}

/// A store in this process's memory.
pub struct MemoryStore<C = SystemClock> {
    shards: Box<[Mutex<Shard>]>,
    budget: MemoryBudget,
    clock: C,
}

/// One counter of a request: its location, and the memory to settle afterwards.
struct LockedCounter {
    /// The first check that named it.
    first: usize,
    shard: usize,
    /// Its entry in the shard; `None` for a new counter.
    entry: Option<u32>,
    /// Bytes that the counter held before; 0 for a new one.
    held: usize,
    /// Bytes of a new counter before its first charge; 0 for one that exists.
    unused: usize,
    /// Bytes reserved for this request, in addition to `held`.
    reserved: usize,
}

/// The location of a check's counter.
#[derive(Clone, Copy)]
struct Location {
    /// Index of its shard among those that are locked.
    shard: usize,
    /// Its entry in the shard; `None` for a new counter.
    entry: Option<u32>,
}

/// Shards with their numbers, in ascending order.
type LockedShards<'s> = Few<(u8, MutexGuard<'s, Shard>)>;

/// Working state of a request while it holds the locks.
struct LockedRequest<'a, 's> {
    budget: &'s MemoryBudget,
    now: Timestamp,
    guards: LockedShards<'s>,
    /// Locations of the checks' counters; `None` for a ban, which has none.
    locations: Few<Option<Location>>,
    questions: Few<Question<'a>>,
    /// For each check, the first check of the same counter.
    firsts: Few<usize>,
    /// Counters of the request, in ascending order of their first checks.
    counters: Few<LockedCounter>,
    states: Few<State>,
}

impl<C: Clock> MemoryStore<C> {
    /// Creates an empty store.
    pub fn new(bounds: Bounds, clock: C) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            budget: MemoryBudget::new(bounds.max_bytes, bounds.domain_max_bytes),
            clock,
        }
    }

    /// Removes expired counters from a sixteenth of the entries of each shard in which a counter
    /// may have expired. Called once per second, it removes each of them within a minute.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            let mut left = shard.lock().entries().div_ceil(16);
            while left > 0 {
                let count = left.min(SWEEP_AT_ONCE);
                shard.lock().sweep(&self.budget, count, now);
                left = left.saturating_sub(count);
            }
        }
    }

    /// Returns the number of counters, including expired ones that are not removed yet.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns `true` if there are no counters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes used by counters, out of [`Bounds::max_bytes`].
    pub fn used_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Returns the tallies of a counter, heaviest user first; empty if the counter does not exist
    /// or records nothing.
    pub fn tallies(&self, key: &CounterKey<'_>) -> Vec<EntryTally> {
        let shard = self.shards.get(usize::from(shard_of(key))).map(Mutex::lock);
        let tallies =
            shard.and_then(|shard| Some(shard.state(shard.find(key)?)?.tallies().to_vec()));
        ranked(tallies.unwrap_or_default())
    }

    /// Returns the open holds of a counter at `now`, oldest first; empty if the counter does not
    /// exist.
    pub fn open_holds(&self, key: &CounterKey<'_>, now: Timestamp) -> HoldList {
        let shard = self.shards.get(usize::from(shard_of(key))).map(Mutex::lock);
        let holds = shard.and_then(|shard| {
            let state = shard.state(shard.find(key)?)?;
            Some(state.open_holds(now))
        });
        HoldList::oldest_first(holds.unwrap_or_default(), 0)
    }

    /// Returns the instant from which a counter equals an unused one; `None` if it does not exist
    /// or cannot be read by the limit.
    pub fn matters_until(&self, key: &CounterKey<'_>, limit: &Limit) -> Option<Timestamp> {
        let shard = self.shards.get(usize::from(shard_of(key)))?.lock();
        limit.matters_until(shard.state(shard.find(key)?)?).ok()
    }

    /// Locks the shards of the checks and reads the clock.
    fn begin<'a>(&self, checks: &[Check<'a>]) -> LockedRequest<'a, '_> {
        let mut wanted: Few<u8> = checks
            .iter()
            .filter(|check| !check.is_ban())
            .map(|check| shard_of(&check.key))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let firsts = firsts(checks.iter().map(|check| (!check.is_ban()).then_some(&check.key)));
        // Always in ascending order, to prevent deadlocks.
        let guards: LockedShards<'_> = wanted
            .iter()
            .filter_map(|number| Some((*number, self.shards.get(usize::from(*number))?.lock())))
            .collect();
        LockedRequest {
            budget: &self.budget,
            locations: locate(checks, &firsts, &guards),
            guards,
            now: self.clock.now(),
            questions: Few::new(),
            firsts,
            counters: Few::new(),
            states: Few::new(),
        }
    }

    /// Decides as [`Store::decide`] does, which needs no waiting here.
    pub(super) fn decide_now(&self, checks: &[Check<'_>], prior: Prior) -> Outcomes {
        let mut work = self.begin(checks);
        for number in 0..checks.len() {
            work.add_question(checks, number);
        }
        let judged = judge(&work.questions, &mut work.states, prior, work.now);
        work.finish(checks, &judged.written);
        let outcomes = judged.outcomes.iter().zip(&work.questions);
        let outcomes = outcomes.map(|(outcome, question)| match (outcome, question.counter) {
            (Some(outcome), _) => Ok(*outcome),
            (None, Some(_)) => Err(StoreError::Unreadable),
            (None, None) => Err(StoreError::NoRoom),
        });
        outcomes.collect()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        _: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        async move { self.decide_now(checks, prior) }
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        _: Instant,
    ) -> Result<Amended, StoreError> {
        self.amend_now(check, amendment)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[allow(clippy::arithmetic_side_effects, reason = "bytes of counters in memory")]
impl<'a> LockedRequest<'a, '_> {
    /// Turns check `number` into a question about one of the request's counters.
    fn add_question(&mut self, checks: &[Check<'a>], number: usize) {
        let Some(check) = checks.get(number) else { return };
        let first = self.firsts.get(number).filter(|first| **first != number);
        let place = first.and_then(|first| {
            self.counters.binary_search_by_key(first, |counter| counter.first).ok()
        });
        let counter = place.or_else(|| self.open(check, number));
        let counter = counter.filter(|counter| self.has_room(check, *counter, &[]));
        // The charge may fit even if its tallies do not.
        let may_grow = !check.recorded.is_empty()
            && counter.is_some_and(|counter| self.has_room(check, counter, check.recorded));
        let recorded = Recorded { entries: check.recorded, may_grow };
        self.questions.push(Question {
            limit: check.limit,
            hits: check.hits,
            role: check.role,
            counter,
            recorded,
            hold: check.hold,
        });
    }

    /// Finds the check's counter or prepares a new one, and takes its state to work on.
    fn open(&mut self, check: &Check<'a>, number: usize) -> Option<usize> {
        let mut counter =
            LockedCounter { first: number, shard: 0, entry: None, held: 0, unused: 0, reserved: 0 };
        let mut state = None;
        if !check.is_ban() {
            let located = self.locations.get(number).copied();
            let location =
                located.unwrap_or_else(|| Location::of(check, &self.guards, Shard::find))?;
            let (_, shard) = self.guards.get_mut(location.shard)?;
            counter.shard = location.shard;
            state = location.entry.and_then(|entry| shard.take(entry));
            // An expired counter may have been removed for the room of another one.
            counter.entry = location.entry.filter(|_| state.is_some());
        }
        let key_len = check.key.bytes().len();
        let state = if let Some(state) = state {
            counter.held = bytes_of(key_len, Some(&state));
            state
        } else {
            let state = check.limit.unused();
            counter.unused = bytes_of(key_len, Some(&state));
            state
        };
        let index = self.counters.len();
        self.states.push(state);
        self.counters.push(counter);
        Some(index)
    }

    /// Reserves the bytes by which the check, with tallies for `recorded`, could grow the counter;
    /// a charge of a new counter reserves its whole size. Returns `true` if they fit.
    fn has_room(&mut self, check: &Check<'_>, index: usize, recorded: &[Vec<u8>]) -> bool {
        let is_charge = matches!(check.hits, Hits::Charge(_)) && !check.limit.is_ban();
        let charges = is_charge || check.is_on_hold();
        let Some(counter) = self.counters.get_mut(index) else { return false };
        let Some(state) = self.states.get(index) else { return false };
        let Some((_, shard)) = self.guards.get_mut(counter.shard).filter(|_| charges) else {
            return true;
        };
        let holding = match (check.hold, check.limit.hold()) {
            // What is there can always be ended; only a cost without a hold takes memory.
            (Some(hold), _) if state.has_hold(hold, self.now) => return true,
            (Some(hold), _) => state.holding_bytes(hold, recorded),
            // The marks of a plain charge.
            (None, Some(_)) => state.holding_bytes(&HoldRequest::PLAIN, &[]),
            (None, None) => 0,
        };
        let growth = state.growth_bytes() + state.tallying_bytes(recorded) + holding;
        let need = (counter.unused + growth).saturating_sub(counter.reserved);
        let taken = need == 0 || shard.reserve(self.budget, check.key.domain(), need, self.now);
        counter.reserved += if taken { need } else { 0 };
        taken
    }

    /// Puts the counters back, new ones only if they were written, corrects the budget, and unlocks
    /// the shards.
    fn finish(&mut self, checks: &[Check<'_>], written: &[bool]) {
        for ((counter, state), written) in
            self.counters.iter().zip(self.states.drain(..)).zip(written)
        {
            let Some(check) = checks.get(counter.first) else { continue };
            let Some((_, shard)) = self.guards.get_mut(counter.shard) else { continue };
            let kept = *written || counter.entry.is_some();
            let used = if kept { bytes_of(check.key.bytes().len(), Some(&state)) } else { 0 };
            // Tallies are kept even if the counter's state no longer matters.
            let expires = written.then(|| {
                check.limit.matters_until(&state).unwrap_or_default().max(self.now) + GRACE
            });
            match (counter.entry, expires) {
                (Some(entry), expires) => shard.put(entry, state, expires),
                (None, Some(expires)) => shard.insert(self.budget, &check.key, state, expires),
                (None, None) => {}
            }
            let held = counter.held + counter.reserved;
            if held != used {
                shard.settle(self.budget, check.key.domain(), held, used);
            }
            if *written && counter.entry.is_none() {
                shard.sweep_a_little(self.budget, self.now);
            }
        }
        // In descending order: a request that waits for the lowest one finds the others unlocked.
        while self.guards.pop().is_some() {}
    }
}

/// Finds the counters of the checks that name one first: in the tables, then by their keys, so that
/// the cache misses of several checks overlap. Returns no locations for a single check, which its
/// counter is found for directly.
fn locate(
    checks: &[Check<'_>],
    firsts: &[usize],
    shards: &LockedShards<'_>,
) -> Few<Option<Location>> {
    let several = if checks.len() > 1 { checks } else { &[] };
    let candidates = several.iter().enumerate().map(|(number, check)| {
        let is_first = firsts.get(number) == Some(&number) && !check.is_ban();
        is_first.then(|| Location::of(check, shards, Shard::candidate))?
    });
    let mut locations: Few<_> = candidates.collect();
    for (location, check) in locations.iter_mut().zip(checks) {
        if let Some(Location { shard, entry }) = location
            && let Some((_, shard)) = shards.get(*shard)
        {
            *entry = entry.and_then(|candidate| shard.confirm(candidate, &check.key));
        }
    }
    locations
}

impl Location {
    /// Returns where `find` finds the check's counter, or where it would be; `None` if its shard is
    /// not locked.
    fn of(
        check: &Check<'_>,
        shards: &LockedShards<'_>,
        find: impl FnOnce(&Shard, &CounterKey<'_>) -> Option<u32>,
    ) -> Option<Self> {
        let wanted = shard_of(&check.key);
        let index = shards.binary_search_by_key(&wanted, |(number, _)| *number).ok()?;
        let (_, shard) = shards.get(index)?;
        Some(Self { shard: index, entry: find(shard, &check.key) })
    }
}

fn shard_of(key: &CounterKey<'_>) -> u8 {
    // Bits that the hash table inside the shard does not use, as a fraction of their range.
    let [.., high, low, _, _, _] = key.hash().to_le_bytes();
    let part = u32::from(u16::from_be_bytes([high, low])).saturating_mul(u32::from(SHARDS)) >> 16;
    u8::try_from(part).unwrap_or_default()
}

#[cfg(test)]
mod tests;
