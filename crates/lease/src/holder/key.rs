//! A key with its blocks, and the denial of the service. Any thread takes from blocks without a
//! lock; only the exchanger changes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::algorithm::judge::Few;
use tollgate_core::algorithm::lease::{LONGEST_DENIAL, LONGEST_LOAN};

use super::demand::{FIRST_WINDOW, HOT, MissDemand, expected};
use super::{INTERVAL, LeaseAnswer, LookKind, WantAnswer};
use crate::Block;

/// Maximum number of blocks of a key: mostly one that is used, and the next.
const MAX_BLOCKS: usize = 4;
/// Time for which a key that is never lent is not wanted: policies may change.
const NOT_LEASABLE_FOR: Duration = Duration::from_secs(10);

/// A key in use.
#[derive(Debug)]
pub(super) struct Key<K> {
    pub(super) name: K,
    pub(super) hash: u64,
    /// Of the requests that no block admitted.
    demand: MissDemand,
    state: ArcSwap<KeyState>,
    /// Set from the decision to want a block until its answer.
    is_wanting: AtomicBool,
}

/// The last answers about a key.
#[derive(Clone, Debug)]
struct KeyState {
    blocks: Few<Arc<Block>>,
    generation: u64,
    /// The time of the last block.
    window: Duration,
    /// The counter, and the instant at which the request was sent.
    counter: Option<(LeasedCounter, Instant)>,
    denied_until: Option<Instant>,
    not_before: Option<Instant>,
    answered: Option<Instant>,
}

/// A counter: as the service reported it, or as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasedCounter {
    /// Amount of the window that binds.
    pub limit: u32,
    /// Its period.
    pub period: Duration,
    /// Remaining hits; in a decision, with those in hand.
    pub remaining: u64,
    /// Time until it is as if never used.
    pub reset_after: Duration,
}

/// Hits that were taken from a block.
#[derive(Debug)]
pub struct TakenLease {
    state: Guard<Arc<KeyState>>,
    index: usize,
    hits: u32,
}

impl TakenLease {
    /// Returns the block.
    pub fn block(&self) -> Option<&Block> {
        self.state.blocks.get(self.index).map(|block| &**block)
    }

    /// Puts the hits back. Those of a block that was returned meanwhile are lost.
    pub fn put_back(self) {
        if let Some(block) = self.block() {
            block.put_back(self.hits.into());
        }
    }
}

impl<K> Key<K> {
    /// Creates a key that just became hot by requests of so many hits.
    pub(super) fn new(name: K, hash: u64, hits: u32, now: Instant) -> Self {
        Self {
            name,
            hash,
            demand: MissDemand::new(hits, now),
            state: ArcSwap::from_pointee(KeyState {
                blocks: Few::new(),
                generation: 0,
                window: FIRST_WINDOW,
                counter: None,
                denied_until: None,
                not_before: None,
                answered: None,
            }),
            is_wanting: AtomicBool::new(false),
        }
    }

    /// Counts a request and takes its hits from a block. Returns also whether a block is to be
    /// wanted.
    pub(super) fn take(&self, hits: u32, now: Instant) -> (LookKind, bool) {
        let state = self.state.load();
        let taken = state.blocks.iter().position(|block| block.take(hits.into(), now));
        if taken.is_none() {
            self.demand.count(hits, state.window, now);
        }
        let wants = state.may_want(now)
            && self.demand.requests().saturating_add(state.takes()) >= HOT
            && !self.is_wanting.swap(true, Relaxed);
        let kind = match taken {
            Some(index) => {
                let counter = state.counter_at(now);
                LookKind::Taken(TakenLease { state, index, hits }, counter)
            }
            None if state.denied_until.is_some_and(|until| now < until) => {
                LookKind::Denied(state.counter_at(now))
            }
            None => LookKind::Unknown,
        };
        (kind, wants)
    }

    /// Returns the hits to want: those of a window, by the use of the blocks in hand and by the
    /// requests that none admitted.
    pub(super) fn wanted_hits(&self, now: Instant) -> u32 {
        let state = self.state.load();
        let used = state.blocks.iter().map(|block| block.used()).fold(0, u64::saturating_add);
        let since = state.blocks.iter().map(|block| block.received()).min().unwrap_or(now);
        let by_use = expected(used, now.saturating_duration_since(since), state.window);
        let hits = self.demand.expected(state.window, now).saturating_add(by_use);
        u32::try_from(hits).unwrap_or(u32::MAX)
    }

