//! The calls that it takes to find each fault, and the absence of alarms without one.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::simulation::{Fault, SKEW, SimulatedRun};
use crate::check::CheckedProperty;
use crate::history::{ObservedAnswer, ObservedCall};
use crate::run::VerifyRun;

/// Histories of a service without a fault, unless the variable has another number; and for one run
/// of each service with a fault.
const HISTORIES: u64 = 50;
const HISTORIES_VARIABLE: &str = "TOLLGATE_VERIFY_HISTORIES";
const HISTORIES_PER_RUN: u64 = 50;
const MAX_RUNS: u64 = 10;

/// Threads that check histories.
const THREADS: u64 = 4;

const WINDOWS: &str = "domain: check
descriptors:
  - key: second
    rate_limit: { unit: second, requests_per_unit: 20 }
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 100 }
  - key: day
    rate_limit: { unit: day, requests_per_unit: 200 }
";

const HOLDS: &str = "domain: check
descriptors:
  - key: second
    rate_limit: { unit: second, requests_per_unit: 20, hold: { ttl: 10s } }
  - key: bucket
    rate_limit:
      { algorithm: token_bucket, unit: minute, requests_per_unit: 100, hold: { ttl: 10m, on_settle: release } }
";

const SEVERAL: &str = "domain: check
defaults: { charge: admitted }
descriptors:
  - key: second
    rate_limit: { unit: second, requests_per_unit: 20 }
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 100 }
";

const PERMITS: &str = "domain: check
descriptors:
  - key: permits
    rate_limit: { algorithm: concurrency, in_flight: 10, hold: { ttl: 60s } }
";

const SHORT_PERMITS: &str = "domain: check
descriptors:
  - key: permits
    rate_limit: { algorithm: concurrency, in_flight: 10, hold: { ttl: 1s } }
";

/// Options of limits that can be verified, each with an amount in the place of `N`.
const LIMITS: [&str; 18] = [
    "requests_per_unit: N, unit: second, charge: always",
    "requests_per_unit: N, unit: 3s, charge: admitted",
    "requests_per_unit: N, unit: hour, charge: blamed",
    "requests_per_unit: N, unit: second, algorithm: sliding_window, buckets: 10",
    "requests_per_unit: N, unit: minute, algorithm: sliding_window, charge: always",
    "requests_per_unit: N, unit: 2s, algorithm: sliding_log",
    "requests_per_unit: N, unit: 3s, algorithm: gcra, burst: 7",
    "requests_per_unit: N, unit: second, algorithm: token_bucket",
    "requests_per_unit: N, unit: day, algorithm: gcra",
    "requests_per_unit: N, unit: day, calendar: true, time_zone: Asia/Tokyo",
    "requests_per_unit: N, unit: month, calendar: true, hold: { ttl: 2s }",
    "requests_per_unit: N, unit: 2s, hold: { ttl: 2s }",
    "requests_per_unit: N, unit: hour, algorithm: sliding_window, hold: { ttl: 1m }",
    "requests_per_unit: N, unit: 3s, algorithm: sliding_log, hold: { ttl: 1s, on_settle: release }",
    "requests_per_unit: N, unit: second, algorithm: gcra, burst: 9, hold: { ttl: 3s }",
    "requests_per_unit: N, unit: hour, algorithm: token_bucket, hold: { ttl: 3s }",
    "in_flight: N, algorithm: concurrency, hold: { ttl: 1s }",
    "in_flight: N, algorithm: concurrency, hold: { ttl: 1m }",
];

/// Returns a run of at most so many calls against a service with a fault.
fn simulation(
    (policy, fault): (&str, Fault),
    clients: usize,
    calls: u64,
    seed: u64,
) -> SimulatedRun {
    let policy = policy.to_owned();
    let rate = 500;
    let seconds = calls / u64::from(rate);
    SimulatedRun { policy, fault, seed, clients, rate, seconds, apart: 0, lost: 0 }
}

/// Returns a run against a service that keeps its limits, whose replicas have clocks that differ,
/// and of which requests and answers are lost.
fn without_fault(seed: u64) -> SimulatedRun {
    let mut random = StdRng::seed_from_u64(seed);
    let mut policy = "domain: check\ndescriptors:\n".to_owned();
    for number in 0..random.random_range(1..4) {
        let options = LIMITS.choose(&mut random).unwrap();
        let most = *[20, 20, 80].choose(&mut random).unwrap();
        let amount = random.random_range(1..most);
        let options = options.replace('N', &amount.to_string());
        policy += &format!("  - key: key{number}\n    rate_limit: {{ {options} }}\n");
    }
    SimulatedRun {
        policy,
        fault: Fault::None,
        seed,
        clients: random.random_range(1..32),
        rate: random.random_range(20..300),
        seconds: random.random_range(1..8),
        apart: random.random_range(0..=SKEW * 1000),
        lost: *[0, 20, 100].choose(&mut random).unwrap(),
    }
}

