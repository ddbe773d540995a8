//! A descriptor that requests name: the demand for it, and the blocks in hand. Neither takes a
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use tollgate_lease::Block;

use super::demand::{Demand, micros_of};
use crate::decision::{Code, DescriptorStatus, duration};
use crate::descriptor::Descriptor;
use crate::generated::tollgate::v1::{self as wire, CounterReport, LeaseReturn};

/// Number of requests in a window from which a key is worth a block.
pub(super) const HOT: u32 = 8;
/// Least window of demand.
const LEAST_WINDOW: Duration = Duration::from_millis(50);
/// Bound of the blocks of a key: mostly one that is used, and the next.
const BLOCKS: usize = 4;

/// An instant by two clocks. The monotonic one may not advance while the machine is suspended; the
/// time of day may be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) monotonic: Instant,
    pub(super) of_day: SystemTime,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), of_day: SystemTime::now() }
    }
}

/// A block of hits that were charged before they were lent.
#[derive(Debug)]
pub(super) struct LentBlock {
    block: Block,
    /// The start of the call that lent it.
    sent: Moment,
    usable_for: Duration,
    receipt: Vec<u8>,
    /// The counter after the charge.
    counter: CounterReport,
}

impl LentBlock {
    pub(super) fn new(loan: wire::Loan, sent: Moment, received: Instant) -> Self {
        let usable_for = duration(loan.usable_for.as_ref());
        Self {
            block: Block::lent(loan.hits, sent.monotonic..received, usable_for),
            sent,
            usable_for,
            receipt: loan.receipt,
            counter: loan.counter.unwrap_or_default(),
        }
    }

    /// Returns `true` if its time has ended by one of the clocks.
    fn has_ended(&self, now: Moment) -> bool {
        let passed = now.of_day.duration_since(self.sent.of_day);
        now.monotonic >= self.block.end() || passed.map_or(true, |passed| passed >= self.usable_for)
    }

    /// Undoes taking hits. Those of a closed block are lost.
    pub(super) fn put_back(&self, hits: u32) {
        self.block.put_back(hits.into());
    }

    /// Ends the block. Its return must be sent once.
    fn close(&self) -> LeaseReturn {
        let hits = self.block.hits();
        let unused = self.block.close().min(hits);
        let part = |hits: u64| u32::try_from(hits).unwrap_or(u32::MAX);
        LeaseReturn {
            descriptor: None,
            receipt: self.receipt.clone(),
            unused: part(unused),
            used: part(hits - unused),
        }
    }
}

/// A descriptor of a domain.
#[derive(Debug)]
pub(super) struct LeasedKey {
    pub(super) hash: u64,
    pub(super) domain: Box<str>,
    pub(super) descriptor: Descriptor,
    demand: Demand,
    /// Only the exchanger replaces it.
    hand: ArcSwap<Vec<Arc<LentBlock>>>,
    generation: AtomicU64,
    /// Set from the decision to want a block until the answer.
    is_asking: AtomicBool,
    /// The time before which no block is wanted.
    not_before: AtomicU64,
}

/// Result of [`LeasedKey::take`].
#[derive(Debug)]
pub(super) struct Taken {
    /// The block that the hits were taken from, if one has so many, and the status of the request.
    pub(super) admitted: Option<(Arc<LentBlock>, DescriptorStatus)>,
    /// `true` for the one request after which the next block is to be requested.
    pub(super) wants: bool,
}

impl LeasedKey {
    /// Creates a key. `now` and all times are microseconds since the table was created.
    pub(super) fn new(hash: u64, domain: &str, descriptor: &Descriptor, now: u64) -> Self {
        Self {
            hash,
            domain: domain.into(),
            descriptor: descriptor.clone(),
            demand: Demand::new(now),
            hand: ArcSwap::default(),
            generation: AtomicU64::new(0),
            is_asking: AtomicBool::new(false),
            not_before: AtomicU64::new(0),
        }
    }

    pub(super) fn is(&self, hash: u64, domain: &str, descriptor: &Descriptor) -> bool {
        self.hash == hash && *self.domain == *domain && self.descriptor == *descriptor
    }

