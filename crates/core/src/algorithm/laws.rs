//! Properties of every algorithm, tested over random limits and traces.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod amend;
mod amounts;
mod corrected;
mod extended;
mod holds;
mod limits;
mod marks;
mod memory;
mod peek;
mod permits;
mod requests;
mod settles;
mod take_back;

use proptest::prelude::*;

use super::gcra::Gcra;
use super::hold::{Hold, OnSettle};
use super::judge::{Hits, Question, judge};
use super::quota::Window;
use super::sliding_window::{Estimate, SlidingWindow};
use super::tallies::Recorded;
use super::time::{Micros, Timestamp};
use super::verdict::{Prior, Role};
use super::{Algorithm, Charge, Limit, OnStoreError, State, fixed_window, sliding_log};

const START: u64 = 1_780_000_000_000_000;

fn at(offset: u64) -> Timestamp {
    Timestamp::from_micros(START + offset)
}

fn window(limit: u32, period: u64) -> Window {
    Window::new(limit, Micros::new(period)).unwrap()
}

fn limit(algorithm: Algorithm, charge: Charge) -> Limit {
    Limit::new(algorithm, charge, OnStoreError::Error).unwrap()
}

fn fixed(windows: Vec<Window>) -> Algorithm {
    Algorithm::FixedWindow(fixed_window::FixedWindow::new(windows).unwrap())
}

fn sliding(windows: Vec<Window>, buckets: u32) -> Algorithm {
    Algorithm::SlidingWindow(SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap())
}

fn log(windows: Vec<Window>) -> Algorithm {
    Algorithm::SlidingLog(sliding_log::SlidingLog::new(windows).unwrap())
}

fn gcra(window: Window, burst: impl Into<Option<u32>>) -> Algorithm {
    Algorithm::Gcra(Gcra::new(window, burst.into(), None).unwrap())
}

/// Returns one of each algorithm with windows: fixed, sliding, a log, a rate.
fn each(window: &Window, buckets: u32) -> [Algorithm; 4] {
    let windows = || vec![window.clone()];
    [fixed(windows()), sliding(windows(), buckets), log(windows()), gcra(window.clone(), None)]
}

/// Returns a question about the first counter.
fn question(limit: &Limit, hits: Hits) -> Question<'_> {
    let recorded = Recorded::default();
    Question { limit, hits, role: Role::Enforce, counter: Some(0), hold: None, recorded }
}

/// Generates small periods, so that traces often hit the exact edge of a window.
fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1_000), Just(1_009), Just(60_000), 1_000u64..5_000]
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let windows = || proptest::collection::vec((1u32..12, periods()), 1..4);
    let made =
        |pairs: Vec<(u32, u64)>| pairs.into_iter().map(|(l, p)| window(l, p)).collect::<Vec<_>>();
    prop_oneof![
        windows().prop_map(move |w| fixed(made(w))),
        (windows(), 1u32..10).prop_map(move |(w, b)| sliding(made(w), b)),
        (1u32..12, 1u64..50, 1u32..10).prop_map(|(l, width, b)| {
            let whole = vec![window(l, width * 1_000 * u64::from(b))];
            Algorithm::SlidingWindow(SlidingWindow::new(whole, b, Estimate::Weighted).unwrap())
        }),
        windows().prop_map(move |w| log(made(w))),
        (1u32..2_000, periods(), 1u32..12).prop_map(|(l, p, c)| gcra(window(l, p), c)),
    ]
}

/// Steps of the clock, and hits to request.
fn traces() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let step = prop_oneof![Just(0), Just(1), 0u64..50, 0u64..2_000, Just(1_000), Just(60_000)];
    proptest::collection::vec((step, 1u32..4), 1..60)
}

