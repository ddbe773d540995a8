//! Worlds of proxies made by hand: no window admits more than its limit, and nearly all of it is
//! used.

use super::directed::idle_world;
use super::world::checker::check;
use super::world::plan::Plan;
use super::world::plan_proxies::{PlannedRequest, ProxyPlan};
use super::world::rules::{LeaseHolders, SimRule};
use super::world::run::run;
use super::world::server::fleet::BASE_US;

/// Hits of a window. Of more, a larger part is used.
const LIMIT: u64 = 1_000;
const WINDOWS: u64 = 8;
const SECONDS: u64 = 30;
const PERIOD_US: u64 = SECONDS * 1_000_000;
/// Percents of the limit that proxies want in a window, ten to one: half more than the limit.
const DEMAND: [u64; 8] = [50, 50, 10, 10, 10, 8, 7, 5];

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Returns a world of a limit of fixed windows. With `shifts`, the demand moves to other proxies
/// two reports before each window.
fn world(processes: usize, shifts: bool) -> Plan {
    let mut requests = Vec::new();
    // In units of 1/(1,000 * SECONDS) of a hit.
    let mut wanted = [0; DEMAND.len()];
    for tick in 0..WINDOWS * SECONDS * 10 {
        let moved = if shifts { (tick / 10 + 10) / SECONDS } else { 0 };
        for (proxy, wanted) in wanted.iter_mut().enumerate() {
            *wanted += DEMAND[(proxy + 3 * index(moved)) % DEMAND.len()] * LIMIT;
            while *wanted >= 1_000 * SECONDS {
                *wanted -= 1_000 * SECONDS;
                requests.push(PlannedRequest { at: 100_000 * tick, proxy, counter: 0 });
            }
        }
    }
    let rule = SimRule {
        period_us: PERIOD_US,
        lease_us: Some(1_000_000),
        lease_holders: LeaseHolders::Clients,
        quota_ttl_s: Some(15),
        ..SimRule::plain(LIMIT.try_into().unwrap())
    };
    Plan {
        processes,
        skews_us: vec![0; processes],
        most_delay_ms: 20,
        proxies: Some(ProxyPlan { count: DEMAND.len(), requests, late: 0, late_ms: 0 }),
        end: WINDOWS * PERIOD_US,
        ..idle_world(rule)
    }
}

/// Returns the part of the limit that proxies use in all windows but the first, in 1/1000.
fn used(processes: usize, shifts: bool) -> u64 {
    let report = run(&world(processes, shifts));
    assert_eq!(check(&report), [""; 0]);
    let mut windows = vec![0; index(WINDOWS) + 1];
    for (at, hits) in report.chronicle.loans.loans.iter().flat_map(|loan| &loan.admitted) {
        windows[index((BASE_US + at) / PERIOD_US - BASE_US / PERIOD_US)] += hits;
    }
    assert!(windows.iter().all(|hits| *hits <= LIMIT), "{windows:?}");
    windows[1..index(WINDOWS)].iter().sum::<u64>() * 1_000 / (LIMIT * (WINDOWS - 1))
}

#[test]
fn proxies_that_want_more_than_the_limit_use_nearly_all_of_it() {
    let used = [1, 2].map(|processes| used(processes, false));
    assert!(used.iter().all(|used| *used >= 905), "{used:?}");
}

#[test]
fn proxies_use_nearly_all_of_the_limit_two_reports_after_a_shift_of_the_demand() {
    let used = [1, 2].map(|processes| used(processes, true));
    assert!(used.iter().all(|used| *used >= 905), "{used:?}");
}
