//! Properties of holds and permits.

use proptest::prelude::*;

use super::super::amend::Amendment;
use super::super::concurrency::Concurrency;
use super::super::hold::{Hold, HoldAction, HoldEffect, HoldRequest, OnSettle};
use super::*;

/// Shortest TTL, so that some holds of a trace expire.
pub(super) const TTL: u64 = 1_000_000;
const IDS: [&[u8]; 3] = [b"a", b"b", b"c"];

/// Time since the previous operation, the index of an ID, hits, and the kind of operation.
type HoldStep = (u64, usize, u32, u8);

/// The open holds of an ID, as indices of admitted charges, and the expiry of its record.
#[derive(Debug, Default)]
struct OpenHolds {
    charges: Vec<usize>,
    until: u64,
}

pub(super) fn holding(algorithm: Algorithm, on_settle: OnSettle) -> Limit {
    limit(algorithm, Charge::Admitted).with_hold(Hold { ttl: Micros::new(TTL), on_settle })
}

/// Generates limits with holds, which are exact: no weighted estimates.
fn limits() -> impl Strategy<Value = Limit> {
    let on_settle = prop_oneof![Just(OnSettle::Charge), Just(OnSettle::Release)];
    let exact = algorithms().prop_filter("exact", |algorithm| match algorithm {
        Algorithm::SlidingWindow(window) => window.estimate() == Estimate::Strict,
        Algorithm::FixedWindow(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::Gcra(_)
        | Algorithm::Concurrency(_) => true,
    });
    (exact, on_settle).prop_map(|(algorithm, on_settle)| holding(algorithm, on_settle))
}

fn steps() -> impl Strategy<Value = Vec<HoldStep>> {
    let wait = prop_oneof![4 => Just(0), 4 => 0u64..700, 2 => 0u64..70_000, 1 => 0..TTL + 10];
    proptest::collection::vec((wait, 0usize..IDS.len(), 0u32..9, 0u8..5), 1..80)
}

pub(super) fn request(id: &[u8], action: HoldAction) -> HoldRequest<'_> {
    HoldRequest { id, action, ttl: None }
}

/// Returns `true` if the hits fit and are reserved.
pub(super) fn reserve(
    limit: &Limit,
    state: &mut State,
    id: &[u8],
    hits: u32,
    now: u64,
) -> Option<HoldEffect> {
    if !limit.allows(state, hits.into(), at(now)).unwrap() {
        return None;
    }
    let request = request(id, HoldAction::Reserve);
    Some(limit.reserve(state, hits.into(), request, Recorded::default(), at(now)).unwrap())
}

pub(super) fn change(
    limit: &Limit,
    state: &mut State,
    id: &[u8],
    action: HoldAction,
    now: u64,
) -> HoldEffect {
    limit.change_hold(state, request(id, action), Recorded::default(), at(now)).unwrap()
}

/// Returns the maximum of the admitted hits in any period of a window, and the limit of it.
pub(super) fn exceeds(limit: &Limit, admitted: &[(u64, u64)]) -> Option<String> {
    for window in limit.windows() {
        let allowed = u64::from(window.limit()) + u64::from(limit.burst().unwrap_or(0));
        let period = window.period().get();
        for from in admitted.iter().map(|(at, _)| START + at) {
            let begin = match limit.algorithm() {
                Algorithm::FixedWindow(_) => from / period * period,
                Algorithm::SlidingWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::Gcra(_)
                | Algorithm::Concurrency(_) => from,
            };
            let inside = |(at, _): &&(u64, u64)| (begin..begin + period).contains(&(START + at));
            let sum: u64 = admitted.iter().filter(inside).map(|(_, hits)| hits).sum();
            if sum > allowed {
                return Some(format!("{sum} of {allowed} in {period} us"));
            }
        }
    }
    None
}

