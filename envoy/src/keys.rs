//! The keys in use, their blocks and denials. Workers read and take without locks; the main thread
//! adds keys and records answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use tollgate_lease::Block;

use crate::demand::{ColdDemand, Demand, FIRST_WINDOW};
use crate::descriptor::Descriptor;
use crate::wire::{self, Answer, CounterReport, LeaseAnswer};

/// Maximum number of keys in use.
pub(crate) const MAX_KEYS: usize = 1 << 13;
/// Maximum number of blocks of a key: mostly one that is used, and the next.
const MAX_BLOCKS: usize = 4;
/// Maximum number of keys that wait for the next exchange.
const MAX_WANTS: usize = 1 << 10;
/// Time for which a key that is never lent is not wanted: policies may change.
const NOT_LEASABLE_FOR: Duration = Duration::from_secs(10);
/// Minimum time between two wants of a key that is lent nothing.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// A descriptor in use.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) descriptor: Descriptor,
    demand: Demand,
    state: ArcSwap<KeyState>,
    /// Set from the decision to want a block until its answer.
    is_wanting: AtomicBool,
}

/// The last answers about a key.
#[derive(Clone, Debug)]
struct KeyState {
    blocks: SmallVec<[Arc<Block>; 2]>,
    generation: u64,
    window: Duration,
    /// The counter, and the instant at which the request was sent.
    counter: Option<(CounterReport, Instant)>,
    denied_until: Option<Instant>,
    not_before: Option<Instant>,
}

/// The counter of a key, for the headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Amount of the window that binds.
    pub(crate) limit: u32,
    /// Its period.
    pub(crate) period: Duration,
    /// Remaining hits when it was last reported, with those in hand.
    pub(crate) remaining: u64,
    /// Time until it is as if never used.
    pub(crate) reset_after: Duration,
}

/// Result of a look at a key.
#[derive(Debug)]
pub(crate) enum Look {
    /// A hit was taken from the block.
    Taken(Arc<Block>, Standing),
    /// The service denies requests of one hit.
    Denied(Standing),
    /// Only the service can decide.
    Unknown,
}

impl Key {
    fn new(descriptor: Descriptor, now: Instant) -> Self {
        Self {
            descriptor,
            demand: Demand::new(crate::demand::HOT, now),
            state: ArcSwap::from_pointee(KeyState {
                blocks: SmallVec::new(),
                generation: 0,
                window: FIRST_WINDOW,
                counter: None,
                denied_until: None,
                not_before: None,
            }),
            is_wanting: AtomicBool::new(false),
        }
    }

    /// Counts a request and takes a hit from a block. Returns also whether a block is to be wanted.
    fn look(&self, now: Instant) -> (Look, bool) {
        let state = self.state.load();
        let is_hot = self.demand.count(state.window, now);
        let mut is_enough = false;
        let mut in_hand = 0_u64;
        let mut taken = None;
        for block in &state.blocks {
            if taken.is_none() && block.take(1, now) {
                taken = Some(Arc::clone(block));
            }
            in_hand = in_hand.saturating_add(block.left(now));
            is_enough = is_enough || (block.left(now) > 0 && !block.is_running_out(now));
        }
        let may_want = state.not_before.is_none_or(|at| now >= at);
        let wants = is_hot
            && !is_enough
            && may_want
            && state.blocks.len() < MAX_BLOCKS
            && !self.is_wanting.swap(true, Ordering::Relaxed);
        let is_denied = state.denied_until.is_some_and(|until| now < until);
        let look = match taken {
            Some(block) => Look::Taken(block, state.standing(in_hand, now)),
            None if is_denied => Look::Denied(state.standing(0, now)),
            None => Look::Unknown,
        };
        (look, wants)
    }

    /// Returns the hits to want.
    pub(crate) fn wanted_hits(&self, now: Instant) -> u32 {
        self.demand.expected(self.state.load().window, now)
    }

    /// Records the answer to a want, or that there was none. Returns the block.
    pub(crate) fn record(
        &self,
        answer: Option<&LeaseAnswer>,
        sent: Instant,
        now: Instant,
    ) -> Option<Arc<Block>> {
        let mut state = KeyState::clone(&self.state.load());
        let generation = answer.map(|answer| answer.generation);
        if generation.is_some_and(|found| found != state.generation) {
            // The limit has changed. Blocks of the former one are returned with the next exchange.
            state.blocks.clear();
            state.generation = generation.unwrap_or_default();
        }
        state.denied_until = None;
        let mut block = None;
        let pause = match answer.and_then(|answer| answer.answer.as_ref()) {
            Some(Answer::Loan(loan)) => {
                let usable_for = wire::duration(loan.usable_for);
                let lent = Arc::new(Block::lent(loan.hits, sent..now, usable_for));
                state.window = usable_for.max(LEAST_PAUSE);
                state.counter = loan.counter.map(|counter| (counter, sent));
                state.blocks.push(Arc::clone(&lent));
                block = Some(lent);
                Duration::ZERO
            }
            Some(Answer::Denial(denial)) => {
                let valid_for = wire::duration(denial.valid_for);
                state.counter = denial.counter.map(|counter| (counter, sent));
                state.denied_until = sent.checked_add(valid_for);
                valid_for.max(LEAST_PAUSE)
            }
            Some(Answer::NotLeasable(_)) => NOT_LEASABLE_FOR,
            Some(Answer::AskEachRequest(_)) | None => state.window,
        };
        state.not_before = sent.checked_add(pause);
        self.state.store(Arc::new(state));
        self.is_wanting.store(false, Ordering::Relaxed);
        block
    }

