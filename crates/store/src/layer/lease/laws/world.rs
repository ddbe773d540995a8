//! Simulation of several replicas with tables of their own and one store, in virtual time.
//!
//! Replies are late, blocks are returned late or never, other descriptors deny, amounts change, and
//! the store's clock steps back.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::amend::{Amendment, CounterReading};
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::{CounterKey, Identity, KeyBuffer};
use tollgate_lease::{Block, BlockTable, OwnedCheck, TakenHits};

use super::super::*;
use crate::Lent;
use crate::clock::ManualClock;
use crate::memory::{Bounds, MemoryStore};

/// An instant within windows of most lengths, not at their boundaries.
const START: u64 = 1_780_000_000_123_456;

/// A request: the time since the previous one, its replica and hits, and failures.
#[derive(Clone, Debug)]
pub(super) struct LeaseStep {
    pub(super) wait: u64,
    pub(super) replica: usize,
    pub(super) hits: u32,
    /// `true` to judge by the second of the limit's two amounts.
    pub(super) is_other_amount: bool,
    /// Time until another descriptor denies the request, in microseconds.
    pub(super) denied_after: Option<u64>,
    /// Delays of the call to lease a block and of its reply.
    pub(super) delays: (u64, u64),
    /// Delay in returning a block; `None`: never, since the replica has died with it.
    pub(super) given_back_after: Option<u64>,
    /// Step back of the store's clock before the request.
    pub(super) step_back: u64,
}

/// A future event.
enum WorldEvent {
    /// A call for a block reaches the store.
    Asked {
        replica: usize,
        wanted: OwnedCheck,
        at: u64,
        answer_after: u64,
        given_back_after: Option<u64>,
    },
    /// Its reply reaches the replica.
    Answered {
        replica: usize,
        wanted: OwnedCheck,
        at: u64,
        lent: Lent,
        given_back_after: Option<u64>,
    },
    /// A block ends.
    Ended { wanted: OwnedCheck, block: Arc<Block> },
    /// Another descriptor has denied the request.
    Denied { wanted: OwnedCheck, taken: TakenHits, hits: u64 },
}

/// Hits admitted at an instant of virtual time.
pub(super) struct Admitted {
    pub(super) at: u64,
    pub(super) hits: u64,
    /// The instant in the counter's time.
    pub(super) by_counter: Timestamp,
    /// The instant of their charge, in the counter's time.
    charged: Timestamp,
}

/// A block from its charge to its end, in virtual time.
pub(super) struct Outstanding {
    from: u64,
    to: u64,
    block: Arc<Block>,
}

pub(super) struct World {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
    /// The limit with its two amounts.
    limits: [Limit; 2],
    lease: Lease,
    key: Vec<u8>,
    books: [BlockTable; 3],
    /// Start of virtual time.
    begun: Instant,
    now: u64,
    /// Lag of the store's clock.
    behind: u64,
    events: BTreeMap<(u64, usize), WorldEvent>,
    number: usize,
    pub(super) admitted: Vec<Admitted>,
    pub(super) blocks: Vec<Outstanding>,
    pub(super) of_blocks: u64,
}

impl World {
    pub(super) fn new(limits: [&Limit; 2], lease: Lease) -> Self {
        let clock = Arc::new(ManualClock::default());
        let room = Bounds { max_bytes: 1 << 30, domain_max_bytes: 1 << 30 };
        let mut keys = KeyBuffer::default();
        keys.begin();
        let range = keys.finish(&Identity::of([b"rule".as_slice()]), None);
        Self {
            store: MemoryStore::new(room, Arc::clone(&clock)),
            clock,
            limits: limits.map(Limit::clone),
            lease,
            key: keys.key("d", &range).bytes().to_vec(),
            books: Default::default(),
            begun: Instant::now(),
            now: 0,
            behind: 0,
            events: BTreeMap::new(),
            number: 0,
            admitted: Vec::new(),
            blocks: Vec::new(),
            of_blocks: 0,
        }
    }

    pub(super) fn run(limits: [&Limit; 2], lease: Lease, steps: &[LeaseStep]) -> Self {
        let mut world = Self::new(limits, lease);
        for step in steps {
            world.go_to(world.now + step.wait);
            world.behind += step.step_back;
            world.request(step);
        }
        world
    }

    fn instant(&self, at: u64) -> Instant {
        self.begun + Duration::from_micros(at)
    }

    fn set_clock(&self) {
        self.clock.set(Timestamp::from_micros(START + self.now - self.behind));
    }

    /// Returns a snapshot of the counter, by its own time.
    pub(super) fn look(&self) -> CounterReading {
        self.set_clock();
        let check = self.check(&self.limits[0], Hits::Peek(0));
        self.store
            .amend(&check, Amendment::Look, Instant::now())
            .now_or_never()
            .unwrap()
            .unwrap()
            .after
    }

    fn check<'a>(&'a self, limit: &'a Limit, hits: Hits) -> Check<'a> {
        let key = CounterKey::of("d", &self.key);
        let lease = Some(self.lease);
        Check { key, limit, hits, role: Role::Enforce, recorded: &[], lease, hold: None }
    }

    fn after(&mut self, wait: u64, event: WorldEvent) {
        self.number += 1;
        self.events.insert((self.now + wait, self.number), event);
    }