    /// Counts a request, and takes its hits from a block if one has enough.
    pub(super) fn take(&self, hits: u32, now: Moment, micros: u64) -> Taken {
        self.demand.count(hits, micros);
        let hand = self.hand.load();
        let mut taken = None;
        let mut in_hand = 0;
        let mut is_enough = false;
        for block in hand.iter().filter(|block| !block.has_ended(now)) {
            if taken.is_none() && block.block.take(hits.into(), now.monotonic) {
                taken = Some(block);
            }
            in_hand += block.block.left(now.monotonic);
            is_enough |= !block.block.is_running_out(now.monotonic);
        }
        let is_worth_a_block = !is_enough
            && hand.len() < BLOCKS
            && self.demand.requests() >= HOT
            && micros >= self.not_before.load(Relaxed);
        Taken {
            wants: is_worth_a_block && !self.is_asking.swap(true, Relaxed),
            admitted: taken.map(|block| {
                // The counter as it was when the last block was lent, and the hits in hand.
                let last = hand.last().unwrap_or(block);
                (Arc::clone(block), status(last, in_hand, now))
            }),
        }
    }

    /// Returns `true` if another key must not replace it now: it has blocks, or demand, which each
    /// such attempt lowers.
    pub(super) fn is_kept(&self, micros: u64) -> bool {
        if self.is_asking.load(Relaxed) || !self.hand.load().is_empty() {
            return true;
        }
        self.demand.decrease(micros) > 1
    }

    /// Returns the want of a block for the demand.
    pub(super) fn want(&self) -> wire::LeaseWant {
        let hits = u32::try_from(self.demand.hits()).unwrap_or(u32::MAX);
        wire::LeaseWant { descriptor: Some(self.descriptor.message()), hits }
    }

    /// Adds a block that was lent.
    pub(super) fn lent(&self, block: LentBlock) {
        let window = block.usable_for.max(LEAST_WINDOW);
        self.demand.set_window(micros_of(window));
        let mut blocks = self.hand.load().to_vec();
        blocks.push(Arc::new(block));
        self.hand.store(Arc::new(blocks));
    }

    /// Closes the blocks of another generation, and returns their returns.
    pub(super) fn begin_generation(&self, generation: u64) -> Vec<LeaseReturn> {
        if self.generation.swap(generation, Relaxed) == generation {
            return Vec::new();
        }
        self.hand.swap(Arc::default()).iter().map(|block| block.close()).collect()
    }

    /// Allows the next want from a time on.
    pub(super) fn answered(&self, not_before: u64) {
        self.not_before.store(not_before, Relaxed);
        self.is_asking.store(false, Relaxed);
    }

    /// Returns the window of demand.
    pub(super) fn window(&self) -> u64 {
        self.demand.window()
    }

    /// Closes the blocks that have ended or are empty, or `all`, and returns their returns.
    pub(super) fn close_ended(&self, now: Moment, all: bool) -> Vec<LeaseReturn> {
        let is_closed = |block: &Arc<LentBlock>| {
            all || block.has_ended(now) || block.block.left(now.monotonic) == 0
        };
        let (closed, kept): (Vec<_>, Vec<_>) =
            self.hand.load().iter().cloned().partition(is_closed);
        if closed.is_empty() {
            return Vec::new();
        }
        self.hand.store(Arc::new(kept));
        closed.iter().map(|block| block.close()).collect()
    }

    pub(super) fn has_blocks(&self) -> bool {
        !self.hand.load().is_empty()
    }
}