/// The ledger of one counter, from the effects of its operations.
#[derive(Debug, Default)]
struct Ledger {
    /// Times of charges that were admitted, and their hits.
    admitted: Vec<(u64, u64)>,
    open: [OpenHolds; 3],
}

impl Ledger {
    fn reserved(&mut self, id: usize, now: u64, hits: u32, effect: HoldEffect) {
        self.admitted.push((now, hits.into()));
        if let HoldEffect::Reserved { .. } = effect {
            self.open[id].charges.push(self.admitted.len() - 1);
            self.open[id].until = now + TTL;
        }
    }

    /// Corrects the oldest hold of an ID. What exceeds it, or has none, is counted elsewhere.
    fn ended(&mut self, id: usize, now: u64, effect: HoldEffect, on_settle: OnSettle) {
        match effect {
            HoldEffect::Committed { reserved, cost } => {
                let charge = self.open[id].charges.remove(0);
                assert_eq!(self.admitted[charge].1, u64::from(reserved), "the oldest hold");
                self.admitted[charge].1 = cost.min(reserved).into();
                self.open[id].until = now + TTL;
            }
            HoldEffect::Settled => {
                let charge = self.open[id].charges.remove(0);
                if on_settle == OnSettle::Release {
                    self.admitted[charge].1 = 0;
                }
            }
            HoldEffect::Unknown { .. } | HoldEffect::Nothing => {
                assert!(self.open[id].charges.is_empty(), "an open hold was not found");
            }
            HoldEffect::Reserved { .. }
            | HoldEffect::Unrecorded
            | HoldEffect::Extended
            | HoldEffect::Held
            | HoldEffect::Conflict
            | HoldEffect::Open { .. } => panic!("{effect:?}"),
        }
    }

    fn expire(&mut self, now: u64) {
        for open in self.open.iter_mut().filter(|open| open.until <= now) {
            open.charges.clear();
        }
    }
}

