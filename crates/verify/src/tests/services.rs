//! Histories of this crate's own store, and of the same store with another limit.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::hold::HoldRequest;
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::verdict::{Prior, Role};
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate_core::descriptor::{Identity, KeyBuffer};
use tollgate_store::clock::ManualClock;
use tollgate_store::memory::{Bounds, MemoryStore};
use tollgate_store::{Check, Store as _};

use super::{PropertyResult, SECOND, START, call, check};
use crate::bound::{CounterBound, CounterModel};
use crate::check::CheckedProperty;
use crate::history::{ObservedAnswer, ObservedCall};

/// Kinds of limits.
const KINDS: usize = 9;

/// Counters in memory.
pub(super) struct MemoryCounters {
    store: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
}

/// A service with one counter in memory.
struct MemoryService {
    counters: MemoryCounters,
    limit: Limit,
}

/// A call in a plan: the time since the last judgement, before and after its own, hits, and luck.
type PlannedStep = (u64, u64, u64, u64, u8);

fn limit(kind: usize, amount: u32) -> Limit {
    stretched(kind, amount, 1)
}

/// Returns a limit whose periods are so many times as long.
fn stretched(kind: usize, amount: u32, times: u64) -> Limit {
    let window =
        |amount, millis: u64| Window::new(amount, Micros::new(millis * 1000 * times)).unwrap();
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

impl Default for MemoryCounters {
    fn default() -> Self {
        let clock = Arc::new(ManualClock::default());
        let bounds = Bounds { max_bytes: 1 << 30, domain_max_bytes: 1 << 30 };
        Self { store: MemoryStore::new(bounds, Arc::clone(&clock)), clock }
    }
}

/// A request to counters in memory.
pub(super) struct MemoryRequest<'a> {
    pub(super) now: u64,
    pub(super) hits: Hits,
    pub(super) hold: Option<HoldRequest<'a>>,
    /// The limit and the name of each counter.
    pub(super) counters: &'a [(Limit, String)],
}

impl MemoryCounters {
    /// Decides a request. Returns the verdict, the remaining hits and the seconds until the reset
    /// of each counter.
    pub(super) fn decide(&self, request: &MemoryRequest<'_>) -> Vec<(bool, u64, Option<u64>)> {
        self.clock.set(Timestamp::from_micros(request.now));
        let mut buffers = Vec::new();
        for (_, name) in request.counters {
            let mut keys = KeyBuffer::default();
            keys.begin();
            keys.push(name.as_bytes());
            let key = keys.finish(&Identity::of([b"rule".as_slice()]), None);
            buffers.push((keys, key));
        }
        let checks = request.counters.iter().zip(&buffers).map(|((limit, _), (keys, key))| Check {
            key: keys.key("check", key),
            limit,
            hits: request.hits,
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: request.hold.as_ref(),
        });
        let checks: Vec<_> = checks.collect();
        let decided = self.store.decide(&checks, Prior::Open, Instant::now());
        let outcomes = decided.now_or_never().unwrap().into_iter().map(|outcome| {
            let outcome = outcome.unwrap();
            let reset = outcome.report.reset_after.map(|reset| reset.get() / SECOND);
            (outcome.allowed, outcome.report.remaining, reset)
        });
        outcomes.collect()
    }
}

impl MemoryService {
    fn new(limit: Limit) -> Self {
        Self { counters: MemoryCounters::default(), limit }
    }

    fn decide(&self, now: u64, hits: u64) -> ObservedAnswer {
        let hits = Hits::Charge(hits.try_into().unwrap());
        let counters = [(self.limit.clone(), "counter".to_owned())];
        let request = MemoryRequest { now, hits, hold: None, counters: &counters };
        let (is_allowed, remaining, reset) = self.counters.decide(&request).remove(0);
        if is_allowed {
            ObservedAnswer::Admitted { remaining: Some(remaining), reset }
        } else {
            ObservedAnswer::Denied { remaining: Some(remaining), reset }
        }
    }

    /// Returns the history of a plan, as a client sees it whose clock is `offset` behind.
    fn history(&self, steps: &[PlannedStep], offset: u64) -> Vec<ObservedCall> {
        self.history_with(steps, &[offset])
    }

    /// Returns the history of a plan. The clock is ahead of the client's by each offset in turn.
    fn history_with(&self, steps: &[PlannedStep], offsets: &[u64]) -> Vec<ObservedCall> {
        let mut now = START;
        let mut calls = Vec::new();
        for ((after, before, later, hits, luck), offset) in steps.iter().zip(offsets.iter().cycle())
        {
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
            let begin = now.saturating_sub(*before).max(START);
            let end = now + later;
            calls.push(call(begin - START, end - START, *hits, answer));
        }
        calls
    }
}