fn status(last: &LentBlock, in_hand: u64, now: Moment) -> DescriptorStatus {
    let remaining = last.counter.remaining.saturating_add(in_hand);
    let passed = now.monotonic.saturating_duration_since(last.sent.monotonic);
    DescriptorStatus {
        code: Code::Ok,
        limit: Some(last.counter.limit),
        remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        reset_after: duration(last.counter.reset_after.as_ref()).saturating_sub(passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Returns a key, and the moment at which its first block was lent.
    fn lent(hits: u32) -> (LeasedKey, Moment) {
        let key = LeasedKey::new(1, "shop", &Descriptor::new("user", "ann"), 0);
        let now = Moment::now();
        key.lent(block(hits, now));
        (key, now)
    }

    /// Returns a block that is usable for a second.
    fn block(hits: u32, sent: Moment) -> LentBlock {
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let counter =
            CounterReport { limit: 100, remaining: 50, reset_after: seconds(60), period: None };
        let usable_for = seconds(1);
        let loan = wire::Loan { hits, receipt: vec![1], usable_for, counter: Some(counter) };
        LentBlock::new(loan, sent, sent.monotonic)
    }

    fn after(now: Moment, passed: Duration) -> Moment {
        Moment { monotonic: now.monotonic + passed, of_day: now.of_day + passed }
    }

    fn admits(key: &LeasedKey, hits: u32, now: Moment) -> bool {
        key.take(hits, now, 0).admitted.is_some()
    }

    #[test]
    fn a_block_admits_its_hits_until_its_end_and_its_status_counts_those_in_hand() {
        let (key, now) = lent(10);
        let later = after(now, Duration::from_millis(1));
        let (_, status) = key.take(4, later, 0).admitted.unwrap();
        assert_eq!((status.limit, status.remaining), (Some(100), 56));
        assert_eq!(status.reset_after, Duration::from_millis(59_999));
        assert!(!admits(&key, 7, later), "7 of 6 hits are taken");
        let end = Duration::from_secs(1);
        assert!(admits(&key, 1, after(now, end - Duration::from_nanos(1))));
        assert!(!admits(&key, 1, after(now, end)), "the block has ended");
    }

    #[test]
    fn a_block_ends_with_the_time_of_day_after_a_suspension_or_if_the_clock_is_set_back() {
        let (key, now) = lent(10);
        let second = Duration::from_secs(1);
        assert!(!admits(&key, 1, Moment { of_day: now.of_day + second, ..now }));
        assert!(!admits(&key, 1, Moment { of_day: now.of_day - second, ..now }));
        assert!(admits(&key, 1, now));
    }

    #[test]
    fn hits_are_returned_once_and_those_put_back_into_a_closed_block_are_lost() {
        let (key, now) = lent(10);
        let (first, _) = key.take(3, now, 0).admitted.unwrap();
        let (second, _) = key.take(2, now, 0).admitted.unwrap();
        first.put_back(3);
        assert_eq!(key.close_ended(now, false), []);
        let returns = key.close_ended(now, true);
        second.put_back(2);
        assert_eq!((returns.len(), returns[0].unused, returns[0].used), (1, 8, 2));
        assert_eq!((key.close_ended(now, true), second.close().unused), (Vec::new(), 0));
        assert!(!admits(&key, 1, now));
    }

    #[test]
    fn empty_and_ended_blocks_are_closed_and_others_kept() {
        let (key, now) = lent(10);
        let later = after(now, Duration::from_millis(900));
        key.lent(block(5, later));
        assert!(admits(&key, 10, now));
        assert_eq!(key.close_ended(later, false)[0].used, 10);
        assert!(key.has_blocks());
        let ended = key.close_ended(after(later, Duration::from_secs(1)), false);
        assert_eq!((ended[0].unused, key.has_blocks()), (5, false));
    }

    #[test]
    fn another_generation_ends_the_blocks_before_it() {
        let (key, now) = lent(10);
        assert_eq!(key.begin_generation(0), []);
        let returns = key.begin_generation(2);
        assert_eq!((returns.len(), returns[0].unused), (1, 10));
        assert!(!admits(&key, 1, now));
        key.lent(block(5, now));
        assert_eq!(key.begin_generation(2), []);
        assert!(admits(&key, 5, now));
    }

    #[test]
    fn a_block_is_wanted_once_when_a_key_is_hot_and_again_when_it_runs_out() {
        let key = LeasedKey::new(1, "shop", &Descriptor::new("user", "ann"), 0);
        let now = Moment::now();
        let wanted = (0..3 * HOT).map(|_| key.take(2, now, 1).wants);
        let wanted: Vec<_> =
            wanted.enumerate().filter_map(|(n, wants)| wants.then_some(n)).collect();
        assert_eq!((wanted, key.want().hits), (vec![7], 6 * HOT));
        key.lent(block(40, now));
        key.answered(0);
        let until = (0..40).position(|_| key.take(1, now, 1).wants);
        assert_eq!(until, Some(29), "a quarter is left");
    }

    #[test]
    fn a_block_is_not_wanted_before_its_time() {
        let key = LeasedKey::new(1, "shop", &Descriptor::new("user", "ann"), 0);
        let now = Moment::now();
        key.answered(SECOND);
        let early = (0..2 * HOT).any(|_| key.take(1, now, SECOND - 1).wants);
        assert_eq!((early, key.take(1, now, SECOND).wants), (false, true));
    }
}