proptest! {
    #[test]
    fn what_was_admitted_never_exceeds_the_limit_but_by_counted_hits(limit in limits(), steps in steps()) {
        // Of a replica whose policy has no holds.
        let plain = super::limit(limit.algorithm().clone(), Charge::Admitted);
        let mut state = limit.unused();
        let mut ledger = Ledger::default();
        let mut now = 0;
        let on_settle = limit.hold().unwrap().on_settle;
        for (wait, id, hits, kind) in steps {
            now += wait;
            ledger.expire(now);
            let name = IDS[id];
            match kind {
                0 | 1 if hits > 0 => {
                    if let Some(effect) = reserve(&limit, &mut state, name, hits, now) {
                        ledger.reserved(id, now, hits, effect);
                    }
                }
                2 => {
                    let effect = change(&limit, &mut state, name, HoldAction::Commit(hits), now);
                    ledger.ended(id, now, effect, on_settle);
                }
                3 => {
                    if plain.allows(&state, hits.into(), at(now)).unwrap() {
                        plain.charge(&mut state, hits.into(), at(now)).unwrap();
                        ledger.admitted.push((now, hits.into()));
                    }
                }
                _ => {
                    let effect = change(&limit, &mut state, name, HoldAction::Settle, now);
                    ledger.ended(id, now, effect, on_settle);
                }
            }
            prop_assert_eq!(exceeds(&limit, &ledger.admitted), None);
        }
    }

    #[test]
    fn after_a_commit_a_repeated_commit_and_a_settle_change_nothing(
        limit in limits(), trace in traces(), hits in 1u32..9, cost in 0u32..12, wait in 0..TTL,
    ) {
        let (_, mut state, now) = run(&limit, &trace);
        let now = now + 100_000_000;
        prop_assume!(reserve(&limit, &mut state, b"r", hits, now).is_some());
        let effect = change(&limit, &mut state, b"r", HoldAction::Commit(cost), now);
        prop_assert_eq!(effect, HoldEffect::Committed { reserved: hits, cost });
        for action in [HoldAction::Commit(cost), HoldAction::Commit(cost + 1), HoldAction::Settle] {
            let before = state.clone();
            prop_assert_eq!(change(&limit, &mut state, b"r", action, now + wait), HoldEffect::Nothing);
            prop_assert!(before == state, "{:?} changed the counter", action);
        }
    }

    #[test]
    fn after_a_settle_a_commit_changes_nothing_within_the_ttl_and_is_unknown_later(
        limit in limits(), trace in traces(), hits in 1u32..9, wait in 0..TTL,
    ) {
        let (_, mut state, now) = run(&limit, &trace);
        let now = now + 100_000_000;
        prop_assume!(reserve(&limit, &mut state, b"r", hits, now).is_some());
        prop_assert_eq!(change(&limit, &mut state, b"r", HoldAction::Settle, now), HoldEffect::Settled);
        let before = state.clone();
        let effect = change(&limit, &mut state, b"r", HoldAction::Commit(3), now + wait);
        prop_assert_eq!(effect, HoldEffect::Nothing);
        prop_assert!(before == state);
        let effect = change(&limit, &mut state, b"r", HoldAction::Commit(3), now + TTL);
        prop_assert_eq!(effect, HoldEffect::Unknown { cost: 3 });
    }

    #[test]
    fn permits_never_exceed_what_may_be_in_flight(in_flight in 1u32..20, steps in steps()) {
        let permits = Algorithm::Concurrency(Concurrency::new(in_flight).unwrap());
        let limit = holding(permits, OnSettle::Charge);
        let mut state = limit.unused();
        let mut now = 0;
        for (wait, id, hits, kind) in steps {
            now += wait;
            match kind {
                0 | 1 => drop(reserve(&limit, &mut state, IDS[id], hits.max(1), now)),
                2 => drop(change(&limit, &mut state, IDS[id], HoldAction::Commit(hits), now)),
                _ => drop(limit.refund(&mut state, hits.into(), at(now)).unwrap()),
            }
            let open: u32 = state.open_holds(at(now)).iter().map(|permit| permit.hits).sum();
            prop_assert!(open <= in_flight, "{} of {}", open, in_flight);
        }
        prop_assert!(state.open_holds(at(now + TTL)).is_empty());
    }
}

/// Returns a limit of 500 a minute of each algorithm with windows, with holds.
pub(super) fn in_windows(on_settle: OnSettle) -> [Limit; 4] {
    each(&window(500, 60_000_000), 60).map(|algorithm| holding(algorithm, on_settle))
}

fn of_500() -> [Limit; 5] {
    let [fixed, sliding, log, gcra] = in_windows(OnSettle::Charge);
    let permits = Algorithm::Concurrency(Concurrency::new(500).unwrap());
    [fixed, sliding, log, gcra, holding(permits, OnSettle::Charge)]
}

#[test]
fn of_20_reserves_of_75_against_500_exactly_6_are_admitted() {
    for limit in of_500() {
        let mut state = limit.unused();
        let ids: Vec<_> = (0u8..20).map(|number| [number]).collect();
        let admitted = ids.iter().filter(|id| reserve(&limit, &mut state, *id, 75, 0).is_some());
        assert_eq!(admitted.count(), 6, "{limit:?}");
    }
}

#[test]
fn a_record_of_one_hold_and_an_id_of_36_bytes_takes_at_most_120_bytes() {
    let [_, _, _, gcra, _] = of_500();
    for records in [1_000, 10_000, 100_000] {
        let mut state = gcra.unused();
        for number in 0..records {
            let id = format!("{number:036}");
            let request = request(id.as_bytes(), HoldAction::Reserve);
            gcra.reserve(&mut state, 1, request, Recorded::default(), at(0)).unwrap();
        }
        let bytes = state.heap_bytes() / records;
        assert!(bytes <= 120, "{bytes} bytes with {records} records");
        let next = request(b"next", HoldAction::Reserve);
        let effect = gcra.reserve(&mut state, 1, next, Recorded::default(), at(TTL - 1)).unwrap();
        assert_eq!(effect == HoldEffect::Unrecorded, records == 100_000, "{effect:?}");
        let later = gcra.reserve(&mut state, 1, next, Recorded::default(), at(TTL)).unwrap();
        assert!(matches!(later, HoldEffect::Reserved { .. }), "those that have expired make way");
    }
}

