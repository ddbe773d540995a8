//! Exchanges with the service, by one thread: wants of keys that are hot, and returns of blocks
//! that have ended. None is ever repeated.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::key::Key;
use super::{HeldLeases, LeaseKey, LeasedCounter, MAX_WAITING};
use crate::Block;

/// Bounds of an exchange; those of the service are 256 and 64 KiB.
const MAX_ITEMS: usize = 256;
const MAX_BYTES: usize = 48 << 10;
/// More than the size of a want or return without its key and receipt.
const ITEM_BYTES: usize = 32;
/// Time between two removals of idle keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The blocks that are held, and the keys that wait for one.
#[derive(Debug)]
pub struct Exchanger<K> {
    held: Vec<HeldBlock<K>>,
    waiting: VecDeque<Want<K>>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct HeldBlock<K> {
    key: Arc<Key<K>>,
    block: Arc<Block>,
    receipt: Vec<u8>,
}

/// An exchange for the keys of one domain, to be sent once.
#[derive(Debug)]
pub struct LoanExchange<K> {
    /// Blocks that are wanted. They are to be answered in this order.
    pub wants: Vec<Want<K>>,
    /// Blocks that have ended.
    pub returns: Vec<HeldReturn<K>>,
    sent: Instant,
    bytes: usize,
}

/// A want of a block.
#[derive(Debug)]
pub struct Want<K> {
    key: Arc<Key<K>>,
    /// Hits for the demand.
    pub hits: u32,
}

/// The return of a block.
#[derive(Debug)]
pub struct HeldReturn<K> {
    key: Arc<Key<K>>,
    /// The receipt of the loan.
    pub receipt: Vec<u8>,
    /// Hits that no request took.
    pub unused: u32,
    /// Hits that requests took.
    pub used: u32,
}

/// An answer to a want.
#[derive(Clone, Debug)]
pub struct LeaseAnswer {
    /// Number that differs if the limit may have changed.
    pub generation: u64,
    /// The answer.
    pub answer: WantAnswer,
}

/// The kinds of answers to a want.
#[derive(Clone, Debug)]
pub enum WantAnswer {
    /// A block.
    Loan {
        /// Hits that were charged.
        hits: u32,
        /// To be returned with the block.
        receipt: Vec<u8>,
        /// Time from the start of the call for which the hits may be admitted.
        usable_for: Duration,
        /// The counter after the charge.
        counter: Option<LeasedCounter>,
    },
    /// Requests of one hit are denied.
    Denial {
        /// For this time from the start of the call.
        valid_for: Duration,
        /// The counter.
        counter: Option<LeasedCounter>,
    },
    /// Nothing is lent now, and the service decides.
    AskEachRequest,
    /// Nothing is ever lent.
    NotLeasable,
}

impl<K> Want<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key.name
    }
}

impl<K> HeldReturn<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key.name
    }
}

impl<K: LeaseKey> LoanExchange<K> {
    /// Returns the domain of its keys.
    pub fn domain(&self) -> &str {
        let wanted = self.wants.first().map(Want::key);
        wanted.or_else(|| self.returns.first().map(HeldReturn::key)).map_or("", K::domain)
    }

    /// Returns the hits that are wanted or returned. If there is no answer, so many at most count
    /// until they expire though no request takes them.
    pub fn hits(&self) -> u64 {
        let wanted = self.wants.iter().map(|want| u64::from(want.hits));
        let returned = self.returns.iter().map(|back| u64::from(back.unused));
        wanted.chain(returned).fold(0, u64::saturating_add)
    }

    fn is_empty(&self) -> bool {
        self.wants.is_empty() && self.returns.is_empty()
    }

    /// Returns `true` if an item of the key may be added.
    fn takes(&self, key: &K, items: usize) -> bool {
        self.is_empty()
            || items < MAX_ITEMS && self.bytes < MAX_BYTES && self.domain() == key.domain()
    }

    fn add_bytes(&mut self, key: &K, receipt: usize) {
        self.bytes = [key.size(), receipt, ITEM_BYTES]
            .iter()
            .fold(self.bytes, |sum, size| sum.saturating_add(*size));
    }
}

impl<K: LeaseKey> Exchanger<K> {
    /// Creates an exchanger without blocks.
    pub fn new() -> Self {
        Self { held: Vec::new(), waiting: VecDeque::new(), swept: None }
    }

    /// Collects the keys that want a block, for the exchanges to [`begin`](Self::begin) now.
    pub fn collect<S: BuildHasher>(&mut self, leases: &HeldLeases<K, S>, now: Instant) {
        let sweeps =
            self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_INTERVAL);
        if sweeps {
            self.swept = Some(now);
        }
        leases.update(sweeps, now);
        // The use of a block counts until it is returned.
        let wanting = std::iter::from_fn(|| leases.wanting.pop()).take(MAX_WAITING);
        self.waiting.extend(wanting.map(|key| Want { hits: key.wanted_hits(now), key }));
    }

    /// Begins an exchange: as many wants and returns of one domain as it may have. Returns `None`
    /// if there are none.
    pub fn begin(&mut self, now: Instant) -> Option<LoanExchange<K>> {
        self.begin_with(now, false)
    }

    /// Begins the return of blocks that have not ended, at the end of the process.
    pub fn begin_end(&mut self, now: Instant) -> Option<LoanExchange<K>> {
        self.waiting.clear();
        self.begin_with(now, true)
    }

    fn begin_with(&mut self, now: Instant, ends_all: bool) -> Option<LoanExchange<K>> {
        let mut exchange =
            LoanExchange { wants: Vec::new(), returns: Vec::new(), sent: now, bytes: 0 };
        self.held.retain_mut(|held| {
            let is_over = ends_all || held.block.left(now) == 0 || !held.key.has(&held.block);
            if !is_over || !exchange.takes(&held.key.name, exchange.returns.len()) {
                return true;
            }
            held.key.forget(&held.block);
            let unused = held.block.close();
            let used = held.block.hits().saturating_sub(unused);
            exchange.add_bytes(&held.key.name, held.receipt.len());
            exchange.returns.push(HeldReturn {
                key: Arc::clone(&held.key),
                receipt: std::mem::take(&mut held.receipt),
                unused: u32::try_from(unused).unwrap_or_default(),
                used: u32::try_from(used).unwrap_or_default(),
            });
            false
        });
        let mut waiting = std::mem::take(&mut self.waiting);
        while let Some(want) = waiting.pop_front() {
            if exchange.takes(want.key(), exchange.wants.len()) {
                exchange.add_bytes(want.key(), 0);
                exchange.wants.push(want);
            } else {
                self.waiting.push_back(want);
            }
        }
        (!exchange.is_empty()).then_some(exchange)
    }

    /// Records the answers of an exchange, in the order of its wants, or that there are none.
    pub fn finish(&mut self, exchange: LoanExchange<K>, answers: Vec<LeaseAnswer>, now: Instant) {
        let mut answers = answers.into_iter();
        for Want { key, .. } in exchange.wants {
            let answer = answers.next();
            let block = key.record(answer.as_ref(), exchange.sent, now);
            if let Some(block) = block
                && let Some(LeaseAnswer { answer: WantAnswer::Loan { receipt, .. }, .. }) = answer
            {
                self.held.push(HeldBlock { key, block, receipt });
            }
        }
    }

    /// Returns `true` if no block is held and no key waits.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.held.len()
    }

    /// Returns the instant at which the next block ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.block.end()).min()
    }
}

impl<K: LeaseKey> Default for Exchanger<K> {
    fn default() -> Self {
        Self::new()
    }
}