/// Runs a trace, charging allowed hits. Returns the admitted (time, hits), the counter and `now`.
fn run(limit: &Limit, trace: &[(u64, u32)]) -> (Vec<(u64, u64)>, State, u64) {
    let mut state = limit.unused();
    let mut now = 0;
    let mut admitted = vec![];
    for (step, hits) in trace {
        now += step;
        if limit.allows(&state, (*hits).into(), at(now)).unwrap() {
            limit.charge(&mut state, (*hits).into(), at(now)).unwrap();
            admitted.push((now, u64::from(*hits)));
        }
    }
    (admitted, state, now)
}

proptest! {
    #[test]
    fn never_more_than_the_limit_in_any_half_open_interval(algorithm in algorithms(), trace in traces()) {
        let limit = limit(algorithm, Charge::Admitted);
        let (admitted, ..) = run(&limit, &trace);
        prop_assume!(!matches!(limit.algorithm(), Algorithm::SlidingWindow(one) if one.estimate() == Estimate::Weighted));
        prop_assert_eq!(holds::exceeds(&limit, &admitted), None);
    }

    #[test]
    fn retry_after_is_exact(algorithm in algorithms(), trace in traces(), hits in 1u64..14) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, state, now) = run(&limit, &trace);
        let denied = !limit.allows(&state, hits, at(now)).unwrap();
        let report = limit.report(&state, Some(hits), at(now)).unwrap();
        match report.retry_after.map(Micros::get) {
            None => prop_assert!(!limit.allows(&state, hits, at(now + 1_000_000_000)).unwrap()),
            Some(0) => prop_assert!(!denied),
            Some(wait) => {
                prop_assert!(!limit.allows(&state, hits, at(now + wait - 1)).unwrap(), "admitted a microsecond early");
                prop_assert!(limit.allows(&state, hits, at(now + wait)).unwrap(), "refused at {wait}");
            }
        }
    }

    #[test]
    fn after_reset_after_the_counter_is_as_if_never_used(algorithm in algorithms(), trace in traces()) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, state, now) = run(&limit, &trace);
        let until = limit.matters_until(&state).unwrap().max(at(now));
        for n in 0..14 {
            let used = limit.allows(&state, n, until);
            let unused = limit.allows(&limit.unused(), n, until);
            prop_assert_eq!(used, unused);
        }
    }

    #[test]
    fn a_refund_restores_what_a_charge_took(algorithm in algorithms(), trace in traces(), hits in 1u64..5) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, mut state, now) = run(&limit, &trace);
        prop_assume!(limit.allows(&state, hits, at(now)).unwrap());
        let before = limit.report(&state, None, at(now)).unwrap().remaining;
        limit.charge(&mut state, hits, at(now)).unwrap();
        prop_assert!(limit.refund(&mut state, hits, at(now)).unwrap());
        prop_assert_eq!(limit.report(&state, None, at(now)).unwrap().remaining, before);
    }

    #[test]
    fn a_refund_never_leaves_less_than_nothing_used(algorithm in algorithms(), trace in traces()) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, mut state, now) = run(&limit, &trace);
        limit.refund(&mut state, u64::from(u32::MAX), at(now)).unwrap();
        let report = limit.report(&state, None, at(now)).unwrap();
        let unused = limit.report(&limit.unused(), None, at(now)).unwrap();
        prop_assert_eq!(report.remaining, unused.remaining);
        let copy = state.clone();
        prop_assert!(!limit.refund(&mut state, 5, at(now + 7)).unwrap(), "there was nothing left to take");
        prop_assert_eq!(state, copy);
    }

    #[test]
    fn a_take_back_undoes_its_own_charge_and_no_other(
        algorithm in algorithms(), trace in traces(), hits in 1u64..4, wait in 0u64..3_000, other in 1u64..4,
    ) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, state, now) = run(&limit, &trace);
        let mut with = state.clone();
        let mut without = state;
        let receipt = limit.charge(&mut with, hits, at(now)).unwrap();
        for state in [&mut with, &mut without] {
            limit.charge(state, other, at(now + wait)).unwrap();
        }
        limit.take_back(&mut with, receipt, at(now + wait)).unwrap();
        let later = at(now + wait);
        let with = limit.report(&with, None, later).unwrap();
        let without = limit.report(&without, None, later).unwrap();
        prop_assert!(with.remaining <= without.remaining, "it undid more than its own");
        prop_assert!(wait > 0 || with.remaining == without.remaining, "at once, it undoes all of its own");
    }

    #[test]
    fn a_clock_that_steps_back_grants_nothing(algorithm in algorithms(), trace in traces(), back in 0u64..100_000) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, state, now) = run(&limit, &trace);
        let last = at(now);
        let earlier = Timestamp::from_micros(START.saturating_sub(back));
        for n in 0..14 {
            prop_assert!(!limit.allows(&state, n, earlier).unwrap() || limit.allows(&state, n, last).unwrap());
        }
    }

    #[test]
    fn gcra_is_a_literal_token_bucket(
        rate in 1u32..2_000, period in periods(), capacity in 1u32..20, trace in traces(),
    ) {
        let limit = limit(gcra(window(rate, period), capacity), Charge::Admitted);
        let mut state = limit.unused();
        // Tokens in units of 1/period of a token, so that a microsecond refills `rate` units.
        let mut now = 0u64;
        let full = u128::from(capacity) * u128::from(period);
        let mut tokens = full;
        for (step, hits) in trace {
            now += step;
            tokens = (tokens + u128::from(step) * u128::from(rate)).min(full);
            let cost = u128::from(hits) * u128::from(period);
            prop_assert_eq!(limit.allows(&state, hits.into(), at(now)).unwrap(), tokens >= cost);
            if tokens >= cost {
                tokens -= cost;
                limit.charge(&mut state, hits.into(), at(now)).unwrap();
            }
            let left = u64::try_from(tokens / u128::from(period)).unwrap();
            prop_assert_eq!(limit.report(&state, None, at(now)).unwrap().remaining, left);
        }
    }

    #[test]
    fn a_changed_rate_keeps_the_hits_used(old in 1u32..5_000, new in 1u32..5_000, period in periods(), used in 1u64..2_000) {
        let rate = |l| limit(gcra(window(l, period), 4_000), Charge::Always);
        let old = rate(old);
        let new = rate(new);
        let mut state = old.unused();
        old.charge(&mut state, used, at(0)).unwrap();
        let before = old.report(&state, None, at(0)).unwrap();
        let after = new.report(&state, None, at(0)).unwrap();
        prop_assert!(before.remaining.abs_diff(after.remaining) <= 1 && after.remaining <= before.remaining);
    }

    #[test]
    fn debt_is_kept_up_to_its_bound(rate in 1u32..100, period in periods(), burst in 1u32..20, debt in 0u64..50) {
        let gcra = Gcra::new(window(rate, period), Some(burst), Some(debt)).unwrap();
        let limit = limit(Algorithm::Gcra(gcra), Charge::Always);
        let mut state = limit.unused();
        limit.charge(&mut state, u64::from(u32::MAX), at(0)).unwrap();
        let hits = u128::from(u64::from(burst) + debt);
        let deepest = (hits * u128::from(period)).div_ceil(u128::from(rate));
        let report = limit.report(&state, None, at(0)).unwrap();
        prop_assert_eq!(u128::from(report.reset_after.unwrap().get()), deepest);
    }
}

