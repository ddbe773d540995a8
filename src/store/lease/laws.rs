//! What a limit promises with leases, as properties: several replicas with books of their own and one store, in virtual time.
//!
//! Answers are late, blocks are given back late or never, other descriptors deny, and the store's clock steps back.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::block::Block;
use super::book::{Book, Taken};
use super::*;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::lease::Lease;
use crate::algorithm::quota::Window;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Estimate, SlidingWindow};
use crate::algorithm::time::Timestamp;
use crate::algorithm::{Algorithm, Limit, OnStoreError};
use crate::descriptor::{CounterKey, Identity, KeyBuffer};
use crate::store::Lent;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};

/// In the middle of windows of most lengths.
const START: u64 = 1_780_000_000_123_456;
const MS: u64 = 1_000;

/// One request: how long after the last, of whom, what for, and what else happens.
#[derive(Clone, Debug)]
struct Step {
    wait: u64,
    replica: usize,
    hits: u32,
    /// Another descriptor denies so many microseconds later.
    denied_after: Option<u64>,
    /// How long a question and an answer are under way.
    delays: (u64, u64),
    /// How much too late a block is given back; `None`: never, the replica has died with it.
    given_back_after: Option<u64>,
    /// How far the store's clock steps back before it.
    step_back: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = || prop_oneof![3 => 0u64..200, 1 => 0u64..40 * MS];
    // Bursts, in which blocks are taken, and pauses after which they are used.
    let wait = prop_oneof![30 => 0u64..100, 5 => 0u64..2 * MS, 1 => 0u64..80 * MS];
    let rest = (
        proptest::option::weighted(0.1, delay()),
        (delay(), delay()),
        proptest::option::weighted(0.9, delay()),
        prop_oneof![60 => Just(0), 1 => 0u64..300 * MS],
    );
    let hits = prop_oneof![8 => Just(1u32), 1 => 1u32..6];
    let step = (wait, 0usize..3, hits, rest).prop_map(
        |(wait, replica, hits, (denied_after, delays, given_back_after, step_back))| Step {
            wait,
            replica,
            hits,
            denied_after,
            delays,
            given_back_after,
            step_back,
        },
    );
    proptest::collection::vec(step, 100..500)
}

fn window(limit: u32, period_us: u64) -> Window {
    Window::new(limit, Micros::new(period_us)).unwrap()
}

fn limit(algorithm: Algorithm) -> Limit {
    Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap()
}

fn fixed() -> impl Strategy<Value = Limit> {
    let windows = proptest::collection::vec((70u32..400, 50 * MS..500 * MS), 1..3);
    windows.prop_map(|windows| {
        let windows = windows.into_iter().map(|(amount, period)| window(amount, period)).collect();
        limit(Algorithm::FixedWindow(FixedWindow::new(windows).unwrap()))
    })
}

fn rolling() -> impl Strategy<Value = Limit> {
    let parts = || (70u32..200, 20 * MS..200 * MS);
    prop_oneof![
        (parts(), 1u32..20).prop_map(|((amount, period), buckets)| {
            let windows = vec![window(amount, period)];
            limit(Algorithm::SlidingWindow(SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap()))
        }),
        parts().prop_map(|(amount, period)| {
            limit(Algorithm::SlidingLog(SlidingLog::new(vec![window(amount, period)]).unwrap()))
        }),
        (parts(), 70u32..100).prop_map(|((amount, period), burst)| {
            limit(Algorithm::Gcra(Gcra::new(window(amount, period), Some(burst), None).unwrap()))
        }),
    ]
}

fn leases() -> impl Strategy<Value = Lease> {
    (4u32..60, 5 * MS..120 * MS).prop_map(|(hits, ttl)| Lease { hits, ttl: Micros::new(ttl) })
}

/// What happens later.
enum Event {
    /// A question for a block reaches the store.
    Asked { replica: usize, wanted: OwnedCheck, at: u64, answer_after: u64, given_back_after: Option<u64> },
    /// Its answer reaches the replica.
    Answered { replica: usize, wanted: OwnedCheck, at: u64, lent: Lent, given_back_after: Option<u64> },
    /// A block ends.
    Ended { wanted: OwnedCheck, block: Arc<Block> },
    /// Another descriptor has denied.
    Denied { wanted: OwnedCheck, taken: Taken, hits: u64 },
}

/// Hits admitted, at an instant of the world's own time.
struct Admitted {
    at: u64,
    hits: u64,
    /// The instant by the counter's time.
    by_counter: Timestamp,
}

/// A block, from its charge to its end, in the world's time.
struct Outstanding {
    from: u64,
    to: u64,
    hits: u64,
}

