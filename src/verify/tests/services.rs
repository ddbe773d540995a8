//! Histories of this crate's own store, and of the same store with another limit.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::{SECOND, START, check};
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::judge::Hits;
use crate::algorithm::quota::Window;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Estimate, SlidingWindow};
use crate::algorithm::time::{Micros, Timestamp};
use crate::algorithm::verdict::{Prior, Role};
use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use crate::descriptor::{Identity, KeyBuffer};
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::store::{Check, Store as _};
use crate::verify::bound::CounterModel;
use crate::verify::check::CheckedProperty;
use crate::verify::history::{ObservedAnswer, ObservedCall};

/// Kinds of limits.
const KINDS: usize = 9;

/// A service with one counter in memory.
struct MemoryService {
    store: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    limit: Limit,
}

/// A call in a plan: the time since the last judgement, before and after its own, hits, and luck.
type PlannedStep = (u64, u64, u64, u64, u8);

fn limit(kind: usize, amount: u32) -> Limit {
    let window = |amount, millis: u64| Window::new(amount, Micros::new(millis * 1000)).unwrap();
    let sliding = |windows, buckets| {
        Algorithm::SlidingWindow(SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap())
    };
    let fixed = |windows| Algorithm::FixedWindow(FixedWindow::new(windows).unwrap());
    let gcra = |window, burst| Algorithm::Gcra(Gcra::new(window, burst, None).unwrap());
    let two = vec![window(amount, 1000), window(amount * 2, 7000)];
    let (algorithm, charge) = match kind {
        0 => (fixed(vec![window(amount, 10_000)]), Charge::Admitted),
        1 => (fixed(vec![window(amount, 1000)]), Charge::Always),
        2 => (fixed(two), Charge::Admitted),
        3 => (sliding(vec![window(amount, 10_000)], 20), Charge::Admitted),
        4 => (sliding(vec![window(amount, 1000)], 3), Charge::Always),
        5 => (Algorithm::SlidingLog(SlidingLog::new(two).unwrap()), Charge::Admitted),
        6 => {
            let log = SlidingLog::new(vec![window(amount, 3000)]).unwrap();
            (Algorithm::SlidingLog(log), Charge::Blamed)
        }
        7 => (gcra(window(7, 3000), Some(amount)), Charge::Admitted),
        _ => (gcra(window(amount, 1000), None), Charge::Admitted),
    };
    Limit::new(algorithm, charge, OnStoreError::Error).unwrap()
}

impl MemoryService {
    fn new(limit: Limit) -> Self {
        let clock = Arc::new(ManualClock::default());
        let bounds = Bounds { max_bytes: 1 << 30, domain_max_bytes: 1 << 30 };
        Self { store: MemoryStore::new(bounds, Arc::clone(&clock)), clock, limit }
    }

    fn decide(&self, now: u64, hits: u64) -> ObservedAnswer {
        self.clock.set(Timestamp::from_micros(now));
        let mut keys = KeyBuffer::default();
        keys.begin();
        keys.push(b"counter");
        let key = keys.finish(&Identity::of([b"rule".as_slice()]), None);
        let check = Check {
            key: keys.key("check", &key),
            limit: &self.limit,
            hits: Hits::Charge(hits.try_into().unwrap()),
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: None,
        };
        let checks = [check];
        let decided = self.store.decide(&checks, Prior::Open, Instant::now());
        let outcome = decided.now_or_never().unwrap().remove(0).unwrap();
        let remaining = Some(outcome.report.remaining);
        let reset = outcome.report.reset_after.map(|reset| reset.get() / SECOND);
        if outcome.allowed {
            ObservedAnswer::Admitted { remaining, reset }
        } else {
            ObservedAnswer::Denied { remaining, reset }
        }
    }

