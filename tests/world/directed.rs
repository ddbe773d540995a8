//! Worlds made by hand: findings of seeds, each in its smallest form.

use super::world::checker::check;
use super::world::history::Ending;
use super::world::plan::{Fault, Part, PartHits, Plan, PlannedCall};
use super::world::rules::{Counting, SimRule};
use super::world::run::run;
use super::world::server::fleet::{Arrangement, Moment};

/// Returns a world with one server, one process and one limit, in which nothing happens.
pub(super) fn idle_world(rule: SimRule) -> Plan {
    Plan {
        arrangement: Arrangement::Single,
        groups: 1,
        processes: 1,
        workers: 1,
        most_delay_ms: 0,
        rules: vec![rule],
        counters: vec![0],
        calls: Vec::new(),
        faults: Vec::new(),
        ..Plan::of(0)
    }
}

/// Returns the call of a process with one descriptor.
pub(super) fn call(number: usize, at: Moment, hits: PartHits, timeout_us: u64) -> PlannedCall {
    let parts = vec![Part { counter: 0, hits }];
    PlannedCall { number, at, process: 0, worker: 0, parts, timeout_us, cancel_after_us: None }
}

/// Returns a world with a limit that is never reached.
fn world(calls: impl IntoIterator<Item = (Moment, u64)>, faults: Vec<(Moment, Fault)>) -> Plan {
    let calls = calls.into_iter().enumerate();
    let calls =
        calls.map(|(number, (at, timeout_us))| call(number, at, PartHits::Charge(1), timeout_us));
    let calls = calls.collect();
    Plan { calls, faults, end: 5_000_000, ..idle_world(SimRule::plain(1_000)) }
}

#[test]
fn decisions_resume_at_once_if_a_connection_to_a_stopped_server_is_cut() {
    let hang = Fault::Hang { server: 0, us: 1_500_000 };
    // While the server is probed, with pauses of up to a second.
    let cut = Fault::CutAll { server: 0 };
    let early = (0..20).map(|number| (1_000_000 + number * 1_000, 15_000));
    let late = (0..10).map(|number| (2_800_000 + number * 100_000, 15_000));
    let plan = world(early.chain(late), vec![(1_000_000, hang), (1_600_000, cut)]);
    let report = run(&plan);
    let resumed = report.chronicle.calls.iter().filter(|record| record.call.at >= 2_800_000);
    let failed: Vec<_> =
        resumed.filter(|record| !matches!(record.ending, Ending::Decided(..))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(check(&report), [""; 0]);
}

#[test]
fn processes_that_decide_alone_admit_no_more_than_the_limit_together() {
    for (counting, limit) in [(Counting::Fixed, 1), (Counting::Gcra, 2), (Counting::Fixed, 4)] {
        let calls = (0..18).map(|number| (1_000_000 + number * 1_000, 15_000));
        let mut plan = world(calls, vec![(500_000, Fault::Hang { server: 0, us: 2_000_000 })]);
        plan.processes = 3;
        plan.skews_us = vec![0; 3];
        plan.rules[0] = SimRule { on_store_error: "local", counting, ..SimRule::plain(limit) };
        for call in &mut plan.calls {
            call.process = call.number % 3;
        }
        let report = run(&plan);
        let calls = &report.chronicle.calls;
        let admitted =
            calls.iter().filter(|record| matches!(record.ending, Ending::Decided(false, _)));
        assert_eq!(admitted.count(), limit as usize, "{calls:#?}");
        assert_eq!(check(&report), [""; 0]);
    }
}

#[test]
fn a_call_is_decided_once_the_server_has_loaded_its_data() {
    let loading = Fault::Loading { server: 0, us: 5_000 };
    let report = run(&world([(1_001_000, 500_000)], vec![(1_000_000, loading)]));
    let ending = &report.chronicle.calls[0].ending;
    assert!(matches!(ending, Ending::Decided(false, _)), "{ending:?}");
}

#[test]
fn a_charge_on_a_connection_that_is_lost_is_counted_as_unknown() {
    let cut = Fault::CutOne { connection: 0, is_request: false, bytes: 1 };
    let report = run(&world([(1_001_000, 500_000)], vec![(1_000_000, cut)]));
    let ending = &report.chronicle.calls[0].ending;
    assert!(matches!(ending, Ending::Failed("lost")), "{ending:?}");
    assert_eq!(report.unknown_charges, 1);
}

#[test]
fn a_call_during_the_first_connect_is_answered_by_its_deadline() {
    let crash = Fault::Crash { process: 0, us: 100_000 };
    let hang = Fault::Hang { server: 0, us: 1_000_000 };
    let plan = world([(1_100_000, 3_000)], vec![(1_000_000, crash), (1_000_000, hang)]);
    let report = run(&plan);
    let [record] = report.chronicle.calls.as_slice() else { panic!("{:?}", report.chronicle) };
    assert!(record.ended - record.begun <= 4_000, "{record:?}");
}
