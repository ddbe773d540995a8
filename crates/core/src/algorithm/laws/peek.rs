//! A property of peeks: a peek of n hits is judged like a charge of n, and changes nothing.

use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::judge::JudgedRequest;

/// A question: index of one of two counters, hits, charge mode, role.
type PeekCase = (usize, u32, Charge, Role);

fn questions() -> impl Strategy<Value = Vec<PeekCase>> {
    let roles =
        proptest::sample::select(vec![Role::Enforce, Role::Shadow, Role::Quota, Role::QuotaShadow]);
    let modes = proptest::sample::select(vec![
        Charge::Admitted,
        Charge::Blamed,
        Charge::Always,
        Charge::Afterwards,
    ]);
    proptest::collection::vec((0usize..2, 0u32..7, modes, roles), 1..6)
}

/// Counters after a trace, one of them with a grant.
fn counters(algorithms: &[Algorithm; 2], trace: &[(u64, u32)], granted: u32) -> (Vec<State>, u64) {
    let mut states = vec![];
    let mut end = 0;
    for algorithm in algorithms {
        let (_, state, now) = run(&limit(algorithm.clone(), Charge::Admitted), trace);
        (states, end) = ([states, vec![state]].concat(), now);
    }
    let grant = Amendment::Grant { hits: granted, length: Micros::from_secs(60) };
    limit(algorithms[0].clone(), Charge::Admitted).amend(&mut states[0], grant, at(end)).unwrap();
    (states, end)
}

fn judged(
    algorithms: &[Algorithm; 2],
    cases: &[PeekCase],
    counters: &mut [State],
    (prior, now): (Prior, u64),
    hits: impl Fn(u32) -> Hits,
) -> JudgedRequest {
    let entries = [b"user=ann".to_vec()];
    let limits = cases.iter().map(|(which, _, mode, _)| {
        // A log is not charged always.
        let is_log = algorithms[*which].stores_each_hit();
        limit(algorithms[*which].clone(), if is_log { Charge::Admitted } else { *mode })
    });
    let limits: Vec<_> = limits.collect();
    let question = |(limit, (which, wanted, _, role)): (_, &PeekCase)| Question {
        role: *role,
        counter: Some(*which),
        recorded: Recorded { entries: &entries, may_grow: true },
        ..question(limit, hits(*wanted))
    };
    let questions: Vec<_> = limits.iter().zip(cases).map(question).collect();
    judge(&questions, counters, prior, at(now))
}

proptest! {
    #[test]
    fn a_peek_of_n_is_judged_as_a_charge_of_n_and_changes_nothing(
        algorithms in [algorithms(), algorithms()],
        trace in traces(),
        granted in 0u32..6,
        cases in questions(),
        prior in proptest::sample::select(vec![Prior::Open, Prior::Denied, Prior::Admitted]),
    ) {
        let (mut counters, now) = counters(&algorithms, &trace, granted);
        let before = counters.clone();
        let peeked = judged(&algorithms, &cases, &mut counters, (prior, now), Hits::Peek);
        prop_assert_eq!(&counters, &before);
        prop_assert!(!peeked.written.contains(&true));
        let charge = |hits| if hits == 0 { Hits::Peek(0) } else { Hits::Charge(hits) };
        let made = judged(&algorithms, &cases, &mut counters, (prior, now), charge);
        prop_assert_eq!(peeked.overall, made.overall);
        let allowed = |judged: &JudgedRequest| -> Vec<_> {
            judged.outcomes.iter().map(|outcome| outcome.map(|outcome| outcome.allowed)).collect()
        };
        prop_assert_eq!(allowed(&peeked), allowed(&made));
        // Remaining hits are those of the counter as it is, over all its windows.
        for ((which, ..), outcome) in cases.iter().zip(&peeked.outcomes) {
            let limit = limit(algorithms[*which].clone(), Charge::Admitted);
            let stands = limit.report(&before[*which], None, at(now)).unwrap();
            prop_assert_eq!(outcome.unwrap().report.remaining, stands.remaining);
        }
    }
}

#[test]
fn a_peek_of_no_hits_leaves_the_rate_of_the_counter_to_the_next_question() {
    let of = |hits, period| limit(gcra(window(hits, period), None), Charge::Always);
    // Three hits of the first limit are just one period; converted to the rate of the other one and
    // back, they would be more.
    let [limit, other] = [of(3, 10_000), of(2, 3_000)];
    let mut state = limit.unused();
    limit.charge(&mut state, 1, at(0)).unwrap();
    let recorded = Recorded { entries: &[], may_grow: true };
    let question = |limit, hits| Question { recorded, ..question(limit, hits) };
    let questions = [question(&other, Hits::Peek(0)), question(&limit, Hits::Charge(2))];
    let judged = judge(&questions, &mut [state], Prior::Open, at(0));
    assert!(judged.outcomes[1].unwrap().allowed);
}