    /// Marks a key as wanting a block.
    pub(super) fn wanted(&self) {
        self.is_wanting.store(true, Relaxed);
    }

    /// Allows the next want.
    pub(super) fn answered(&self) {
        self.is_wanting.store(false, Relaxed);
    }

    /// Records the answer to a want, or that there was none. Returns the block.
    pub(super) fn record(
        &self,
        answer: Option<&LeaseAnswer>,
        sent: Instant,
        now: Instant,
    ) -> Option<Arc<Block>> {
        let mut state = KeyState::clone(&self.state.load());
        let generation = answer.map_or(state.generation, |answer| answer.generation);
        if generation != state.generation {
            // The limit has changed. Blocks of the former one are returned with the next exchange.
            state.blocks = Few::new();
            state.generation = generation;
        }
        state.denied_until = None;
        state.answered = Some(now);
        let mut block = None;
        let pause = match answer.map(|answer| &answer.answer) {
            // Longer times than a service gives would outlast its mistake.
            Some(WantAnswer::Loan { hits, usable_for, counter, .. }) => {
                let usable_for = (*usable_for).min(LONGEST_LOAN.into());
                let lent = Arc::new(Block::lent(*hits, sent..now, usable_for));
                state.window = usable_for.max(INTERVAL);
                state.counter = counter.map(|counter| (counter, sent));
                state.blocks.push(Arc::clone(&lent));
                block = Some(lent);
                Duration::ZERO
            }
            Some(WantAnswer::Denial { valid_for, counter }) => {
                let valid_for = (*valid_for).min(LONGEST_DENIAL.into());
                state.counter = counter.map(|counter| (counter, sent));
                state.denied_until = sent.checked_add(valid_for);
                valid_for.max(INTERVAL)
            }
            Some(WantAnswer::NotLeasable) => NOT_LEASABLE_FOR,
            Some(WantAnswer::AskEachRequest) | None => state.window,
        };
        state.not_before = sent.checked_add(pause);
        self.state.store(Arc::new(state));
        self.answered();
        block
    }

    /// Forgets a block that is to be returned.
    pub(super) fn forget(&self, block: &Arc<Block>) {
        let mut state = KeyState::clone(&self.state.load());
        state.blocks = state.blocks.into_iter().filter(|held| !Arc::ptr_eq(held, block)).collect();
        self.state.store(Arc::new(state));
    }

    /// Returns `true` if the block is one of the key.
    pub(super) fn has(&self, block: &Arc<Block>) -> bool {
        self.state.load().blocks.iter().any(|held| Arc::ptr_eq(held, block))
    }

    /// Returns `true` if the key has not been in use for some time.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = self.state.load();
        let until = state.window.saturating_mul(2).max(NOT_LEASABLE_FOR);
        let was_answered =
            state.answered.is_some_and(|at| now.saturating_duration_since(at) < until);
        state.blocks.is_empty()
            && !self.is_wanting.load(Relaxed)
            && !was_answered
            && self.demand.idle_for(now) >= until
    }
}

impl KeyState {
    /// Returns `true` if the blocks in hand are running out, and another may be wanted.
    fn may_want(&self, now: Instant) -> bool {
        self.blocks.iter().all(|block| block.is_running_out(now))
            && self.blocks.len() < MAX_BLOCKS
            && self.not_before.is_none_or(|at| now >= at)
    }

    /// Returns the number of requests that took hits from the blocks in hand.
    fn takes(&self) -> u32 {
        self.blocks.iter().map(|block| block.takes()).fold(0, u32::saturating_add)
    }

    /// Returns the counter as it was when it was last reported, with the hits in hand.
    fn counter_at(&self, now: Instant) -> LeasedCounter {
        let (counter, sent) = self.counter.unwrap_or((LeasedCounter::default(), now));
        let in_hand = self.blocks.iter().map(|block| block.left(now));
        LeasedCounter {
            remaining: in_hand.fold(counter.remaining, u64::saturating_add),
            reset_after: counter.reset_after.saturating_sub(now.saturating_duration_since(sent)),
            ..counter
        }
    }
}