    /// Advances the time, processing all events until then.
    pub(super) fn go_to(&mut self, then: u64) {
        while let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= then) {
            let ((at, _), event) = next.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = then;
    }

    /// Processes all remaining events, after which all blocks have ended.
    pub(super) fn finish(&mut self) {
        while let Some(((last, _), _)) = self.events.last_key_value() {
            self.go_to(*last);
        }
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Asked { replica, wanted, at, answer_after, given_back_after } => {
                self.set_clock();
                let lent = self
                    .store
                    .lend(&wanted.check(), Instant::now())
                    .now_or_never()
                    .unwrap()
                    .unwrap();
                self.after(
                    answer_after,
                    WorldEvent::Answered { replica, wanted, at, lent, given_back_after },
                );
            }
            WorldEvent::Answered { replica, wanted, at, lent, given_back_after } => {
                let under_way = self.instant(at)..self.instant(self.now);
                let ttl = self.lease.ttl;
                let block = lent
                    .receipt
                    .map(|receipt| Arc::new(Block::new(&wanted.limit, receipt, under_way, ttl)));
                let is_held = self.books[replica].record_block(&wanted, Ok(&lent), block.as_ref());
                let Some(block) = block else { return };
                let end = u64::try_from((block.end() - self.begun).as_micros()).unwrap();
                self.blocks.push(Outstanding { from: at, to: end, block: Arc::clone(&block) });
                if let Some(late) = given_back_after {
                    let wait = if is_held { end.saturating_sub(self.now) } else { 0 };
                    self.after(wait + late, WorldEvent::Ended { wanted, block });
                }
            }
            WorldEvent::Ended { wanted, block } => {
                let unused = block.close();
                self.take_back(&wanted, &block, unused);
            }
            WorldEvent::Denied { wanted, taken, hits } => {
                if !taken.block.put_back(hits) {
                    self.take_back(&wanted, &taken.block, hits);
                }
            }
        }
    }

    fn take_back(&self, wanted: &OwnedCheck, block: &Block, hits: u64) {
        if !block.is_gone(self.instant(self.now)) {
            self.set_clock();
            let receipt = block.receipt(hits);
            self.store
                .take_back(&wanted.check(), receipt, Instant::now())
                .now_or_never()
                .unwrap()
                .unwrap();
        }
    }

    pub(super) fn request(&mut self, step: &LeaseStep) {
        let limit = &self.limits[usize::from(step.is_other_amount)];
        let check = OwnedCheck::of(&self.check(limit, Hits::Charge(step.hits)));
        let check = check.check();
        let now = self.instant(self.now);
        let found = self.books[step.replica].take(&check, &self.lease, now);
        if let Some(hits) = found.wanted {
            let wanted = OwnedCheck::of(&Check { hits: Hits::Charge(hits), ..check });
            let replica = step.replica;
            let at = self.now;
            let given_back_after = step.given_back_after;
            let answer_after = step.delays.1;
            self.after(
                step.delays.0,
                WorldEvent::Asked { replica, wanted, at, answer_after, given_back_after },
            );
        }
        self.set_clock();
        let hits = u64::from(step.hits);
        match (found.taken, step.denied_after) {
            (Some(taken), Some(wait)) => {
                self.after(wait, WorldEvent::Denied { wanted: OwnedCheck::of(&check), taken, hits })
            }
            (Some(taken), None) => {
                self.of_blocks += hits;
                let by_counter = self.look().at;
                let charged = taken.block.receipt(0).at;
                self.admitted.push(Admitted { at: self.now, hits, by_counter, charged });
            }
            (None, _) => {
                let lent = self.store.lend(&check, Instant::now()).now_or_never().unwrap().unwrap();
                let outcome = tollgate_core::algorithm::judge::Outcome {
                    allowed: lent.receipt.is_some(),
                    report: lent.report,
                    by: tollgate_core::algorithm::judge::JudgedBy::Store,
                    hold: tollgate_core::algorithm::hold::HoldEffect::Nothing,
                };
                self.books[step.replica].record(&check, Ok(&outcome));
                if let Some(receipt) = lent.receipt {
                    self.admitted.push(Admitted {
                        at: self.now,
                        hits,
                        by_counter: receipt.at,
                        charged: receipt.at,
                    });
                }
            }
        }
    }

    /// Returns the hits admitted in an interval of virtual time.
    pub(super) fn taken(&self, from: u64, length: u64) -> u64 {
        let inside = |one: &&Admitted| (from..from + length).contains(&one.at);
        self.admitted.iter().filter(inside).map(|one| one.hits).sum()
    }

    /// Returns the hits of the blocks held at an instant, used or not.
    pub(super) fn outstanding(&self, at: u64) -> u64 {
        let held = self.blocks.iter().filter(|held| held.from < at && at < held.to);
        held.map(|held| held.block.hits()).sum()
    }

    /// Returns the hits that the counter must contain, with the instants of their charges: those
    /// that were admitted, and those lost with their replica.
    pub(super) fn charged(&self) -> Vec<(Timestamp, u64)> {
        let lost = self.blocks.iter().map(|held| (held.block.receipt(0).at, held.block.close()));
        self.admitted.iter().map(|one| (one.charged, one.hits)).chain(lost).collect()
    }
}
