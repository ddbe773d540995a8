//! Worlds with holds made by hand, and histories that the checker must refuse.

use tollgate::algorithm::hold::HoldEffect;

use super::directed::{call, idle_world};
use super::world::checker::check;
use super::world::history::Ending;
use super::world::plan::{Fault, PartHits, Plan};
use super::world::rules::{Counting, SimRule};
use super::world::run::{Report, run};
use super::world::server::fleet::{Arrangement, Moment};

const COUNTINGS: [Counting; 4] =
    [Counting::Fixed, Counting::Sliding, Counting::Log, Counting::Gcra];

/// Returns a world of a limit of 10 that keeps holds.
fn world(counting: Counting, calls: &[(Moment, PartHits)]) -> Plan {
    let calls = calls.iter().enumerate();
    let calls = calls.map(|(number, (at, hits))| call(number, *at, *hits, 15_000)).collect();
    Plan { calls, end: 4_000_000, ..idle_world(SimRule::holding(counting, 10, 1_000_000)) }
}

#[test]
fn open_holds_are_listed_after_failovers_that_the_worker_has_not_noticed() {
    let mut plan = world(Counting::Fixed, &[(1_000_000, reserve(1))]);
    plan.arrangement = Arrangement::Cluster;
    plan.groups = 2;
    plan.workers = 2;
    // The other worker probes every second counter; the first one lists the holds of all.
    plan.counters = vec![0; 8];
    plan.most_delay_ms = 5;
    plan.faults = (0..2).map(|group| (2_000_000, Fault::Promote { group, stale_us: 0 })).collect();
    assert_eq!(check(&run(&plan)), [""; 0]);
}

fn reserve(hits: u32) -> PartHits {
    PartHits::Reserve { id: 7, hits }
}

fn end(cost: Option<u32>) -> PartHits {
    PartHits::End { id: 7, cost, if_admitted: true }
}

fn effects(report: &Report) -> Vec<HoldEffect> {
    let effect = |ending: &Ending| match ending {
        Ending::Decided(_, statuses) => statuses[0].effect,
        Ending::Failed(_) | Ending::Cancelled => None,
    };
    report.chronicle.calls.iter().filter_map(|record| effect(&record.ending)).collect()
}

/// A reserve of 5 and its ends: the hold costs 3, and once its record is gone 2 more.
const ENDED: [(Moment, PartHits); 5] = [
    (1_000_000, PartHits::Reserve { id: 7, hits: 5 }),
    (1_100_000, PartHits::End { id: 7, cost: Some(3), if_admitted: true }),
    (1_200_000, PartHits::End { id: 7, cost: Some(3), if_admitted: true }),
    (1_300_000, PartHits::End { id: 7, cost: None, if_admitted: true }),
    (3_000_000, PartHits::End { id: 7, cost: Some(2), if_admitted: true }),
];

#[test]
fn a_hold_ends_once_and_its_cost_is_unknown_later() {
    for counting in COUNTINGS {
        let report = run(&world(counting, &ENDED));
        let expected = [
            HoldEffect::Reserved { repeated: false },
            HoldEffect::Committed { reserved: 5, cost: 3 },
            HoldEffect::Nothing,
            HoldEffect::Nothing,
            HoldEffect::Unknown { cost: 2 },
        ];
        assert_eq!(effects(&report), expected, "{counting:?}");
        assert_eq!(report.used, [Some(5)], "{counting:?}");
        assert_eq!(check(&report), [""; 0], "{counting:?}");
    }
}

#[test]
fn an_answer_that_no_order_explains_is_found() {
    let wrong = [
        (0, HoldEffect::Reserved { repeated: true }),
        (1, HoldEffect::Unknown { cost: 3 }),
        (2, HoldEffect::Committed { reserved: 5, cost: 3 }),
        (2, HoldEffect::Unknown { cost: 3 }),
        (3, HoldEffect::Settled),
        (4, HoldEffect::Nothing),
    ];
    for (number, effect) in wrong {
        let mut report = run(&world(Counting::Fixed, &ENDED));
        let Ending::Decided(_, statuses) = &mut report.chronicle.calls[number].ending else {
            panic!("{number}: {:?}", report.chronicle.calls)
        };
        statuses[0].effect = Some(effect);
        let broken = check(&report).join("\n");
        assert!(broken.contains("unexplained"), "{number} {effect:?}: {broken}");
    }
}

#[test]
fn hits_that_the_store_should_not_count_are_found() {
    for (used, found) in [(4, "forgotten"), (6, "lost")] {
        let mut report = run(&world(Counting::Sliding, &ENDED));
        report.used = vec![Some(used)];
        assert!(check(&report).join("\n").contains(found), "{used}");
    }
}

#[test]
fn permits_never_exceed_their_number_and_end_by_their_ttl() {
    let calls = [(1_000_000, reserve(6)), (3_900_000, reserve(6))];
    let mut report = run(&world(Counting::Permits, &calls));
    assert_eq!(report.used, [Some(0)]);
    assert_eq!(check(&report), [""; 0]);
    report.used = vec![Some(6)];
    assert!(check(&report).join("\n").contains("in flight"));

    // As if the second had been admitted while the first was in flight.
    let calls = [(1_000_000, reserve(6)), (1_500_000, PartHits::Reserve { id: 8, hits: 6 })];
    let mut report = run(&world(Counting::Permits, &calls));
    let Ending::Decided(is_over, statuses) = &mut report.chronicle.calls[1].ending else {
        panic!()
    };
    assert!(std::mem::take(is_over));
    statuses[0].standing = "allowed";
    assert!(check(&report).join("\n").contains("over"));

    // As if the first permit had ended before the second was refused.
    let calls = [
        (1_000_000, reserve(6)),
        (1_500_000, PartHits::Reserve { id: 8, hits: 6 }),
        (1_600_000, end(None)),
    ];
    let mut report = run(&world(Counting::Permits, &calls));
    assert_eq!(check(&report), [""; 0]);
    let ended = &mut report.chronicle.calls[2];
    (ended.begun, ended.ended) = (1_100_000, 1_101_000);
    assert!(check(&report).join("\n").contains("unjustified denial"));
}