struct World {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
    limit: Limit,
    lease: Lease,
    key: Vec<u8>,
    books: [Book; 3],
    /// What the world's time began at.
    begun: Instant,
    now: u64,
    /// How far the store's clock is behind.
    behind: u64,
    /// When the counter was written last.
    written: Timestamp,
    events: BTreeMap<(u64, usize), Event>,
    number: usize,
    admitted: Vec<Admitted>,
    blocks: Vec<Outstanding>,
    of_blocks: u64,
}

impl World {
    fn new(limit: &Limit, lease: Lease) -> Self {
        let clock = Arc::new(ManualClock::default());
        let room = Bounds { max_bytes: 1 << 30, domain_max_bytes: 1 << 30 };
        let mut keys = KeyBuffer::default();
        keys.begin();
        let range = keys.finish(&Identity::of([b"rule".as_slice()]), None);
        Self {
            store: MemoryStore::new(room, Arc::clone(&clock)),
            clock,
            limit: limit.clone(),
            lease,
            key: keys.key("d", &range).bytes().to_vec(),
            books: Default::default(),
            begun: Instant::now(),
            now: 0,
            behind: 0,
            written: Timestamp::EPOCH,
            events: BTreeMap::new(),
            number: 0,
            admitted: Vec::new(),
            blocks: Vec::new(),
            of_blocks: 0,
        }
    }

    fn run(limit: &Limit, lease: Lease, steps: &[Step]) -> Self {
        let mut world = Self::new(limit, lease);
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

    /// The store's time, and what its counter makes of it.
    fn set_clock(&self) -> Timestamp {
        let now = Timestamp::from_micros(START + self.now - self.behind);
        self.clock.set(now);
        now.max(self.written)
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now + wait, self.number), event);
    }

    /// Lets time pass, with all that happens meanwhile.
    fn go_to(&mut self, then: u64) {
        while let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= then) {
            let ((at, _), event) = next.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = then;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Asked { replica, wanted, at, answer_after, given_back_after } => {
                self.set_clock();
                let lent = self.store.lend(&wanted.check(), Instant::now()).now_or_never().unwrap().unwrap();
                self.written = lent.receipt.map_or(self.written, |receipt| receipt.at);
                self.after(answer_after, Event::Answered { replica, wanted, at, lent, given_back_after });
            }
            Event::Answered { replica, wanted, at, lent, given_back_after } => {
                let (asked, ttl) = (self.instant(at), self.lease.ttl);
                let block = lent.receipt.map(|receipt| Arc::new(Block::new(&wanted.limit, receipt, asked, ttl)));
                self.books[replica].answered(&wanted, Ok(&lent), block.as_ref());
                let Some(block) = block else { return };
                let end = u64::try_from((block.end() - self.begun).as_micros()).unwrap();
                self.blocks.push(Outstanding { from: at, to: end, hits: block.hits() });
                if let Some(late) = given_back_after {
                    self.after(end.saturating_sub(self.now) + late, Event::Ended { wanted, block });
                }
            }
            Event::Ended { wanted, block } => {
                let unused = block.close();
                self.take_back(&wanted, &block, unused);
            }
            Event::Denied { wanted, taken, hits } => {
                if !taken.block.put_back(hits) {
                    self.take_back(&wanted, &taken.block, hits);
                }
            }
        }
    }

    fn take_back(&mut self, wanted: &OwnedCheck, block: &Block, hits: u64) {
        let (now, receipt) = (self.set_clock(), block.receipt(hits));
        self.store.take_back(&wanted.check(), receipt, Instant::now()).now_or_never().unwrap().unwrap();
        let in_window = |window: &Window| now.index(window.period()) == receipt.at.index(window.period());
        if hits > 0 && self.limit.windows().iter().any(in_window) {
            self.written = now;
        }
    }

    fn request(&mut self, step: &Step) {
        let limit = self.limit.clone();
        let key = self.key.clone();
        let check = Check {
            key: CounterKey::of("d", &key),
            limit: &limit,
            hits: Hits::Charge(step.hits),
            role: Role::Enforce,
            recorded: &[],
            lease: Some(self.lease),
        };
        let now = self.instant(self.now);
        let found = self.books[step.replica].take(&check, &self.lease, now);
        if let Some(hits) = found.wanted {
            let wanted = OwnedCheck::of(&Check { hits: Hits::Charge(hits), ..check });
            let (replica, at, given_back_after) = (step.replica, self.now, step.given_back_after);
            let answer_after = step.delays.1;
            self.after(step.delays.0, Event::Asked { replica, wanted, at, answer_after, given_back_after });
        }
        let (by_counter, hits) = (self.set_clock(), u64::from(step.hits));
        match (found.taken, step.denied_after) {
            (Some(taken), Some(wait)) => {
                self.after(wait, Event::Denied { wanted: OwnedCheck::of(&check), taken, hits })
            }
            (Some(_), None) => {
                self.of_blocks += hits;
                self.admitted.push(Admitted { at: self.now, hits, by_counter });
            }
            (None, _) => {
                let lent = self.store.lend(&check, Instant::now()).now_or_never().unwrap().unwrap();
                let outcome = crate::algorithm::judge::Outcome {
                    allowed: lent.receipt.is_some(),
                    report: lent.report,
                    by: crate::algorithm::judge::JudgedBy::Store,
                };
                self.books[step.replica].learn(&check, Ok(&outcome));
                if let Some(receipt) = lent.receipt {
                    self.written = receipt.at;
                    self.admitted.push(Admitted { at: self.now, hits, by_counter: receipt.at });
                }
            }
        }
    }

    /// Hits admitted in a stretch of the world's time.
    fn taken(&self, from: u64, length: u64) -> u64 {
        let inside = |one: &&Admitted| (from..from + length).contains(&one.at);
        self.admitted.iter().filter(inside).map(|one| one.hits).sum()
    }

    /// Hits of the blocks that are held at an instant, used or not.
    fn outstanding(&self, at: u64) -> u64 {
        self.blocks.iter().filter(|block| block.from < at && at < block.to).map(|block| block.hits).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn in_no_fixed_window_more_than_the_limit(limit in fixed(), lease in leases(), steps in steps()) {
        let world = World::run(&limit, lease, &steps);
        for window in limit.windows() {
            let mut windows = BTreeMap::<u64, u64>::new();
            for one in &world.admitted {
                *windows.entry(one.by_counter.index(window.period())).or_default() += one.hits;
            }
            let most = windows.values().max().copied().unwrap_or_default();
            prop_assert!(most <= window.limit().into(), "{most} of {}, {} of blocks", window.limit(), world.of_blocks);
        }
    }

    #[test]
    fn of_rolling_limits_at_most_as_much_in_a_period_less_the_ttl_and_the_blocks_more_in_a_period(
        limit in rolling(), lease in leases(), steps in steps(),
    ) {
        let world = World::run(&limit, lease, &steps);
        for window in limit.windows() {
            let burst = if let Algorithm::Gcra(gcra) = limit.algorithm() { gcra.burst() } else { 0 };
            let (most, period) = (u64::from(window.limit()) + u64::from(burst), window.period().get());
            for Admitted { at, .. } in &world.admitted {
                let less = world.taken(*at, period.saturating_sub(lease.ttl.get()));
                prop_assert!(less <= most, "{less} of {most} in a period less the ttl");
                let whole = world.taken(*at, period);
                let outstanding = world.outstanding(*at);
                prop_assert!(whole <= most + outstanding, "{whole} of {most} and {outstanding} in a period");
            }
        }
    }
}

