//! Properties of the operator actions on a counter.

use proptest::prelude::*;

use super::super::amend::Amendment;
use super::super::time::Micros;
use super::super::{Algorithm, Charge, Receipt, State, fixed_window};
use super::{algorithms, at, limit, run, traces, window};

proptest! {
    #[test]
    fn never_more_than_the_limit_and_the_grant(
        algorithm in algorithms(), trace in traces(), granted in 1u32..8, before in 0usize..40, length in 0u64..20_000,
    ) {
        let limit = limit(algorithm, Charge::Admitted);
        // The limit alone must agree on all hits that were not taken from the grant, since it never
        // saw the others.
        let mut state = limit.unused();
        let mut alone = limit.unused();
        let mut now = 0;
        let mut until = 0;
        let mut of_grant = 0;
        for (number, (step, hits)) in trace.iter().enumerate() {
            now += step;
            if number == before {
                limit.amend(&mut state, Amendment::Grant { hits: granted, length: Micros::new(length) }, at(now)).unwrap();
                until = now + length;
            }
            let hits = u64::from(*hits);
            let allowed = limit.allows(&state, hits, at(now)).unwrap();
            let fits = limit.allows(&alone, hits, at(now)).unwrap();
            prop_assert!(allowed || !fits, "a grant takes nothing of the limit");
            if !allowed {
                continue;
            }
            let receipt = limit.charge(&mut state, hits, at(now)).unwrap();
            prop_assert_eq!(receipt.of_grant, !fits);
            if receipt.of_grant {
                of_grant += hits;
                prop_assert!(now < until, "at its end it is gone");
            } else {
                limit.charge(&mut alone, hits, at(now)).unwrap();
            }
        }
        prop_assert!(of_grant <= u64::from(granted));
        let look = |state: &State| limit.amend(&mut state.clone(), Amendment::Look, at(now)).unwrap().0.after;
        prop_assert_eq!(look(&state).windows, look(&alone).windows);
    }

    #[test]
    fn after_a_reset_a_counter_is_as_if_never_used(
        algorithm in algorithms(), trace in traces(), hits in 1u64..4, wait in 0u64..3_000,
    ) {
        let limit = limit(algorithm, Charge::Blamed);
        let (_, mut state, now) = run(&limit, &trace);
        let receipt = limit.charge(&mut state, hits, at(now)).unwrap();
        limit.charge(&mut state, 100, at(now)).unwrap();
        limit.amend(&mut state, Amendment::Grant { hits: 9, length: Micros::new(5_000) }, at(now)).unwrap();
        let (amended, written) = limit.amend(&mut state, Amendment::Reset, at(now + wait)).unwrap();
        prop_assert!(written && amended.after.grant.is_none() && amended.after.windows.iter().all(|window| window.used == 0));
        let mut fresh = limit.unused();
        for later in [now + wait, now + wait, now + wait + 700] {
            prop_assert!(!limit.take_back(&mut state, receipt, at(later)).unwrap(), "that was before the reset");
            for wanted in 0..14 {
                prop_assert_eq!(limit.allows(&state, wanted, at(later)), limit.allows(&fresh, wanted, at(later)));
            }
            prop_assert_eq!(limit.report(&state, Some(3), at(later)), limit.report(&fresh, Some(3), at(later)));
            for state in [&mut state, &mut fresh] {
                limit.charge(state, 2, at(later)).unwrap();
            }
        }
    }

    #[test]
    fn a_reset_sets_a_clock_that_is_ahead_to_that_of_the_store(
        algorithm in algorithms(), trace in traces(), hits in 1u64..4, ahead in 1u64..100_000,
    ) {
        let limit = limit(algorithm, Charge::Blamed);
        let (_, mut state, now) = run(&limit, &trace);
        let receipt = limit.charge(&mut state, hits, at(now + ahead)).unwrap();
        limit.amend(&mut state, Amendment::Grant { hits: 9, length: Micros::new(5_000) }, at(now)).unwrap();
        let (amended, _) = limit.amend(&mut state, Amendment::Reset, at(now)).unwrap();
        prop_assert!(amended.before.at >= at(now + ahead));
        prop_assert_eq!(amended.after.at, at(now));
        let mut fresh = limit.unused();
        for later in [now, now + 1, now + 700] {
            for state in [&mut state, &mut fresh] {
                limit.charge(state, 2, at(later)).unwrap();
            }
            // Later, it cannot be distinguished from a charge after the reset. Its hits are then
            // taken off the counter, which the exception for resets covers: they were not admitted
            // before.
            if later < now + ahead {
                prop_assert!(!limit.take_back(&mut state, receipt, at(later)).unwrap(), "that was before the reset");
            }
            prop_assert_eq!(limit.report(&state, Some(3), at(later)), limit.report(&fresh, Some(3), at(later)));
        }
    }

    #[test]
    fn what_is_taken_of_a_grant_goes_back_to_it(algorithm in algorithms(), trace in traces(), hits in 1u64..9) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, mut state, now) = run(&limit, &trace);
        limit.amend(&mut state, Amendment::Grant { hits: 10, length: Micros::new(50) }, at(now)).unwrap();
        while !limit.charge(&mut state, 1, at(now)).unwrap().of_grant {}
        prop_assume!(!limit.allows(&limit.unused(), 20, at(now)).unwrap());
        let before = state.clone();
        let receipt = limit.charge(&mut state, hits, at(now)).unwrap();
        prop_assert!(receipt.of_grant);
        prop_assert!(limit.take_back(&mut state, receipt, at(now + 49)).unwrap());
        prop_assert_eq!(&state, &before);
        prop_assert!(!limit.take_back(&mut state, receipt, at(now + 50)).unwrap(), "where there is one no more");
    }

    /// Covers hits of earlier grants, resets in between, and clocks that stop or step back.
    #[test]
    fn of_each_grant_no_more_is_out_than_it_had(
        algorithm in algorithms(),
        trace in prop::collection::vec((-30i64..40, 1u32..6, 0u8..8, 0usize..40), 1..80),
    ) {
        let limit = limit(algorithm, Charge::Admitted);
        let mut state = limit.unused();
        let mut now = 1_000u64;
        let mut had = 0;
        let mut until = 0;
        let mut taken: Vec<Receipt> = Vec::new();
        // Receipts of the current grant; hits of another one must not be returned.
        let mut out: Vec<Receipt> = Vec::new();
        for (step, hits, what, which) in trace {
            now = now.saturating_add_signed(step);
            match what {
                0 | 1 => {
                    let amendment = Amendment::Grant { hits, length: Micros::new(300) };
                    let (amended, _) = limit.amend(&mut state, amendment, at(now)).unwrap();
                    (had, until) = (u64::from(hits), amended.after.grant.unwrap().until.as_micros());
                    out.clear();
                }
                2 if hits == 5 => {
                    limit.amend(&mut state, Amendment::Reset, at(now)).unwrap();
                    // A reset sets the clock back, so that a later grant may have the instant of
                    // one before it. The exception for resets covers the hits of that one.
                    taken.retain(|receipt| receipt.at <= at(now));
                    (had, until) = (0, 0);
                    out.clear();
                }
                3 | 4 if !taken.is_empty() => {
                    let receipt = taken.swap_remove(which % taken.len());
                    let own = out.iter().position(|other| *other == receipt);
                    let took = limit.take_back(&mut state, receipt, at(now)).unwrap();
                    prop_assert!(!took || own.is_some(), "{:?} is of another grant", receipt);
                    prop_assert!(took || own.is_none() || at(now).max(state.last()).as_micros() >= until);
                    own.map(|own| out.swap_remove(own));
                }
                _ if limit.allows(&state, hits.into(), at(now)).unwrap() => {
                    let receipt = limit.charge(&mut state, hits.into(), at(now)).unwrap();
                    if receipt.of_grant {
                        taken.push(receipt);
                        out.push(receipt);
                    }
                }
                _ => {}
            }
            let left = limit.amend(&mut state.clone(), Amendment::Look, at(now)).unwrap().0.after.grant;
            let left = left.map_or(0, |grant| grant.left);
            prop_assert!(left + out.iter().map(|receipt| receipt.hits).sum::<u64>() <= had);
        }
    }

    #[test]
    fn a_look_says_what_the_limit_says_and_writes_nothing(algorithm in algorithms(), trace in traces()) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, mut state, now) = run(&limit, &trace);
        let before = state.clone();
        let (amended, written) = limit.amend(&mut state, Amendment::Look, at(now)).unwrap();
        prop_assert!(!written && state == before && amended.before == amended.after);
        let look = amended.after;
        let report = limit.report(&state, None, at(now)).unwrap();
        let window = look.windows[usize::from(report.window)];
        prop_assert_eq!((window.remaining, Some(window.reset_after)), (report.remaining, report.reset_after));
        let fits = limit.allows(&state, 1, at(now)).unwrap();
        prop_assert_eq!(look.windows.iter().all(|window| window.retry_after == Some(Micros::ZERO)), fits);
        let most = match limit.algorithm() {
            Algorithm::Gcra(gcra) => gcra.burst(),
            Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                limit.windows()[usize::from(report.window)].limit()
            }
            Algorithm::Concurrency(limit) => limit.in_flight(),
        };
        prop_assert_eq!(window.used + window.remaining, u64::from(most));
    }

    #[test]
    fn a_window_is_used_until_the_end_of_its_reset_time(algorithm in algorithms(), trace in traces()) {
        let limit = limit(algorithm, Charge::Admitted);
        let (_, state, now) = run(&limit, &trace);
        let look = |now| limit.amend(&mut state.clone(), Amendment::Look, at(now)).unwrap().0.after.windows;
        for (number, window) in look(now).iter().enumerate() {
            let reset = window.reset_after.get();
            prop_assert_eq!(look(now + reset)[number].used, 0);
            prop_assert!(window.used == 0 || look(now + reset - 1)[number].used > 0);
        }
    }
}

#[test]
fn hits_beyond_a_fixed_window_are_reported_unless_a_grant_has_some_left() {
    let of_3 = fixed_window::FixedWindow::new(vec![window(3, 60_000_000)]).unwrap();
    let limit = limit(Algorithm::FixedWindow(of_3), Charge::Always);
    let mut state = limit.unused();
    limit.charge(&mut state, 5, at(0)).unwrap();
    let report = limit.report(&state, None, at(0)).unwrap();
    assert_eq!((report.remaining, report.beyond), (0, 2));
    let grant = Amendment::Grant { hits: 4, length: Micros::new(9) };
    limit.amend(&mut state, grant, at(0)).unwrap();
    let report = limit.report(&state, None, at(0)).unwrap();
    assert_eq!((report.remaining, report.beyond), (4, 0));
    assert_eq!([8, 9].map(|now| limit.allows(&state, 4, at(now)).unwrap()), [true, false]);
}
