//! Costs that become known later, under gcra: the backlog is that of the costs charged at once.

use proptest::prelude::*;

use super::super::hold::{Hold, HoldAction, HoldEffect, HoldRequest, OnSettle};
use super::*;

/// Hits of the limit, and the time in us in which one of them drains.
const LIMIT: u32 = 100_000;
const INTERVAL: u64 = 6_000;
/// Quotient of the rates of the faster and the slower limit, which admit as many hits at once.
const SLOWER: u32 = 10;
const MINUTE: u64 = 60_000_000;

/// A hold, as the specification has it: what it counts for is its cost once that is known.
#[derive(Clone, Copy, Debug)]
struct Charged {
    at: u64,
    hits: u32,
}

/// Returns the backlog in us by the definition of a leaky bucket, from all charges in order.
fn backlog_of(charges: &[Charged], now: u64) -> u64 {
    let mut backlog = 0u64;
    let mut last = 0;
    for charge in charges {
        backlog = backlog.saturating_sub(charge.at - last) + u64::from(charge.hits) * INTERVAL;
        last = charge.at;
    }
    backlog.saturating_sub(now - last)
}

/// A counter with holds, and the charges by the specification.
struct HeldCounter {
    limit: Limit,
    state: State,
    charges: Vec<Charged>,
}

impl HeldCounter {
    fn new() -> Self {
        let limit = Self::limit(LIMIT);
        let state = limit.unused();
        Self { limit, state, charges: Vec::new() }
    }

    /// Returns a limit of so many hits in the same period, and a burst of [`LIMIT`].
    fn limit(hits: u32) -> Limit {
        let gcra = Gcra::new(window(hits, u64::from(LIMIT) * INTERVAL), Some(LIMIT), None).unwrap();
        let hold = Hold { ttl: Micros::new(60 * MINUTE), on_settle: OnSettle::Charge };
        limit(Algorithm::Gcra(gcra), Charge::Admitted).with_hold(hold)
    }

    /// Returns the remaining hits.
    fn remaining(&self, now: u64) -> u64 {
        self.limit.report(&self.state, None, at(now)).unwrap().remaining
    }

    /// Returns the ID of a hold: its number.
    fn request(id: &[u8], action: HoldAction) -> HoldRequest<'_> {
        HoldRequest { id, action, ttl: None }
    }

    /// Reserves hits if they fit.
    fn reserve(&mut self, hits: u32, now: u64) {
        if self.limit.allows(&self.state, hits.into(), at(now)).unwrap() {
            let id = self.charges.len().to_be_bytes();
            let request = Self::request(&id, HoldAction::Reserve);
            self.limit
                .reserve(&mut self.state, hits.into(), request, Recorded::default(), at(now))
                .unwrap();
            self.charges.push(Charged { at: now, hits });
        }
    }

    /// Commits a hold to a cost of at most its hits.
    fn commit(&mut self, number: usize, cost: u32, now: u64) {
        let request_id = number.to_be_bytes();
        let request = Self::request(&request_id, HoldAction::Commit(cost));
        let effect =
            self.limit.change_hold(&mut self.state, request, Recorded::default(), at(now)).unwrap();
        assert!(matches!(effect, HoldEffect::Committed { .. }), "{effect:?}");
        self.charges[number].hits = cost;
    }

    /// Returns by how many us the backlog is above that of the specification.
    fn excess(&self, now: u64) -> u64 {
        let report = self.limit.report(&self.state, None, at(now)).unwrap();
        let backlog = report.reset_after.unwrap().get();
        let exact = backlog_of(&self.charges, now);
        assert!(backlog >= exact, "{backlog} of {exact} at {now}");
        backlog - exact
    }
}

/// A source of numbers for long traces.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        // The constants of Knuth's MMIX.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn shuffle(&mut self, items: &mut [usize]) {
        for last in (1..items.len()).rev() {
            items.swap(last, usize::try_from(self.below(last as u64 + 1)).unwrap());
        }
    }
}

proptest! {
    #[test]
    fn up_to_128_holds_are_exact_at_any_time(
        steps in proptest::collection::vec((0u64..2_000_000, 1u32..800, any::<prop::sample::Index>(), 0u32..=100), 1..190),
    ) {
        let mut holds = HeldCounter::new();
        let mut open = Vec::new();
        let mut now = 0;
        for (number, (wait, hits, which, percent)) in steps.into_iter().enumerate() {
            now += wait;
            if number % 3 < 2 {
                let before = holds.charges.len();
                holds.reserve(hits, now);
                open.extend(before..holds.charges.len());
            } else if !open.is_empty() {
                let hold = open.swap_remove(which.index(open.len()));
                holds.commit(hold, holds.charges[hold].hits * percent / 100, now);
            }
            prop_assert_eq!(holds.excess(now), 0, "after {} steps", number);
        }
    }
}

/// Reserves holds for the whole limit within `during`, commits them in random order to `percent` of
/// it on average over two minutes. Returns what is charged too much, in thousandths of the cost.
fn excess(count: u32, during: u64, percent: u64, numbers: &mut Numbers) -> u64 {
    let mut holds = HeldCounter::new();
    let mut instants: Vec<u64> = (0..count).map(|_| numbers.below(during)).collect();
    instants.sort_unstable();
    instants.iter().for_each(|now| holds.reserve(LIMIT / count, *now));
    let mut order: Vec<usize> = (0..holds.charges.len()).collect();
    numbers.shuffle(&mut order);
    let mut now = during;
    for number in order {
        now += numbers.below(2 * 2 * MINUTE / u64::from(count));
        let hits = u64::from(holds.charges[number].hits);
        let cost = numbers.below(hits * percent / 50 + 1).min(hits);
        holds.commit(number, u32::try_from(cost).unwrap(), now);
        holds.excess(now);
    }
    let cost: u64 = holds.charges.iter().map(|charge| u64::from(charge.hits)).sum();
    assert!(holds.state.heap_bytes() < 200 * holds.charges.len() + 8_192, "bounded marks");
    holds.excess(now) * 1_000 / (cost * INTERVAL)
}

