//! Cases of whole requests.

use super::holds::{holding, request};
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest, OnSettle};
use crate::algorithm::judge::JudgedRequest;

fn of_500() -> Algorithm {
    log(vec![window(500, 60_000_000)])
}

/// Judges questions about one counter.
fn asked(
    limit: &Limit,
    counter: &mut [State; 1],
    questions: &[(Hits, Option<HoldRequest<'_>>)],
    now: u64,
) -> JudgedRequest {
    let questions = questions
        .iter()
        .map(|(hits, hold)| Question { hold: hold.as_ref(), ..question(limit, *hits) });
    judge(&questions.collect::<Vec<_>>(), counter, Prior::Open, at(now))
}

fn effects(judged: &JudgedRequest) -> Vec<HoldEffect> {
    judged.outcomes.iter().map(|outcome| outcome.unwrap().hold).collect()
}

#[test]
fn a_denied_request_waits_for_all_of_its_hits_of_a_counter() {
    let limit = limit(of_500(), Charge::Admitted);
    let mut counter = [limit.unused()];
    for (hits, now) in [(300, 0), (100, 7)] {
        asked(&limit, &mut counter, &[(Hits::Charge(hits), None)], now);
    }
    let charges = [60, 50].map(|hits| (Hits::Charge(hits), None));
    let judged = asked(&limit, &mut counter, &charges, 9);
    let waits = judged.outcomes.iter().map(|outcome| outcome.unwrap().report.retry_after);
    // 110 hits fit when the 300 have left, as 50 would have now.
    let wait = Micros::new(60_000_000 - 9);
    assert_eq!(waits.collect::<Vec<_>>(), [None, Some(wait)]);
    assert_eq!(judged.written.as_slice(), [false]);
}

#[test]
fn a_reserve_that_is_sent_again_is_held_or_in_conflict_by_the_sum_of_its_hits() {
    let limit = holding(of_500(), OnSettle::Charge);
    let mut counter = [limit.unused()];
    let once = Some(request(b"a", HoldAction::ReserveOnce));
    let mut reserve = |parts: &[u32]| {
        let questions: Vec<_> = parts.iter().map(|hits| (Hits::Charge(*hits), once)).collect();
        effects(&asked(&limit, &mut counter, &questions, 0))
    };
    assert_eq!(reserve(&[75]), [HoldEffect::Reserved { repeated: false }]);
    assert_eq!(reserve(&[75]), [HoldEffect::Held]);
    assert_eq!(reserve(&[74]), [HoldEffect::Conflict]);
    assert_eq!(reserve(&[70, 5]), [HoldEffect::Held; 2]);
    assert_eq!(reserve(&[75, 75]), [HoldEffect::Conflict; 2]);
    let left = limit.report(&counter[0], None, at(0)).unwrap().remaining;
    assert_eq!(left, 425);
}

#[test]
fn a_request_ends_one_hold_of_an_id_unless_each_of_its_descriptors_does() {
    let limit = holding(of_500(), OnSettle::Charge);
    let ended = HoldEffect::Committed { reserved: 75, cost: 20 };
    for (action, second) in
        [(HoldAction::Commit(20), HoldEffect::Nothing), (HoldAction::CommitEach(20), ended)]
    {
        let mut counter = [limit.unused()];
        let hold = |action| Some(request(b"a", action));
        let reserve = (Hits::Charge(75), hold(HoldAction::Reserve));
        asked(&limit, &mut counter, &[reserve, reserve], 0);
        let end = (Hits::Refund(0), hold(action));
        assert_eq!(effects(&asked(&limit, &mut counter, &[end, end], 0)), [ended, second]);
    }
}

#[test]
fn a_later_charge_of_a_request_is_judged_by_those_before_it() {
    for (charge, first, allowed) in [
        (Charge::Admitted, Hits::Peek(499), [true, true]),
        (Charge::Admitted, Hits::Peek(500), [true, false]),
        (Charge::Admitted, Hits::Charge(501), [false, true]),
        (Charge::Blamed, Hits::Charge(501), [false, false]),
    ] {
        let limit = limit(of_500(), charge);
        let questions = [(first, None), (Hits::Charge(1), None)];
        let judged = asked(&limit, &mut [limit.unused()], &questions, 0);
        let is_allowed = judged.outcomes.iter().map(|outcome| outcome.unwrap().allowed);
        assert_eq!(is_allowed.collect::<Vec<_>>(), allowed, "{first:?} by {charge:?}");
    }
}

#[test]
fn a_counter_that_several_questions_name_is_written_by_any_of_them() {
    let limit = limit(of_500(), Charge::Admitted);
    let charge = (Hits::Charge(1), None);
    let peek = (Hits::Peek(1), None);
    for (questions, written) in
        [([charge, peek], true), ([peek, charge], true), ([peek, peek], false)]
    {
        let judged = asked(&limit, &mut [limit.unused()], &questions, 0);
        assert_eq!(judged.written.as_slice(), [written]);
    }
}

#[test]
fn a_hold_that_is_put_to_its_cost_leaves_no_trace_of_an_instant_without_hits() {
    for algorithm in [of_500(), sliding(vec![window(500, 60_000_000)], 60)] {
        let limit = holding(algorithm, OnSettle::Charge);
        let mut counter = [limit.unused()];
        let reserve = (Hits::Charge(75), Some(request(b"a", HoldAction::Reserve)));
        asked(&limit, &mut counter, &[reserve], 0);
        let commit = (Hits::Refund(0), Some(request(b"a", HoldAction::Commit(75))));
        let before = limit.report(&counter[0], None, at(900_000)).unwrap();
        asked(&limit, &mut counter, &[commit], 900_000);
        // A commit without a hold, and without a cost, neither.
        let unknown = (Hits::Refund(0), Some(request(b"b", HoldAction::Commit(0))));
        asked(&limit, &mut counter, &[unknown], 900_000);
        assert_eq!(limit.report(&counter[0], None, at(900_000)).unwrap(), before);
    }
}

#[test]
fn a_cost_past_a_full_log_is_added_to_its_newest_entry_and_else_is_an_entry_of_its_own() {
    let log = |limit| holding(log(vec![window(limit, 60_000_000)]), OnSettle::Charge);
    let wait = |limit: Limit| {
        let mut counter = [limit.unused()];
        for now in [0, 5] {
            asked(&limit, &mut counter, &[(Hits::Charge(1), None)], now);
        }
        let unknown = (Hits::Refund(0), Some(request(b"a", HoldAction::Commit(9))));
        asked(&limit, &mut counter, &[unknown], 7);
        // The time until the second entry has left.
        let room = u64::from(limit.windows()[0].limit()).saturating_sub(9);
        limit.report(&counter[0], Some(room.max(1)), at(7)).unwrap().retry_after
    };
    assert_eq!(wait(log(2)), Some(Micros::new(60_000_000)), "the second entry is that of the cost");
    assert_eq!(wait(log(12)), Some(Micros::new(60_000_000 - 2)));
}

#[test]
fn a_cost_past_one_of_two_windows_leaves_the_entries_of_the_other() {
    let windows = vec![window(2, 60_000_000), window(10, 600_000_000)];
    let limit = holding(log(windows), OnSettle::Charge);
    let mut counter = [limit.unused()];
    for now in [0, 5] {
        asked(&limit, &mut counter, &[(Hits::Charge(1), None)], now);
    }
    let commit = |id, cost| (Hits::Refund(0), Some(request(id, HoldAction::Commit(cost))));
    asked(&limit, &mut counter, &[commit(b"a", 9)], 7);
    // The log of the short window has 1 hit at 0 and 10 at 7; of the long one, 1 is at 5.
    asked(&limit, &mut counter, &[commit(b"b", 0)], 8);
    let looked = limit.amend(&mut counter[0], Amendment::Look, at(8)).unwrap().0.after.windows;
    let used: Vec<_> = looked.iter().map(|window| (window.used, window.retry_after)).collect();
    let wait = |end: u64| Some(Micros::new(end - 8));
    assert_eq!(used, [(11, wait(60_000_007)), (11, wait(600_000_005))]);
    let of_two_logs = counter[0].heap_bytes();
    asked(&limit, &mut counter, &[(Hits::Charge(1), None)], 600_000_007);
    assert!(counter[0].heap_bytes() < of_two_logs, "all entries have expired: one log is left");
}

#[test]
fn charged_and_denied_hits_are_tallied_and_peeks_and_refunds_are_not() {
    let limit = limit(of_500(), Charge::Admitted);
    let entries = [b"user=ann".to_vec()];
    let mut counter = [limit.unused()];
    let written = [Hits::Charge(500), Hits::Charge(7), Hits::Peek(7), Hits::Refund(500)];
    let written = written.map(|hits| {
        let recorded = Recorded { entries: &entries, may_grow: true };
        let question = Question { recorded, ..question(&limit, hits) };
        judge(&[question], &mut counter, Prior::Open, at(0)).written[0]
    });
    assert_eq!(written, [true, true, false, true]);
    let tallied = |state: &State| {
        let tallies = state.tallies().iter();
        tallies.map(|tally| (tally.charged, tally.denied)).collect::<Vec<_>>()
    };
    assert_eq!(tallied(&counter[0]), [(500, 7)]);
    limit.untally(&mut counter[0], &entries, 400);
    assert_eq!(tallied(&counter[0]), [(100, 7)]);
    let mut plain = limit.unused();
    limit.untally(&mut plain, &entries, 1);
    assert_eq!(plain, limit.unused());
}