    /// Returns the history of a plan, as a client sees it whose clock is `offset` behind.
    fn history(&self, steps: &[PlannedStep], offset: u64) -> Vec<ObservedCall> {
        let mut now = START;
        let mut calls = Vec::new();
        for (after, before, later, hits, luck) in steps {
            now += after;
            let answer = match luck {
                // The request was lost, or its answer.
                0 => ObservedAnswer::Failed { error: "lost".to_owned() },
                1 => {
                    self.decide(now + offset, *hits);
                    ObservedAnswer::Failed { error: "lost".to_owned() }
                }
                _ => self.decide(now + offset, *hits),
            };
            let begin = now.saturating_sub(*before);
            let end = now + later;
            calls.push(ObservedCall { counter: 0, target: 0, hits: *hits, begin, end, answer });
        }
        calls
    }
}

fn steps() -> impl Strategy<Value = Vec<PlannedStep>> {
    let after = prop_oneof![3 => 0..1000_u64, 2 => 0..SECOND, 1 => 0..12 * SECOND];
    let wait = || prop_oneof![3 => 0..1000_u64, 1 => 0..2 * SECOND];
    prop::collection::vec((after, wait(), wait(), 1_u64..4, 0_u8..20), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_history_of_the_own_store_contradicts_nothing(
        kind in 0..KINDS,
        amount in 1_u32..8,
        steps in steps(),
        offset in 0..100_000_u64,
    ) {
        let service = MemoryService::new(limit(kind, amount));
        let model = CounterModel::of(&service.limit, false).unwrap();
        let found = check(&model, &service.history(&steps, offset), 100_000);
        prop_assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn one_hit_more_than_the_limit_is_found_with_the_fewest_calls(
        kind in 0..KINDS,
        amount in 1_u32..8,
        before in steps(),
        waits in prop::collection::vec((1..100_u64, 0..50_u64), 8),
    ) {
        let service = MemoryService::new(limit(kind, amount + 1));
        // Long after the rest, in one window: as many single hits as the service admits.
        let mut plan = before;
        plan.push((30 * SECOND, 0, 0, 1, 2));
        let burst = waits.iter().take(amount as usize);
        plan.extend(burst.map(|(after, wait)| (*after, 0, *wait, 1, 2)));
        let calls = service.history(&plan, 0);
        let first = &calls[calls.len() - 1 - amount as usize];
        prop_assume!(first.begin / SECOND == calls[calls.len() - 1].end / SECOND);
        let assumed = limit(kind, amount);
        let model = CounterModel::of(&assumed, false).unwrap();
        let found = check(&model, &calls, 0);
        let over = found.iter().find(|found| found.property == CheckedProperty::NeverOver);
        let over = over.and_then(|found| found.example.as_ref());
        prop_assert!(over.is_some(), "{found:?} {calls:#?}");
        let example = &over.unwrap().calls;
        prop_assert!(example.iter().all(ObservedCall::is_admitted));
        prop_assert!(example.len() as u64 <= u64::from(amount) + 1, "{example:?}");
        // Without any of its calls, the example contradicts the limit no more.
        for index in 0..example.len() {
            let mut fewer = example.clone();
            fewer.remove(index);
            let found = check(&model, &fewer, 0);
            let is_over = |one: &super::PropertyResult| one.property == CheckedProperty::NeverOver;
            prop_assert!(!found.iter().any(is_over), "{example:?}");
        }
    }

    #[test]
    fn one_hit_less_than_the_limit_is_found(kind in 0..KINDS, amount in 2_u32..8) {
        let service = MemoryService::new(limit(kind, amount - 1));
        let calls = service.history(&vec![(1, 0, 0, 1, 2); amount as usize], 0);
        let model = CounterModel::of(&limit(kind, amount), false).unwrap();
        let found = check(&model, &calls, 0);
        let is_denial = |one: &super::PropertyResult| one.property == CheckedProperty::NoUnjustifiedDenial;
        prop_assert!(found.iter().any(is_denial), "{found:?}");
    }
}