fn steps() -> impl Strategy<Value = Vec<PlannedStep>> {
    let after = prop_oneof![3 => 0..1000_u64, 2 => 0..SECOND, 1 => 0..12 * SECOND];
    let wait = || prop_oneof![3 => 0..1000_u64, 1 => 0..2 * SECOND];
    prop::collection::vec((after, wait(), wait(), 0_u64..4, 0_u8..20), 0..60)
}

/// Returns calls at even intervals that last through three periods, each answered after 20 ms.
fn hammering(period: u64) -> Vec<PlannedStep> {
    vec![(period / 200, 10_000, 10_000, 1, 2); 600]
}

/// Returns the model of a limit.
fn declared(kind: usize, amount: u32) -> CounterModel {
    CounterModel::of(&limit(kind, amount), None, START).unwrap()
}

/// Returns the number of contradictions of a property.
fn contradictions(found: &[PropertyResult], property: CheckedProperty) -> u64 {
    let found = found.iter().find(|one| one.property == property);
    found.map_or(0, |found| found.contradictions)
}

#[test]
fn windows_that_are_longer_than_declared_are_found_while_calls_go_on() {
    // A sliding window that charges denied hits may deny all calls for as long as they go on.
    for kind in (0..KINDS).filter(|kind| ![4, 6].contains(kind)) {
        let declared = declared(kind, 5);
        let calls =
            MemoryService::new(stretched(kind, 5, 2)).history(&hammering(declared.period()), 0);
        let found = check(&declared, &calls, 50_000);
        let denials = contradictions(&found, CheckedProperty::NoUnjustifiedDenial);
        assert!(denials > 20, "kind {kind}: {denials} {found:?}");
        let right = MemoryService::new(limit(kind, 5)).history(&hammering(declared.period()), 0);
        assert_eq!(check(&declared, &right, 50_000), [], "kind {kind}");
    }
}

#[test]
fn windows_that_are_longer_than_declared_are_found_after_a_rest() {
    for kind in 0..KINDS {
        let declared = declared(kind, 5);
        let rest = declared.longest_return() + 100_000;
        let mut plan = Vec::new();
        // The longer of two windows is used up in two turns, and one of the rests ends within a
        // window of the service.
        for wait in [1000, 2 * SECOND, rest, 2 * SECOND, rest] {
            plan.push((wait, 500, 500, 1, 2));
            plan.extend([(1000, 500, 500, 1, 2); 11]);
        }
        let [wrong, right] = [2, 1].map(|times| {
            let calls = MemoryService::new(stretched(kind, 5, times)).history(&plan, 0);
            assert!(declared.bounds.iter().all(|bound| bound.shows_return(&calls, 10_000)));
            let is_shown = |bound: &CounterBound| bound.shows_return(&calls[..12], 10_000);
            assert!(rest < SECOND || !declared.bounds.iter().all(is_shown), "kind {kind}");
            check(&declared, &calls, 10_000)
        });
        assert!(!wrong.is_empty() && right.is_empty(), "kind {kind}: {wrong:?} {right:?}");
    }
}

#[test]
fn peeks_that_charge_and_one_hit_less_than_the_limit_are_found() {
    for kind in 0..KINDS {
        for (served, peeks) in [(3, 3), (2, 0)] {
            let service = MemoryService::new(limit(kind, served));
            let mut calls = service.history(&[(1, 0, 0, 1, 2); 4][..served as usize + 1], 0);
            calls[..peeks].iter_mut().for_each(|call| call.hits = 0);
            let found = check(&declared(kind, 3), &calls, 0);
            assert!(contradictions(&found, CheckedProperty::NoUnjustifiedDenial) > 0, "{found:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_history_of_the_own_store_contradicts_nothing(
        kind in 0..KINDS,
        amount in 1_u32..8,
        steps in steps(),
        hammering_from in prop::option::of(0..60_usize),
        // The clocks of replicas differ, and step.
        offsets in prop::collection::vec(0..100_000_u64, 1..5),
        // A restart, during which requests or their answers are lost.
        (down, down_for) in (0..60_usize, 0..10_usize),
    ) {
        let service = MemoryService::new(limit(kind, amount));
        let model = declared(kind, amount);
        let mut steps = steps;
        if let Some(from) = hammering_from {
            let calls = hammering(model.period());
            steps.splice(from.min(steps.len())..from.min(steps.len()), calls[..200].iter().copied());
        }
        for (_, _, _, _, luck) in steps.iter_mut().skip(down).take(down_for) {
            *luck %= 2;
        }
        let found = check(&model, &service.history_with(&steps, &offsets), 100_000);
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
        let model = declared(kind, amount);
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
            prop_assert_eq!(contradictions(&found, CheckedProperty::NeverOver), 0, "{:?}", example);
        }
    }
}