#[test]
fn a_counter_is_written_by_an_operation_that_changes_holds_and_by_no_other() {
    for limit in of_500() {
        let mut counters = [limit.unused()];
        for (id, action, written) in [
            (b"a", HoldAction::Reserve, true),
            (b"a", HoldAction::Look, false),
            (b"a", HoldAction::Extend, true),
            (b"b", HoldAction::Extend, false),
            (b"a", HoldAction::Settle, true),
            (b"a", HoldAction::Settle, false),
        ] {
            let hold = request(id, action);
            let hits = if hold.is_on_existing() { Hits::Refund(0) } else { Hits::Charge(75) };
            let question = Question { hold: Some(&hold), ..question(&limit, hits) };
            let judged = judge(&[question], &mut counters, Prior::Open, at(0));
            assert_eq!(judged.written.as_slice(), [written], "{action:?} of {limit:?}");
        }
    }
}

#[test]
fn a_reserve_by_an_id_with_an_open_hold_is_a_repeated_one() {
    for limit in of_500() {
        let mut state = limit.unused();
        for (id, repeated) in [(b"a", false), (b"b", false), (b"a", true)] {
            let effect = reserve(&limit, &mut state, id, 75, 0);
            assert_eq!(effect, Some(HoldEffect::Reserved { repeated }), "{limit:?}");
        }
    }
}

#[test]
fn a_commit_takes_back_what_it_did_not_cost_and_charges_what_it_cost_more() {
    for limit in in_windows(OnSettle::Charge) {
        let mut state = limit.unused();
        for (id, cost, left) in [(b"a", 20, 480), (b"b", 90, 390), (b"c", 75, 315)] {
            reserve(&limit, &mut state, id, 75, 0);
            let effect = change(&limit, &mut state, id, HoldAction::Commit(cost), 0);
            assert_eq!(effect, HoldEffect::Committed { reserved: 75, cost });
            let report = limit.report(&state, None, at(0)).unwrap();
            assert_eq!(report.remaining, left, "after {cost} of {limit:?}");
        }
    }
}

#[test]
fn a_write_of_holds_drops_a_reset_that_has_expired() {
    let limit = holding(log(vec![window(20, 60_000)]), OnSettle::Charge);
    let mut state = limit.unused();
    limit.charge(&mut state, 3, at(0)).unwrap();
    // Charges up to this instant are void until 60,000.
    limit.amend(&mut state, Amendment::Reset, at(50_000)).unwrap();
    for id in [b"a", b"b"] {
        reserve(&limit, &mut state, id, 5, 50_000);
    }
    change(&limit, &mut state, b"a", HoldAction::Commit(5), 70_000);
    change(&limit, &mut state, b"b", HoldAction::Commit(0), 70_000);
    assert_eq!(limit.report(&state, None, at(70_000)).unwrap().remaining, 15);
}

#[test]
fn a_hold_stays_if_the_counter_cannot_be_read() {
    let [fixed, _, log, ..] = of_500();
    let commit = HoldAction::Commit(75);
    let mut state = fixed.unused();
    reserve(&fixed, &mut state, b"a", 75, 0);
    assert!(
        log.change_hold(&mut state, request(b"a", commit), Recorded::default(), at(0)).is_err()
    );
    let effect = change(&fixed, &mut state, b"a", commit, 0);
    assert_eq!(effect, HoldEffect::Committed { reserved: 75, cost: 75 });
}