fn histories() -> u64 {
    let wanted = std::env::var(HISTORIES_VARIABLE).ok();
    wanted.map_or(HISTORIES, |number| number.parse().unwrap())
}

#[test]
fn histories_of_a_service_that_keeps_its_limits_contradict_nothing() {
    let histories = histories();
    let sums = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|first| {
            let seeds = (first..histories).step_by(THREADS.try_into().unwrap());
            scope.spawn(|| seeds.map(assert_no_alarm).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        let of_each = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        of_each.fold([0; 6], |sums, counts| std::array::from_fn(|one| sums[one] + counts[one]))
    });
    assert!(sums.iter().all(|items| *items > histories), "{sums:?}");
    println!("{histories} histories, no alarm; calls and items checked: {sums:?}");
}

/// Checks a history, and returns the number of its calls and of the items of each property.
fn assert_no_alarm(seed: u64) -> [u64; 6] {
    let simulation = without_fault(seed);
    let run = simulation.run();
    let checker = run.check(SKEW);
    let results = checker.results().iter();
    let found = results.filter(|one| one.property != CheckedProperty::AnsweredInTime);
    let found: Vec<_> = found.filter(|one| one.contradictions > 0).collect();
    assert!(found.is_empty(), "{simulation:?} {found:#?}");
    let mut counts = [run.calls.len() as u64, 0, 0, 0, 0, 0];
    for (count, result) in counts[1..].iter_mut().zip(checker.results()) {
        *count = result.examined;
    }
    counts
}

#[test]
fn each_fault_is_found() {
    for (policy, fault, calls) in [
        (WINDOWS, Fault::OneMore, 500),
        (WINDOWS, Fault::ForgetsAtReload, 1000),
        (WINDOWS, Fault::AdmitsTwice, 20_000),
        (WINDOWS, Fault::LateReset, 1000),
        (WINDOWS, Fault::WrongRemaining, 500),
        (WINDOWS, Fault::ReadsBeforeItWrites, 500),
        (HOLDS, Fault::CommitsTwice, 1000),
        (HOLDS, Fault::CancelsTooMuch, 1000),
        (HOLDS, Fault::CancelsNothing, 1000),
        (PERMITS, Fault::OneMore, 500),
        (PERMITS, Fault::NeverEnds, 1000),
        (SHORT_PERMITS, Fault::ExtendsNothing, 20_000),
        (HOLDS, Fault::ChargesRepeats, 20_000),
        (HOLDS, Fault::CommitsAgain, 20_000),
        (HOLDS, Fault::CancelsAgain, 20_000),
        (HOLDS, Fault::ForgivesOverruns, 1000),
        (SEVERAL, Fault::ChargesDenied, 20_000),
    ] {
        let mut found = Vec::new();
        for seed in 0..(histories() / HISTORIES_PER_RUN).clamp(1, MAX_RUNS) {
            let mut run = simulation((policy, fault), 16, calls, seed).run();
            let after = found_after(&mut run);
            found.push(after.unwrap_or_else(|| panic!("{fault:?} is not found with seed {seed}")));
        }
        found.sort_unstable();
        println!("{fault:?}: {} calls, {} at most", found[found.len() / 2], found[found.len() - 1]);
    }
}

#[test]
fn one_client_cannot_show_a_fault_of_concurrent_calls() {
    let mut run = simulation((WINDOWS, Fault::ReadsBeforeItWrites), 1, 1000, 0).run();
    assert!(run.calls.len() > 100, "{}", run.calls.len());
    assert_eq!(found_after(&mut run), None);
}

/// Returns the number of calls after which the fault of a run is found, if it is.
fn found_after(run: &mut VerifyRun) -> Option<usize> {
    let all = std::mem::take(&mut run.calls);
    let mut ends: Vec<u64> = all.iter().map(|call| call.end).collect();
    ends.sort_unstable();
    let mut is_found = |end: u64| {
        let begun = all.iter().filter(|call| call.begin < end);
        run.calls = begun.map(|call| until(call, end)).collect();
        run.check(SKEW).results().iter().any(|result| {
            let is_timely = result.property != CheckedProperty::AnsweredInTime;
            is_timely && result.contradictions > 0
        })
    };
    // A check of fewer calls takes less time.
    let powers = (0..usize::BITS).map(|power| 1_usize << power);
    let enough = powers.map(|count| count.min(ends.len())).find(|count| {
        let end = ends.get(count.saturating_sub(1));
        end.is_none_or(|end| is_found(*end)) || *count == ends.len()
    })?;
    let within = ends.get(..enough)?;
    let found = within.partition_point(|end| !is_found(*end));
    (found < enough).then_some(found + 1)
}

/// Returns a call as it is known at a time.
fn until(call: &ObservedCall, time: u64) -> ObservedCall {
    if call.end <= time {
        return call.clone();
    }
    let answer = ObservedAnswer::Failed { error: "under way".to_owned() };
    ObservedCall { end: time, answer, ..call.clone() }
}
