//! Cases of limits: what they are made of, their bans, and their texts.

use super::holds::{TTL, holding};
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::calendar::{Calendar, CalendarUnit};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::quota::MAX_HITS;

#[test]
fn a_limit_with_holds_is_charged_when_admitted_and_keeps_them_in_another_window() {
    let hold = Hold { ttl: Micros::new(TTL), on_settle: OnSettle::Release };
    let limit =
        Limit::new(gcra(window(9, 60_000), 9), Charge::Always, OnStoreError::Local).unwrap();
    let limit = limit.with_hold(hold);
    let other = limit.with_window(window(7, 50_000)).unwrap();
    assert_eq!(other.windows(), [window(7, 50_000)]);
    for limit in [limit, other] {
        assert_eq!((limit.charge_mode(), limit.hold()), (Charge::Admitted, Some(hold)));
        assert_eq!(limit.on_store_error(), OnStoreError::Local);
    }
}

#[test]
fn a_ban_is_reported_by_its_longest_period_and_hits_that_never_fit_by_a_window() {
    let windows = [(9, 1_000), (0, 5_000), (0, 60_000), (9, 90_000)];
    let windows = windows.map(|(hits, period)| window(hits, period)).to_vec();
    let fixed = fixed(windows);
    let report = |limit: Limit, now| {
        let report = limit.report(&limit.unused(), Some(1), at(now)).unwrap();
        assert_eq!((report.remaining, report.reset_after, report.retry_after), (0, None, None));
        (report.window, limit.never_hint(at(now)).map(Micros::get))
    };
    assert_eq!(report(limit(fixed, Charge::Admitted), 400), (2, Some(600)));
    let permits = Algorithm::Concurrency(Concurrency::new(0).unwrap());
    assert_eq!(report(holding(permits.clone(), OnSettle::Charge), 0), (0, Some(TTL)));
    assert_eq!(report(limit(permits, Charge::Admitted), 0), (0, None));
}

#[test]
fn a_ban_admits_nothing_of_a_grant_either() {
    let limit = limit(gcra(window(0, 60_000), 9), Charge::Admitted);
    let mut state = limit.unused();
    let grant = Amendment::Grant { hits: 4, length: Micros::new(9) };
    limit.amend(&mut state, grant, at(0)).unwrap();
    assert!(!limit.allows(&state, 1, at(0)).unwrap());
}

#[test]
fn a_window_is_written_in_words() {
    let calendar = |unit, zone| Calendar::new(unit, zone).unwrap();
    let day = calendar(CalendarUnit::Day, "Europe/Berlin");
    let windows = [
        window(100, 60_000_000),
        window(0, 1_000),
        Window::on_calendar(1, day.clone()),
        Window::on_calendar(2, calendar(CalendarUnit::Week, "UTC")),
        Window::on_calendar(0, calendar(CalendarUnit::Month, "Asia/Tokyo")),
        Window::on_calendar(1, calendar(CalendarUnit::Year, "UTC")),
    ];
    let words = [
        "100 hits in 1m",
        "0 hits (ban) in 1ms",
        "1 hit in each calendar day of Europe/Berlin",
        "2 hits in each calendar week of UTC",
        "0 hits (ban) in each calendar month of Asia/Tokyo",
        "1 hit in each calendar year of UTC",
    ];
    assert_eq!(windows.each_ref().map(ToString::to_string), words);
    let days = windows.each_ref().map(|window| window.period().as_secs_ceil() / 86_400);
    assert_eq!(days, [0, 0, 1, 7, 30, 365]);
    assert_eq!(windows.each_ref().map(|window| window.calendar().is_some())[1..3], [false, true]);
    assert_eq!(windows[2].calendar(), Some(&day));
}