#[test]
fn c_single_hits_at_one_instant_are_all_admitted_and_the_next_is_not() {
    for (rate, period, burst) in
        [(3, 7_000_001, 10), (999_983, 7_000_000, 1), (1, 31_536_000_000_000, 70)]
    {
        let limit = limit(gcra(window(rate, period), burst), Charge::Admitted);
        let mut state = limit.unused();
        for _ in 0..burst {
            assert!(limit.allows(&state, 1, at(0)).unwrap());
            limit.charge(&mut state, 1, at(0)).unwrap();
        }
        assert!(!limit.allows(&state, 1, at(0)).unwrap());
    }
}

#[test]
fn limits_that_cannot_be_exact_are_rejected() {
    let year = Micros::from_secs(365 * 86_400);
    assert!(Gcra::new(Window::new(1, year).unwrap(), Some(71), None).is_ok());
    assert!(Gcra::new(Window::new(1, year).unwrap(), Some(72), None).is_err());
    assert!(Gcra::new(Window::new(1, year).unwrap(), Some(1), Some(1_000)).is_err());
    assert!(Window::new(1, Micros::new(999)).is_err());
    // 17 us * 60 = 1.02 ms
    assert!(SlidingWindow::new(vec![window(1, 1_000)], 60, Estimate::Strict).is_err());
    assert!(SlidingWindow::new(vec![window(1, 1_000_000)], 60, Estimate::Strict).is_ok());
    assert!(SlidingWindow::new(vec![window(1, 1_000_000)], 7, Estimate::Weighted).is_err());
    let log = log(vec![window(1, 1_000)]);
    assert!(Limit::new(log, Charge::Always, OnStoreError::Error).is_err());
}

