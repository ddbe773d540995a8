#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

mod answers;
mod errors;

use tollgate_core::algorithm::Charge;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::hold::{Hold, HoldAction, HoldEffect, HoldRequest, OnSettle};
use tollgate_core::algorithm::judge::{JudgedBy, Question, judge};
use tollgate_core::algorithm::quota::{Report, Window};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::tallies::Recorded;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Algorithm, Limit};
use tollgate_core::algorithm::{OnStoreError, State};
use tollgate_core::descriptor::CounterKey;
use tollgate_telemetry::metrics::StoreMetrics;

use super::*;
use crate::tests::{self, NOW, SteppedMemory, memory_at};

/// Long enough that no entry expires by the bound.
const LONG: Duration = Duration::from_secs(3_600);
const KEY: &[u8] = b"a counter of some rule";

fn denials() -> Arc<DenialTable> {
    DenialTable::new(LONG, Arc::<StoreMetrics>::default())
}

fn check(limit: &Limit, hits: u32) -> Check<'_> {
    Check { hits: Hits::Charge(hits), ..tests::check(KEY, limit) }
}

fn limits() -> impl Strategy<Value = Limit> {
    let parts = proptest::collection::vec(
        (1u32..6, prop_oneof![Just(1_000u64), Just(60_000), 1_000u64..9_000]),
        1..4,
    );
    let charges = prop_oneof![Just(Charge::Admitted), Just(Charge::Blamed), Just(Charge::Always)];
    (parts, 0u8..5, 1u32..10, charges).prop_map(|(parts, kind, buckets, charge)| {
        let windows =
            || parts.iter().map(|(amount, us)| Window::new(*amount, Micros::new(*us)).unwrap());
        let first = || windows().next().unwrap();
        let algorithm = match kind {
            0 => Algorithm::FixedWindow(FixedWindow::new(vec![first()]).unwrap()),
            1 => Algorithm::FixedWindow(FixedWindow::new(windows().collect()).unwrap()),
            2 => {
                let windows = windows().collect();
                Algorithm::SlidingWindow(
                    SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap(),
                )
            }
            3 => Algorithm::SlidingLog(SlidingLog::new(windows().collect()).unwrap()),
            _ => Algorithm::Gcra(Gcra::new(first(), Some(buckets), None).unwrap()),
        };
        let charge = if kind == 3 && charge == Charge::Always { Charge::Blamed } else { charge };
        Limit::new(algorithm, charge, OnStoreError::Error).unwrap()
    })
}

/// A request: the time since the previous one, its hits, `true` if it goes through another process,
/// and the delays of its store call and of the reply.
type CacheStep = (u64, u32, bool, [u64; 2]);

fn steps() -> impl Strategy<Value = Vec<CacheStep>> {
    let wait = prop_oneof![3 => 0u64..50, 2 => 0u64..1_500];
    let delays = [prop_oneof![Just(0), 0u64..300], prop_oneof![Just(0), 0u64..300]];
    let hits = prop_oneof![5 => Just(1u32), 1 => 1u32..5];
    proptest::collection::vec((wait, hits, prop::bool::weighted(0.2), delays), 1..150)
}

/// An event at an instant.
enum CacheEvent {
    Wanted(CacheStep),
    /// A call reaches the store.
    Asked {
        asked: u64,
        step: CacheStep,
    },
    /// Its reply reaches the process.
    Answered {
        asked: u64,
        hits: u32,
        outcome: Outcome,
    },
}

/// A cached denial, and the store's own outcome at the same instant.
struct Remembered {
    hits: u32,
    reported: Report,
    is_true: bool,
    truth: Report,
}