#[test]
fn holds_in_any_number_are_charged_with_at_most_1_02_of_their_cost() {
    let mut numbers = Numbers(1);
    for count in [100, 500, 2_000] {
        for during in [1_000_000, MINUTE, 5 * MINUTE] {
            for percent in [12, 50] {
                let excess = excess(count, during, percent, &mut numbers);
                assert!(
                    excess <= 20,
                    "{excess} of 1000: {count} holds in {during} us, {percent} %"
                );
            }
        }
    }
}

#[test]
fn of_128_holds_any_is_exact() {
    // Of the first, a part has drained before the second; of others, nothing has.
    for number in [0, 64] {
        let mut holds = HeldCounter::new();
        (0..128).for_each(|number| holds.reserve(100, number * 1_000));
        holds.commit(number, 0, 128_000);
        assert_eq!(holds.excess(128_000), 0, "hold {number}");
    }
}

#[test]
fn marks_have_as_many_hits_at_another_rate() {
    // Four of five hits have drained before the sixth: one of the three given back is left.
    let [fast, slow] = [LIMIT, LIMIT / SLOWER].map(HeldCounter::limit);
    let slow_interval = INTERVAL * u64::from(SLOWER);
    for (by, interval, then, left) in
        [(&fast, INTERVAL, &slow, slow_interval), (&slow, slow_interval, &fast, INTERVAL)]
    {
        let mut holds = HeldCounter::new();
        holds.limit = by.clone();
        holds.reserve(5, 0);
        let now = 4 * interval;
        holds.reserve(1, now);
        holds.limit = then.clone();
        holds.commit(0, 2, now);
        let report = holds.limit.report(&holds.state, None, at(now)).unwrap();
        assert_eq!(report.reset_after, Some(Micros::new(left)));
    }
}

#[test]
fn a_counter_that_is_idle_before_each_charge_has_one_mark() {
    let mut holds = HeldCounter::new();
    let bytes = [(); 3].map(|()| {
        (0..40).for_each(|_| {
            let now = holds.charges.len() as u64 * MINUTE;
            holds.limit.charge(&mut holds.state, 1, at(now)).unwrap();
            holds.charges.push(Charged { at: now, hits: 1 });
        });
        holds.state.heap_bytes()
    });
    assert_eq!(bytes, [bytes[0]; 3]);
}

#[test]
fn holds_that_come_and_go_are_never_charged_with_less_than_their_cost() {
    let mut numbers = Numbers(2);
    let mut holds = HeldCounter::new();
    let mut open = Vec::new();
    let mut now = 0;
    for _ in 0..10_000 {
        now += numbers.below(100_000);
        if numbers.below(2) == 0 {
            let before = holds.charges.len();
            holds.reserve(u32::try_from(1 + numbers.below(400)).unwrap(), now);
            open.extend(before..holds.charges.len());
        } else if !open.is_empty() {
            let place = usize::try_from(numbers.below(open.len() as u64)).unwrap();
            let hold = open.swap_remove(place);
            let cost = numbers.below(u64::from(holds.charges[hold].hits) + 1);
            holds.commit(hold, u32::try_from(cost).unwrap(), now);
        }
        if now % 64 == 0 {
            holds.excess(now);
        }
    }
    assert!(holds.excess(now) <= backlog_of(&holds.charges, now) / 50);
}

/// Reserves 150, 1,000, 500 and 5,000 hits, lowers the rate and makes further reserves. Returns the
/// hits that a commit of the 1,000 to nothing gives back.
fn given_back_after_a_slower_rate(more: u64) -> u64 {
    let mut holds = HeldCounter::new();
    for (now, hits) in [(0, 150), (6, 1_000), (5_340_000, 500), (5_400_000, 5_000)] {
        holds.reserve(hits, now);
    }
    holds.limit = HeldCounter::limit(LIMIT / SLOWER);
    let mut now = 6_000_000;
    for _ in 0..more {
        now += 1_500_000;
        holds.reserve(30, now);
    }
    let before = holds.remaining(now);
    holds.commit(1, 0, now);
    holds.remaining(now) - before
}

#[test]
fn merged_marks_give_back_no_more_after_a_slower_rate() {
    let exact = given_back_after_a_slower_rate(100);
    assert!(exact > 0);
    for more in [130, 200, 1_000] {
        let given_back = given_back_after_a_slower_rate(more);
        assert!(given_back <= exact, "{given_back} of {exact} after {more} reserves");
    }
}

/// Reserves 5,000 and 10,000 hits, refunds 8,000, reserves 20,000 and makes further reserves.
/// Returns the hits that a commit of the 10,000 to nothing gives back.
fn given_back_after_a_refund(more: u64) -> u64 {
    let mut holds = HeldCounter::new();
    holds.reserve(5_000, 0);
    holds.reserve(10_000, 1);
    holds.limit.refund(&mut holds.state, 8_000, at(2)).unwrap();
    holds.reserve(20_000, 3);
    for number in 0..more {
        holds.reserve(60, 10 + number);
    }
    let now = 10 + more;
    let before = holds.remaining(now);
    holds.commit(1, 0, now);
    holds.remaining(now) - before
}

#[test]
fn merged_marks_give_back_no_more_after_a_refund() {
    let exact = given_back_after_a_refund(100);
    for more in [130, 200, 1_000] {
        let given_back = given_back_after_a_refund(more);
        assert!(given_back <= exact, "{given_back} of {exact} after {more} reserves");
    }
}