    /// Forgets a block that has been returned.
    pub(crate) fn forget(&self, block: &Arc<Block>) {
        let mut state = KeyState::clone(&self.state.load());
        state.blocks.retain(|held| !Arc::ptr_eq(held, block));
        self.state.store(Arc::new(state));
    }

    /// Returns `true` if the block is one of the key.
    pub(crate) fn has(&self, block: &Arc<Block>) -> bool {
        self.state.load().blocks.iter().any(|held| Arc::ptr_eq(held, block))
    }

    fn is_idle(&self, now: Instant) -> bool {
        let state = self.state.load();
        let until = state.window.saturating_mul(2).max(NOT_LEASABLE_FOR);
        state.blocks.is_empty()
            && !self.is_wanting.load(Ordering::Relaxed)
            && self.demand.idle_for(now) >= until
    }
}

impl KeyState {
    fn standing(&self, in_hand: u64, now: Instant) -> Standing {
        let (counter, sent) = self.counter.unwrap_or((CounterReport::default(), now));
        let passed = now.saturating_duration_since(sent);
        Standing {
            limit: counter.limit,
            period: wire::duration(counter.period),
            remaining: counter.remaining.saturating_add(in_hand),
            reset_after: wire::duration(counter.reset_after).saturating_sub(passed),
        }
    }
}

type Map = HashMap<Box<[u8]>, Arc<Key>, RandomState>;

/// All keys in use.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    cold: ColdDemand,
    map: ArcSwap<Map>,
    /// Keys that became hot, to be added.
    fresh: ArrayQueue<Arc<Key>>,
    /// Keys that want a block.
    wants: ArrayQueue<Arc<Key>>,
}

impl Keys {
    /// Creates an empty table. Its hashes are random, so that clients cannot choose keys that meet.
    pub(crate) fn new(now: Instant) -> Self {
        let hasher = RandomState::default();
        Self {
            hasher: hasher.clone(),
            cold: ColdDemand::new(now),
            map: ArcSwap::from_pointee(Map::with_hasher(hasher)),
            fresh: ArrayQueue::new(MAX_WANTS),
            wants: ArrayQueue::new(MAX_WANTS),
        }
    }

    /// Counts a request for a descriptor and takes a hit. Returns also whether an exchange is now
    /// to be made.
    pub(crate) fn look(&self, descriptor: &Descriptor, now: Instant) -> (Look, bool) {
        let map = self.map.load();
        if let Some(key) = map.get(descriptor.name()) {
            let (look, wants) = key.look(now);
            let is_queued = wants && self.want(key);
            return (look, is_queued);
        }
        let is_hot = self.cold.count(self.hasher.hash_one(descriptor.name()), now)
            && map.len() < MAX_KEYS
            && self.fresh.push(Arc::new(Key::new(descriptor.clone(), now))).is_ok();
        (Look::Unknown, is_hot)
    }

    fn want(&self, key: &Arc<Key>) -> bool {
        let is_queued = self.wants.push(Arc::clone(key)).is_ok();
        if !is_queued {
            key.is_wanting.store(false, Ordering::Relaxed);
        }
        is_queued
    }

    /// Adds the keys that became hot, which then want a block, and removes idle ones if `sweep` is
    /// set. Only the main thread calls this.
    pub(crate) fn update(&self, sweep: bool, now: Instant) {
        let fresh: Vec<_> = std::iter::from_fn(|| self.fresh.pop()).take(MAX_WANTS).collect();
        let current = self.map.load();
        let has_idle = sweep && current.values().any(|key| key.is_idle(now));
        if fresh.is_empty() && !has_idle {
            return;
        }
        let mut map = Map::clone(&current);
        if has_idle {
            map.retain(|_, key| !key.is_idle(now));
        }
        for key in fresh {
            if map.len() >= MAX_KEYS || map.contains_key(key.descriptor.name()) {
                continue;
            }
            key.is_wanting.store(true, Ordering::Relaxed);
            self.want(&key);
            map.insert(key.descriptor.name().into(), key);
        }
        self.map.store(Arc::new(map));
    }

    /// Returns the next key that wants a block.
    pub(crate) fn next_want(&self) -> Option<Arc<Key>> {
        self.wants.pop()
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.map.load().len()
    }

    /// Returns `true` if an exchange has something to want.
    pub(crate) fn has_wants(&self) -> bool {
        !self.wants.is_empty() || !self.fresh.is_empty()
    }
}