fn run(limit: &Limit, steps: &[CacheStep]) -> Vec<Remembered> {
    let denials = denials();
    let begun = Instant::now();
    let instant = |at: u64| begun + Duration::from_micros(at);
    let mut state = [limit.unused()];
    let mut number = 0;
    let mut remembered = Vec::new();
    let mut events = BTreeMap::new();
    let mut at = 0;
    for step in steps {
        at += step.0;
        number += 1;
        events.insert((at, number), CacheEvent::Wanted(*step));
    }
    while let Some(((at, _), event)) = events.pop_first() {
        number += 1;
        let now = NOW + Micros::new(at);
        match event {
            CacheEvent::Wanted(step) => {
                let (_, hits, is_elsewhere, [there, _]) = step;
                let found =
                    denials.find(&check(limit, hits), instant(at)).filter(|_| !is_elsewhere);
                if let Some(found) = found {
                    remembered.push(compare(limit, &state[0], hits, now, found.report));
                } else {
                    events.insert((at + there, number), CacheEvent::Asked { asked: at, step });
                }
            }
            CacheEvent::Asked { asked, step: (_, hits, is_elsewhere, [_, back]) } => {
                let recorded = Recorded::default();
                let charge = Question {
                    limit,
                    hits: Hits::Charge(hits),
                    role: Role::Enforce,
                    counter: Some(0),
                    recorded,
                    hold: None,
                };
                let outcome = judge(&[charge], &mut state, Prior::Open, now).outcomes[0].unwrap();
                if !is_elsewhere {
                    events
                        .insert((at + back, number), CacheEvent::Answered { asked, hits, outcome });
                }
            }
            CacheEvent::Answered { asked, hits, outcome } => {
                denials.record(&check(limit, hits), &outcome, instant(asked), instant(at));
            }
        }
    }
    remembered
}