/// A request of one hit of replica 0, and all that goes well.
const PLAIN: Step =
    Step { wait: 0, replica: 0, hits: 1, denied_after: None, delays: (0, 0), given_back_after: Some(0), step_back: 0 };

#[test]
fn these_worlds_do_take_blocks() {
    let limit = limit(Algorithm::FixedWindow(FixedWindow::new(vec![window(400, 500 * MS)]).unwrap()));
    let step = Step { wait: 100, delays: (50, 50), ..PLAIN };
    let world = World::run(&limit, Lease { hits: 20, ttl: Micros::new(20 * MS) }, &vec![step; 300]);
    assert!(world.of_blocks > 200, "{} of 300 by {} blocks", world.of_blocks, world.blocks.len());
}

#[test]
fn the_bounds_of_a_rolling_limit_are_reached_and_not_passed() {
    let (period, ttl) = (1_000 * MS, 200 * MS);
    let limit = limit(Algorithm::SlidingLog(SlidingLog::new(vec![window(100, period)]).unwrap()));
    let run = |used_at: u64| {
        let mut world = World::new(&limit, Lease { hits: 10, ttl: Micros::new(ttl) });
        let ask = |world: &mut World, at: u64, step: &Step| {
            world.go_to(at);
            world.request(step);
        };
        // The eighth asks for a block: a sixteenth of the 92 that are left.
        (0..8).for_each(|_| ask(&mut world, 0, &PLAIN));
        (0..5).for_each(|_| ask(&mut world, used_at, &PLAIN));
        // All that was charged at the beginning has left the period.
        [40, 40, 15, 5].into_iter().for_each(|hits| ask(&mut world, period, &Step { hits, replica: 1, ..PLAIN }));
        (world.taken(used_at, period), world.taken(used_at, period - ttl + 1), world.outstanding(used_at))
    };
    assert_eq!(run(ttl - 1), (105, 5, 5));
    assert_eq!(run(ttl), (100, 100, 0), "the block has ended: these five have asked for themselves");
}