#[test]
fn buckets_have_the_widths_that_cover_their_period() {
    let windows = vec![window(1, 1_000_000), window(1, 60_000)];
    let sliding = SlidingWindow::new(windows, 60, Estimate::Strict).unwrap();
    assert_eq!(sliding.widths(), [16_667, 1_000].map(Micros::new));
    let longer = |buckets| SlidingWindow::new(vec![window(1, 1_000)], buckets, Estimate::Strict);
    // 101 * 10 us are 1 % longer than 1 ms, 102 * 10 us 2 %.
    assert_eq!([101, 102].map(|buckets| longer(buckets).is_ok()), [true, false]);
}

#[test]
fn a_rate_has_its_constants_in_lowest_terms() {
    // 14 per minute are 7 per 30 s: a hit takes 30 s / 7 = 4,285,714 us and 2/7.
    let gcra = Gcra::new(window(14, 60_000_000), Some(3), None).unwrap();
    let constants = gcra.constants();
    let of = |cost: super::super::gcra::Backlog| (cost.whole, cost.part);
    assert_eq!((constants.parts, of(constants.one)), (7, (4_285_714, 2)));
    assert_eq!(of(constants.full), (12_857_142, 6));
    assert_eq!(of(constants.deepest), (141_428_571, 3), "a burst and a debt of ten bursts");
    assert_eq!(
        [0, 2, 7].map(|hits| of(gcra.cost(hits))),
        [(0, 0), (8_571_428, 4), (30_000_000, 0)]
    );
}

#[test]
fn a_count_ends_at_what_a_double_can_hold() {
    assert_eq!(MAX_HITS, 9_007_199_254_740_991);
    let [fixed, sliding, _, _] = each(&window(9, 60_000_000), 6);
    for algorithm in [fixed, sliding] {
        let limit = limit(algorithm, Charge::Always);
        let mut state = limit.unused();
        for hits in [1, MAX_HITS] {
            limit.charge(&mut state, hits, at(0)).unwrap();
        }
        let looked = limit.amend(&mut state, Amendment::Look, at(0)).unwrap().0.after.windows;
        assert_eq!(looked[0].used, MAX_HITS, "{limit:?}");
    }
}

#[test]
fn a_backlog_of_285_years_stays_at_the_rate_by_which_it_was_written() {
    // A hit takes 2^10 us at the one rate, and 2^20 us at the other.
    let rate = |hits| {
        let gcra = Gcra::new(window(hits, 1 << 20), Some(1), Some((1 << 33) - 1)).unwrap();
        limit(Algorithm::Gcra(gcra), Charge::Always)
    };
    let [fast, slow] = [rate(1 << 10), rate(1)];
    for (hits, reset_after) in [((1 << 33) - 1, (1 << 53) - (1 << 20)), (1 << 33, 1 << 43)] {
        let mut state = fast.unused();
        fast.charge(&mut state, hits, at(0)).unwrap();
        slow.charge(&mut state, 0, at(0)).unwrap();
        let report = slow.report(&state, None, at(0)).unwrap();
        assert_eq!(report.reset_after.map(Micros::get), Some(reset_after), "of {hits} hits");
    }
}

#[test]
fn a_charge_of_another_rate_is_taken_back_less_what_drained_at_the_higher_one() {
    let [slow, fast] =
        [60, 600].map(|hits| limit(gcra(window(hits, 60_000), 60), Charge::Admitted));
    // A hit takes 1 ms or 100 us; in 500 us, half of one or five drain.
    for (by, back_by, hits, left) in [(&slow, &fast, 10, 5), (&fast, &slow, 20, 10)] {
        let mut state = by.unused();
        let receipt = by.charge(&mut state, 10, at(0)).unwrap();
        by.charge(&mut state, hits - 10, at(0)).unwrap();
        assert!(back_by.take_back(&mut state, receipt, at(500)).unwrap());
        let looked = by.amend(&mut state, Amendment::Look, at(500)).unwrap().0.after.windows;
        assert_eq!(looked[0].used, left);
    }
}