fn compare(
    limit: &Limit,
    state: &State,
    hits: u32,
    now: Timestamp,
    reported: Report,
) -> Remembered {
    let wanted = u64::from(hits);
    let is_true = !limit.allows(state, wanted, now).unwrap();
    Remembered { hits, reported, is_true, truth: limit.report(state, Some(wanted), now).unwrap() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_remembered_denial_is_true_and_its_retry_time_is_never_too_early(limit in limits(), steps in steps()) {
        for Remembered { hits, reported, is_true, truth } in run(&limit, &steps) {
            prop_assert!(is_true, "{hits} hits would have been admitted");
            // For several hits, smaller requests that were admitted since may extend the wait.
            if hits == 1 {
                let late = reported.retry_after.zip(truth.retry_after).map(|(reported, truth)| reported.get().checked_sub(truth.get()));
                prop_assert!(matches!(late, Some(Some(..=600))), "{reported:?} for {truth:?}");
            }
        }
    }
}

/// Returns a limit of hits a minute.
fn fixed(amount: u32, charge: Charge) -> Limit {
    tests::fixed(&[(amount, 60)], charge, OnStoreError::Error)
}

#[test]
fn denials_are_remembered_unless_denied_hits_make_the_wait_longer() {
    let several = |charge| tests::fixed(&[(2, 60), (3, 60)], charge, OnStoreError::Error);
    let rate = |charge| tests::gcra(2, 60).charged(charge);
    // Two are admitted, the third is denied, and the rest is answered from the cache.
    let steps = [(10, 1, false, [1, 1]); 10];
    for (limit, remembered) in [
        (fixed(2, Charge::Always), 7),
        (fixed(2, Charge::Blamed), 7),
        (several(Charge::Admitted), 7),
        (several(Charge::Always), 0),
        (rate(Charge::Admitted), 7),
        (rate(Charge::Blamed), 0),
        (rate(Charge::Always), 0),
    ] {
        assert_eq!(run(&limit, &steps).len(), remembered, "{limit:?}");
    }
}

#[test]
fn times_are_counted_from_the_answer_and_the_memory_from_the_question() {
    let limit = tests::gcra(2, 60);
    let denials = denials();
    let asked = Instant::now();
    let at = |us: u64| asked + Duration::from_micros(us);
    let mut outcome = tests::outcome(false, Some(Micros::new(500)));
    outcome.report.reset_after = Some(Micros::new(900));
    denials.record(&check(&limit, 1), &outcome, asked, at(100));
    let reported = |us| denials.find(&check(&limit, 1), at(us)).map(|found| found.report);
    let times = |us| {
        reported(us).map(|report| {
            [report.retry_after, report.reset_after].map(|time| time.map(Micros::get))
        })
    };
    assert_eq!(times(100), Some([Some(500), Some(900)]));
    assert_eq!(times(499), Some([Some(101), Some(501)]));
    assert_eq!(times(500), None);
}

/// Clocks may not tell two events apart.
#[test]
fn a_denial_sent_at_the_instant_of_a_refund_is_not_cached() {
    let limit = fixed(2, Charge::Admitted);
    let denials = denials();
    let now = Instant::now();
    let outcome = |allowed| tests::outcome(allowed, Some(Micros::from_secs(60)));
    let denied = check(&limit, 1);
    let refund = Check { hits: Hits::Refund(1), ..denied };
    denials.record(&refund, &outcome(true), now, now);
    denials.record(&denied, &outcome(false), now, now);
    assert!(denials.find(&denied, now).is_none());
    // Whichever reply is read first.
    let later = now + Duration::from_micros(1);
    denials.record(&denied, &outcome(false), later, later);
    denials.record(&refund, &outcome(true), later, later);
    assert!(denials.find(&denied, later).is_none());
}

/// Returns a denial for a minute.
fn denial() -> Outcome {
    tests::outcome(false, Some(Micros::from_secs(60)))
}

/// Hits that wait longer, or never fit, would be advised to retry too early.
#[test]
fn a_denial_is_of_more_hits_only_if_these_wait_as_long() {
    let [fixed, rate] = [fixed(2, Charge::Admitted), tests::gcra(2, 60)];
    for (limit, known) in [(fixed, [true, true, false]), (rate, [true, false, false])] {
        let denials = denials();
        let now = Instant::now();
        denials.record(&check(&limit, 1), &denial(), now, now);
        let found = [1, 2, 3].map(|hits| denials.find(&check(&limit, hits), now).is_some());
        assert_eq!(found, known, "{limit:?}");
    }
}

#[test]
fn a_cached_denial_is_not_of_the_counter_in_the_slot_of_its_domain() {
    let limit = fixed(2, Charge::Always);
    let denials = denials();
    let asked = Instant::now();
    let apart = check(&limit, 1);
    let beside = Check { key: apart.key.in_one_slot(true), ..apart };
    for (denied, other) in [(apart, beside), (beside, apart)] {
        denials.record(&denied, &denial(), asked, asked);
        assert!(denials.find(&denied, asked).is_some() && denials.find(&other, asked).is_none());
    }
}

#[test]
fn an_operation_on_holds_reaches_the_store_beside_a_remembered_denial_and_forgets_none() {
    let hold = Hold { ttl: Micros::from_secs(60), on_settle: OnSettle::Release };
    let plain = fixed(1, Charge::Admitted);
    let holding = fixed(10, Charge::Admitted).with_hold(hold);
    let cache = DenyCache::new(memory_at(NOW).0, Some(denials()));
    let decide = |checks: &[Check<'_>]| {
        let decided = cache.decide(checks, Prior::Open, Instant::now()).now_or_never().unwrap();
        decided.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let request = |action| HoldRequest { id: b"r", action, ttl: None };
    let reserve = request(HoldAction::Reserve);
    let commit = request(HoldAction::Commit(1));
    let of = |hold, hits| Check {
        key: CounterKey::of("d", b"another counter"),
        hits,
        hold: Some(hold),
        ..check(&holding, 1)
    };
    decide(&[of(&reserve, Hits::Charge(4)), check(&plain, 1)]);
    decide(&[check(&plain, 1)]);
    let outcomes = decide(&[check(&plain, 1), of(&commit, Hits::Refund(0))]);
    assert_eq!(outcomes[0].by, JudgedBy::Memory);
    assert_eq!(outcomes[1].hold, HoldEffect::Committed { reserved: 4, cost: 1 });
    // At the counter of the denial itself, too.
    decide(&[Check { hits: Hits::Refund(0), ..check(&plain, 1) }]);
    assert_eq!(decide(&[check(&plain, 1)])[0].by, JudgedBy::Memory);
    let amount = fixed(1, Charge::Admitted).with_hold(hold);
    assert_eq!(decide(&[check(&amount, 1)])[0].by, JudgedBy::Store);
}