#[test]
fn a_counter_of_another_algorithm_is_unreadable_and_never_empty() {
    let log = limit(log(vec![window(1, 1_000)]), Charge::Admitted);
    let gcra = limit(gcra(window(1, 1_000), None), Charge::Admitted);
    assert!(gcra.allows(&log.unused(), 1, at(0)).is_err());
    let question = question(&gcra, Hits::Charge(1));
    let judged = judge(&[question], &mut [log.unused()], Prior::Open, at(0));
    assert_eq!(judged.outcomes.as_slice(), &[None]);
}

#[test]
fn a_refund_takes_nothing_where_no_hits_are() {
    for algorithm in each(&window(9, 60_000), 6) {
        let limit = limit(algorithm, Charge::Admitted);
        let mut state = limit.unused();
        limit.charge(&mut state, 0, at(0)).unwrap();
        let last = state.last();
        assert!(!limit.refund(&mut state, 1, at(7)).unwrap(), "{limit:?}");
        assert_eq!(state.last(), last);
    }
}

#[test]
fn a_refund_of_nothing_changes_nothing() {
    let gcra = limit(gcra(window(9, 60_000), None), Charge::Admitted);
    let hold = Hold { ttl: Micros::from_secs(60), on_settle: OnSettle::Charge };
    for limit in [gcra.clone(), gcra.with_hold(hold)] {
        let mut state = limit.unused();
        limit.charge(&mut state, 3, at(0)).unwrap();
        let before = state.clone();
        assert!(!limit.refund(&mut state, 0, at(7)).unwrap());
        assert_eq!(state, before);
    }
}

#[test]
fn a_counter_whose_newest_hits_are_returned_resets_with_those_before() {
    let [_, sliding, log, _] = each(&window(9, 60_000), 6);
    for algorithm in [sliding, log] {
        let limit = limit(algorithm, Charge::Admitted);
        let mut before = limit.unused();
        limit.charge(&mut before, 2, at(0)).unwrap();
        let mut after = before.clone();
        let receipt = limit.charge(&mut after, 1, at(20_000)).unwrap();
        let reset = |state: &State| limit.report(state, None, at(20_000)).unwrap().reset_after;
        let mut refunded = after.clone();
        assert!(limit.refund(&mut refunded, 1, at(20_000)).unwrap());
        assert_eq!(reset(&refunded), reset(&before), "{limit:?}");
        assert!(limit.take_back(&mut after, receipt, at(20_000)).unwrap());
        assert_eq!(reset(&after), reset(&before), "{limit:?}");
    }
}

#[test]
fn a_burst_is_reduced_to_what_drains_in_71_years_of_another_period() {
    let limit = limit(gcra(window(1_000, 1_000_000), u32::MAX), Charge::Admitted);
    // A hit takes 2^20 us: 2^31 of them would take the 2^51 us that are too many.
    let slow = limit.with_window(window(1, 1 << 20)).unwrap();
    assert_eq!(slow.burst(), Some((1 << 31) - 1));
}
