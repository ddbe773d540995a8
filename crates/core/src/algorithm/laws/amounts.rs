//! Properties of one counter under several amounts, as after a reload, with leases from before a
//! reload, or with overrides that inherit.

use proptest::prelude::*;

use super::super::amend::Amendment;
use super::super::fixed_window::FixedWindow;
use super::super::gcra::Gcra;
use super::super::quota::Window;
use super::super::sliding_log::SlidingLog;
use super::super::sliding_window::{Estimate, SlidingWindow};
use super::super::time::Micros;
use super::super::{Algorithm, Charge, Limit, Receipt, State};
use super::{at, limit, periods, window};

const YEAR: u64 = 31_536_000_000_000;

/// One write to a counter.
#[derive(Clone, Debug)]
struct Write {
    /// Step of the clock before the write; may be negative.
    step: i64,
    /// Index of the limit, of two, that makes the write.
    by: usize,
    kind: AlgorithmKind,
    hits: u32,
    /// Index of the earlier charge to take back.
    charge: prop::sample::Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlgorithmKind {
    ChargeIfAllowed,
    ChargeAlways,
    Refund,
    /// Take back all or part of an earlier charge.
    TakeBack,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    use AlgorithmKind::{ChargeAlways, ChargeIfAllowed, Refund, TakeBack};
    let step = prop_oneof![
        Just(0),
        0i64..50,
        0i64..5_000,
        -100i64..0,
        Just(1_000_000),
        Just(40_000_000_000)
    ];
    let kind = prop::sample::select(vec![
        ChargeIfAllowed,
        ChargeIfAllowed,
        ChargeAlways,
        Refund,
        TakeBack,
    ]);
    let hits =
        prop_oneof![4 => 1u32..4, 2 => 1u32..2_000, 1 => any::<u32>().prop_map(|hits| hits.max(1))];
    let write = (step, 0usize..2, kind, hits, any::<prop::sample::Index>());
    let write =
        write.prop_map(|(step, by, kind, hits, charge)| Write { step, by, kind, hits, charge });
    prop::collection::vec(write, 1..40)
}

/// Generates an amount, and a second one that may be far from it.
fn amounts(most: u32) -> impl Strategy<Value = [u32; 2]> {
    let near = (1u32..12, 1u32..12).prop_map(|(one, other)| [one, other]);
    let far = (1u32..100, 1u32..100, any::<bool>()).prop_map(|(one, part, up)| {
        if up { [one, one * 100 + part] } else { [one * 100 + part, one] }
    });
    prop_oneof![near, far, Just([1, most]), Just([most, 1])]
}

/// Generates two limits of one shape.
fn limits() -> impl Strategy<Value = [Limit; 2]> {
    let made = |shape: &[(u64, [u32; 2])], by: usize| -> Vec<Window> {
        shape.iter().map(|(period, amounts)| window(amounts[by], *period)).collect()
    };
    let both = |one: &dyn Fn(usize) -> Option<Algorithm>| {
        Some([limit(one(0)?, Charge::Admitted), limit(one(1)?, Charge::Admitted)])
    };
    let shapes = |most| prop::collection::vec((periods(), amounts(most)), 1..4);
    let gcra_periods = || prop_oneof![periods(), Just(1_000_000), Just(3_600_000_000), Just(YEAR)];
    let bursts = || prop::option::of(prop_oneof![1u32..20, Just(300_000)]);
    let debts = || prop::option::of(0u64..1_000);
    prop_oneof![
        shapes(u32::MAX).prop_filter_map("", move |shape| both(&|by| FixedWindow::new(made(
            &shape, by
        ))
        .ok()
        .map(Algorithm::FixedWindow))),
        (shapes(u32::MAX), 1u32..10).prop_filter_map("", move |(shape, buckets)| {
            let sliding = |by| SlidingWindow::new(made(&shape, by), buckets, Estimate::Strict);
            both(&|by| sliding(by).ok().map(Algorithm::SlidingWindow))
        }),
        (amounts(u32::MAX), 1u64..50, 1u32..10).prop_filter_map(
            "",
            move |(amounts, width, buckets)| {
                let shape = [(width * 1_000 * u64::from(buckets), amounts)];
                let sliding =
                    |by| SlidingWindow::new(made(&shape, by), buckets, Estimate::Weighted);
                both(&|by| sliding(by).ok().map(Algorithm::SlidingWindow))
            }
        ),
        shapes(10_000).prop_filter_map("", move |shape| both(&|by| SlidingLog::new(made(
            &shape, by
        ))
        .ok()
        .map(Algorithm::SlidingLog))),
        (gcra_periods(), amounts(u32::MAX), [bursts(), bursts()], [debts(), debts()])
            .prop_filter_map(
                "a rate that cannot be exact",
                move |(period, amounts, bursts, debts)| {
                    let gcra =
                        |by: usize| Gcra::new(window(amounts[by], period), bursts[by], debts[by]);
                    both(&|by| gcra(by).ok().map(Algorithm::Gcra))
                }
            ),
    ]
}

/// Returns the hits that count, per window.
fn used(limit: &Limit, state: &State, now: u64) -> Vec<u64> {
    let look = limit.amend(&mut state.clone(), Amendment::Look, at(now)).unwrap().0;
    look.after.windows.iter().map(|window| window.used).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_write_takes_away_more_than_it_says_whatever_amount_it_is_judged_by(limits in limits(), writes in writes()) {
        let mut state = limits[0].unused();
        let mut now = 1_000_000u64;
        let mut charges = Vec::<Receipt>::new();
        for Write { step, by, kind, hits, charge } in writes {
            now = now.saturating_add_signed(step);
            let limit = &limits[by];
            let hits = u64::from(hits);
            let before: Vec<_> = limits.iter().map(|limit| used(limit, &state, now)).collect();
            let given_back = match kind {
                AlgorithmKind::ChargeIfAllowed if !limit.allows(&state, hits, at(now)).unwrap() => continue,
                AlgorithmKind::ChargeIfAllowed | AlgorithmKind::ChargeAlways => {
                    charges.push(limit.charge(&mut state, hits, at(now)).unwrap());
                    0
                }
                AlgorithmKind::Refund => {
                    limit.refund(&mut state, hits, at(now)).unwrap();
                    hits
                }
                AlgorithmKind::TakeBack if charges.is_empty() => continue,
                AlgorithmKind::TakeBack => {
                    let whole = charges.swap_remove(charge.index(charges.len()));
                    let receipt = Receipt { hits: hits.min(whole.hits), ..whole };
                    limit.take_back(&mut state, receipt, at(now)).unwrap();
                    receipt.hits
                }
            };
            for (limit, before) in limits.iter().zip(before) {
                for (before, after) in before.iter().zip(used(limit, &state, now)) {
                    let lost = before.saturating_sub(after);
                    prop_assert!(lost <= given_back, "{lost} of {before} lost, {given_back} given back");
                }
            }
        }
    }

    #[test]
    fn retry_after_is_exact_under_another_amount(limits in limits(), writes in writes(), hits in 1u64..14) {
        let mut state = limits[0].unused();
        let mut now = 1_000_000u64;
        for Write { step, by, hits, .. } in writes {
            now = now.saturating_add_signed(step.max(0));
            limits[by].charge(&mut state, hits.into(), at(now)).unwrap();
        }
        for limit in &limits {
            let allowed = |later: u64| limit.allows(&state, hits, at(now + later)).unwrap();
            match limit.report(&state, Some(hits), at(now)).unwrap().retry_after.map(Micros::get) {
                None => prop_assert!(!allowed(40 * YEAR)),
                Some(0) => prop_assert!(allowed(0)),
                Some(wait) => prop_assert!(!allowed(wait - 1) && allowed(wait), "not first admitted at {wait}"),
            }
        }
    }
}

#[test]
fn a_refund_under_a_much_lower_amount_returns_only_its_hits() {
    let hour = |amount| {
        let gcra = Gcra::new(window(amount, 3_600_000_000), None, None).unwrap();
        limit(Algorithm::Gcra(gcra), Charge::Admitted)
    };
    let low = hour(100);
    let high = hour(10_000);
    let mut state = high.unused();
    high.charge(&mut state, 10_000, at(0)).unwrap();
    low.refund(&mut state, 1, at(0)).unwrap();
    assert_eq!(used(&high, &state, 0), [9_999]);
    // A counter of 100 an hour has a debt of at most 1,100 hits: nothing is added beyond that.
    low.charge(&mut state, 1, at(0)).unwrap();
    assert_eq!(used(&high, &state, 0), [9_999], "past its debt nothing is added, and nothing lost");
}
