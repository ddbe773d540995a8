//! Property tests of a limit's promise with leases.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};

use self::world::{Admitted, LeaseStep, World};
use super::*;

const MS: u64 = 1_000;

fn steps() -> impl Strategy<Value = Vec<LeaseStep>> {
    let delay = || prop_oneof![3 => 0u64..200, 1 => 0u64..40 * MS];
    // Bursts, in which blocks are leased, and pauses, after which they are used.
    let wait = prop_oneof![30 => 0u64..100, 5 => 0u64..2 * MS, 1 => 0u64..80 * MS];
    let rest = (
        proptest::option::weighted(0.1, delay()),
        (delay(), delay()),
        proptest::option::weighted(0.9, delay()),
        prop_oneof![60 => Just(0), 1 => 0u64..300 * MS],
    );
    let hits = (prop_oneof![8 => Just(1u32), 1 => 1u32..6], prop::bool::weighted(0.02));
    let step = (wait, 0usize..3, hits, rest).prop_map(
        |(
            wait,
            replica,
            (hits, is_other_amount),
            (denied_after, delays, given_back_after, step_back),
        )| LeaseStep {
            wait,
            replica,
            hits,
            is_other_amount,
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
            limit(Algorithm::SlidingWindow(
                SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap(),
            ))
        }),
        parts().prop_map(|(amount, period)| {
            limit(Algorithm::SlidingLog(SlidingLog::new(vec![window(amount, period)]).unwrap()))
        }),
        (parts(), 70u32..100).prop_map(|((amount, period), burst)| {
            limit(Algorithm::Gcra(Gcra::new(window(amount, period), Some(burst), None).unwrap()))
        }),
    ]
}

/// Generates a limit that counts hits in windows, with two amounts for each.
fn counting() -> impl Strategy<Value = [Limit; 2]> {
    let amounts = || 70u32..600;
    let windows = proptest::collection::vec((amounts(), amounts(), 50 * MS..2_000 * MS), 1..4);
    (windows, 0u8..3, 1u32..20).prop_map(|(windows, kind, buckets)| {
        let of = |amount: fn(&(u32, u32, u64)) -> u32| {
            let windows = windows.iter().map(|one| window(amount(one), one.2)).collect();
            limit(match kind {
                0 => Algorithm::FixedWindow(FixedWindow::new(windows).unwrap()),
                1 => Algorithm::SlidingLog(SlidingLog::new(windows).unwrap()),
                _ => Algorithm::SlidingWindow(
                    SlidingWindow::new(windows, buckets, Estimate::Strict).unwrap(),
                ),
            })
        };
        [of(|window| window.0), of(|window| window.1)]
    })
}

/// Returns `true` if a charge still counts in a window.
fn is_live(limit: &Limit, window: usize, charged: Timestamp, now: Timestamp) -> bool {
    let period = limit.windows()[window].period();
    match limit.algorithm() {
        Algorithm::FixedWindow(_) => charged.index(period) == now.index(period),
        Algorithm::SlidingWindow(sliding) => {
            let width = sliding.widths()[window];
            charged.index(width) + u64::from(sliding.buckets()) >= now.index(width)
        }
        Algorithm::SlidingLog(_) => charged + period > now,
        Algorithm::Gcra(_) | Algorithm::Concurrency(_) => unreachable!("neither has windows"),
    }
}

fn leases() -> impl Strategy<Value = Lease> {
    (4u32..60, 5 * MS..120 * MS).prop_map(|(hits, ttl)| Lease { hits, ttl: Micros::new(ttl) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn in_no_fixed_window_more_than_the_limit(limit in fixed(), lease in leases(), steps in steps()) {
        let world = World::run([&limit; 2], lease, &steps);
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
        let world = World::run([&limit; 2], lease, &steps);
        for window in limit.windows() {
            let burst = if let Algorithm::Gcra(gcra) = limit.algorithm() { gcra.burst() } else { 0 };
            let most = u64::from(window.limit()) + u64::from(burst);
            let period = window.period().get();
            for Admitted { at, .. } in &world.admitted {
                let less = world.taken(*at, period.saturating_sub(lease.ttl.get()));
                prop_assert!(less <= most, "{less} of {most} in a period less the ttl");
                let whole = world.taken(*at, period);
                let outstanding = world.outstanding(*at);
                prop_assert!(whole <= most + outstanding, "{whole} of {most} and {outstanding} in a period");
            }
        }
    }

    #[test]
    fn after_all_blocks_have_ended_each_live_window_counts_what_was_admitted_or_lost(
        limits in counting(), lease in leases(), steps in steps(), is_steady: bool,
    ) {
        let step_back = |step: &LeaseStep| if is_steady { 0 } else { step.step_back };
        let steps: Vec<LeaseStep> = steps.iter().map(|step| LeaseStep { step_back: step_back(step), ..step.clone() }).collect();
        let mut world = World::run(limits.each_ref(), lease, &steps);
        world.finish();
        let look = world.look();
        let charged = world.charged();
        for (number, window) in look.windows.iter().enumerate() {
            let live = charged.iter().filter(|(at, _)| is_live(&limits[0], number, *at, look.at));
            let expected = live.map(|(_, hits)| hits).sum::<u64>();
            // After a clock step back, a window may be current again that has ended for this
            // process, which then returns nothing to it.
            let is_right = if is_steady { window.used == expected } else { window.used >= expected };
            prop_assert!(is_right, "window {number} counts {} of {expected}", window.used);
        }
    }
}

/// A request of one hit at replica 0 without delays or failures.
const PLAIN: LeaseStep = LeaseStep {
    wait: 0,
    replica: 0,
    hits: 1,
    is_other_amount: false,
    denied_after: None,
    delays: (0, 0),
    given_back_after: Some(0),
    step_back: 0,
};

#[test]
fn these_worlds_do_take_blocks() {
    let limit =
        limit(Algorithm::FixedWindow(FixedWindow::new(vec![window(400, 500 * MS)]).unwrap()));
    let step = LeaseStep { wait: 100, delays: (50, 50), ..PLAIN };
    let world =
        World::run([&limit; 2], Lease { hits: 20, ttl: Micros::new(20 * MS) }, &vec![step; 300]);
    assert!(world.of_blocks > 200, "{} of 300 by {} blocks", world.of_blocks, world.blocks.len());
}

#[test]
fn the_bounds_of_a_rolling_limit_are_reached_and_not_passed() {
    let period = 1_000 * MS;
    let ttl = 200 * MS;
    let limit = limit(Algorithm::SlidingLog(SlidingLog::new(vec![window(100, period)]).unwrap()));
    let run = |used_at: u64| {
        let mut world = World::new([&limit; 2], Lease { hits: 10, ttl: Micros::new(ttl) });
        let ask = |world: &mut World, at: u64, step: &LeaseStep| {
            world.go_to(at);
            world.request(step);
        };
        // The eighth leases a block: a sixteenth of the 92 that remain.
        (0..8).for_each(|_| ask(&mut world, 0, &PLAIN));
        (0..5).for_each(|_| ask(&mut world, used_at, &PLAIN));
        // All charges from the beginning have left the period.
        [40, 40, 15, 5]
            .into_iter()
            .for_each(|hits| ask(&mut world, period, &LeaseStep { hits, replica: 1, ..PLAIN }));
        (
            world.taken(used_at, period),
            world.taken(used_at, period - ttl + 1),
            world.outstanding(used_at),
        )
    };
    assert_eq!(run(ttl - 1), (105, 5, 5));
    assert_eq!(
        run(ttl),
        (100, 100, 0),
        "the block has ended: these five have asked for themselves"
    );
}
