//! Never more than the highest amount in force, while reloads raise and lower the amounts a
//! hundredfold: 8 processes, 64 clients of each, all algorithms, a few at a time, with leases,
//! refunds, and requests of several descriptors.
//!
//! Two facts are checked for each counter, by the clients' history alone:
//! - At no time do hits admitted less hits refunded exceed the highest amount in force; for gcra
//!   and token_bucket, its burst and the hits that its rate drains meanwhile. To the checker of
//!   `verify`, hits that a client refunds are those of a hold.
//! - Once all leases have ended, exactly the rest of that amount is admitted, except hits that
//!   processes count as lost.
//!
//! `TOLLGATE_RELOAD_RUNS` sets the number of runs, `TOLLGATE_RANDOM_SEED` other random numbers,
//! `TOLLGATE_PREVIOUS` the binary of an earlier release for every other pair of processes.

mod clients;
mod rules;

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::verify::check::CheckedProperty;
use tollgate::verify::run::VerifyRun;

use self::clients::{Replica, TakenHits};
use self::rules::{Counts, LEASE, RULES, Rule};
use super::cluster;
use super::verified::{answered, contradictions, drive, name_of, run_of, workload};
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

const REPLICAS: usize = 8;
/// Number of clients of each process.
const CLIENTS: usize = 64;
/// Requests per second of all clients together.
const RATE: u32 = 2_000;
/// Rules that clients call at a time: leases are for hot keys. The last ones are the hottest.
const RULES_AT_A_TIME: usize = 5;
/// Time for which clients call: in its second second, requests have several descriptors.
const TIME: Duration = Duration::from_secs(3);
/// Candidates for the highest amount of a run.
const HIGHEST: [u32; 5] = [10_000, 10_000, 10_000, 1_000, 100];
/// Maximum number of checks for whether hits in flight have been returned.
const SETTLES: usize = 100;
/// Attempts to take all that is left, one lease apart.
const TRIES: usize = 5;
/// Answers between two reloads.
const ANSWERS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_never_admits_more_than_the_highest_amount() {
    runs("memory", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_never_admits_more_than_the_highest_amount() {
    let redis = Redis::start().await;
    let totals = runs(&redis.url(), REPLICAS).await;
    assert!(totals.blocks > 0, "no hits were taken in advance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_never_admits_more_than_the_highest_amount() {
    let cluster = cluster().await;
    let totals = runs(&cluster.url(), REPLICAS).await;
    assert!(totals.blocks > 0, "no hits were taken in advance");
    assert!(totals.take_backs > 0, "no charge was taken back");
}

/// Executes runs with the same processes, each with counters of its own.
async fn runs(store: &str, replicas: usize) -> Totals {
    let seed = from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default();
    let replicas = join_all((0..replicas).map(|number| Replica::start(store, number))).await;
    let mut wrong = Vec::new();
    for run in 0..from_environment("TOLLGATE_RELOAD_RUNS").unwrap_or(1) {
        let seed = seed.wrapping_add(run);
        let mut random = Random(seed);
        let highest = *random.one_of(&HIGHEST);
        for rules in RULES.chunks(RULES_AT_A_TIME) {
            let found = one_run(&replicas, rules, highest, &mut random).await;
            wrong.extend(
                found.into_iter().map(|found| format!("TOLLGATE_RANDOM_SEED={seed}: {found}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Totals::of(&replicas).await
}

/// Executes a run of some rules. Returns its failures.
async fn one_run(
    replicas: &[Replica],
    rules: &[Rule],
    highest: u32,
    random: &mut Random,
) -> Vec<String> {
    let before = Totals::of(replicas).await;
    let all: Vec<usize> = (0..replicas.len()).collect();
    let mut amounts = vec![reload(replicas, &all, highest).await];
    let hits = TakenHits { most: u64::from(highest / 20).max(1) };
    // A few processes have all requests for the last rules.
    let called = if rules.len() < RULES_AT_A_TIME { replicas.len().min(2) } else { replicas.len() };
    let clients = (0..CLIENTS * REPLICAS)
        .map(|number| replicas[number % called].client(number / called, hits));
    let begun = Instant::now();
    let change = async |run: &RefCell<VerifyRun>| {
        change_amounts(replicas, highest, begun + TIME, run, random, &mut amounts).await;
    };
    let workload = workload(TIME, RATE, TEST_TIMEOUT);
    let (mut run, ()) =
        drive(run_of(&rules::bound(rules, highest)), &workload, clients, change).await;
    for call in &mut run.calls {
        call.hits = hits.of(call.action, call.hits);
    }
    amounts.push(reload(replicas, &all, highest).await);
    let mut wrong = contradictions(&run, &[CheckedProperty::NeverOver]);

    tokio::time::sleep(LEASE).await;
    let totals = || Totals::of(replicas);
    becomes("no lease is held", TEST_TIMEOUT, totals, |totals| totals.outstanding == 0).await;
    let after = Totals::of(replicas).await;
    let undecided = run.calls.iter().filter(|call| call.is_unknown()).count() as u64;
    let lost = after.lost(hits.most) - before.lost(hits.most) + undecided * hits.most;
    let blocks = after.blocks - before.blocks;
    let take_backs = after.take_backs - before.take_backs;
    let summary = format!(
        "highest {highest}, {} calls, {blocks} blocks, {take_backs} take-backs, {lost} hits lost",
        run.calls.len()
    );
    eprintln!("{summary}");
    let record = Record { run: &run, hits, highest: highest.into(), lost, begun };
    wrong.extend(fill(replicas, rules, &record).await);
    if !wrong.is_empty() {
        wrong.push(format!("{summary}, amounts {amounts:?}"));
    }
    wrong
}

/// Changes the amounts until a time, in some processes first and then in the others.
async fn change_amounts(
    replicas: &[Replica],
    highest: u32,
    until: Instant,
    run: &RefCell<VerifyRun>,
    random: &mut Random,
    amounts: &mut Vec<(u32, Vec<usize>)>,
) {
    // Never a ban: hits refunded through one are lost.
    let candidates = [highest, highest, highest / 100, (highest / 10_000).max(1)];
    let mut order: Vec<usize> = (0..replicas.len()).collect();
    while Instant::now() < until {
        let amount = *random.one_of(&candidates);
        random.shuffle(&mut order);
        let first = 1 + random.below(replicas.len() - 1);
        for some in [&order[..first], &order[first..]] {
            amounts.push(reload(replicas, some, amount).await);
            answered(run, ANSWERS, until).await;
        }
    }
}

/// Reloads some processes with this amount.
async fn reload(replicas: &[Replica], which: &[usize], amount: u32) -> (u32, Vec<usize>) {
    join_all(which.iter().map(|number| replicas[*number].reload(amount))).await;
    (amount, which.to_vec())
}

/// The history of a run, and what processes know of hits beyond it.
struct Record<'a> {
    run: &'a VerifyRun,
    hits: TakenHits,
    highest: u64,
    lost: u64,
    begun: Instant,
}

impl Record<'_> {
    /// Returns the range of hits that must be left of the highest amount, except lost hits.
    fn unused(&self, counter: usize, rule: &Rule) -> RangeInclusive<u64> {
        let mut admitted = 0;
        let mut given_back = 0;
        for call in self.run.calls.iter().filter(|call| call.counter == counter) {
            admitted += if call.is_admitted() { call.hits } else { 0 };
            given_back += self.hits.refunded(call.action).unwrap_or_default();
        }
        let us = u64::try_from(self.begun.elapsed().as_micros()).unwrap();
        let drained = rule.drained(self.highest, us);
        let unused = (self.highest + given_back).saturating_sub(admitted).min(self.highest);
        let least = match rule.counts {
            Counts::Exactly | Counts::Admitted => unused.saturating_sub(self.lost),
            // Taking back a charge, such as a lease's block, leaves the hits that have drained
            // since: for these rules, part of a hit in total.
            Counts::Drains(_) if rule.drains_slowly() => {
                unused.saturating_sub(self.lost + drained + 1)
            }
            Counts::Drains(_) | Counts::AtLeast => 0,
        };
        // Hits refunded after they have drained may leave even fewer used than those not refunded.
        least..=(unused + drained).min(self.highest)
    }
}

/// Takes all that is left of each counter. Returns the counters for which that differs from the
/// record.
async fn fill(replicas: &[Replica], rules: &[Rule], record: &Record<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (counter, of) in record.run.counters.iter().enumerate() {
        let rule = &rules[of.rule];
        let replica = &replicas[counter % replicas.len()];
        let (key, value) = name_of(record.run, counter);
        let expected = record.unused(counter, rule);
        // Charges in one slot may still be pending their take-back after another slot's denial.
        let mut left = replica.remaining(&key, &value).await.into();
        for _ in 0..SETTLES {
            if expected.contains(&left) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            left = replica.remaining(&key, &value).await.into();
        }
        if !expected.contains(&left) {
            wrong.push(format!("{key}: {left} left, expected {expected:?}"));
        }
        if rule.counts == Counts::AtLeast || !wrong.is_empty() {
            continue;
        }
        if left > 0 && !takes_all(replica, &key, &value, left).await {
            wrong.push(format!("{key}: {left} left, and not admitted"));
        }
        let over = rule.drains_slowly() && replica.hit(&key, &value, 1).await;
        wrong.extend(over.then(|| format!("{key}: one hit more than was left")));
    }
    wrong
}

/// Takes all that is left of a counter. Retries so rarely that no process leases a part of it for
/// the next attempt.
async fn takes_all(replica: &Replica, key: &str, value: &str, left: u64) -> bool {
    for _ in 0..TRIES {
        if replica.hit(key, value, left).await {
            return true;
        }
        tokio::time::sleep(LEASE).await;
    }
    false
}

/// Sums of metrics over all processes.
#[derive(Debug)]
struct Totals {
    outstanding: u64,
    blocks: u64,
    take_backs: u64,
    lost_hits: u64,
    lost_charges: u64,
}

impl Totals {
    async fn of(replicas: &[Replica]) -> Self {
        let pages = join_all(replicas.iter().map(Replica::metrics)).await;
        let value = |page: &String, name: &str| {
            page.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
                .unwrap()
        };
        let sum = |name: &str| pages.iter().map(|page| value(page, name)).sum::<u64>();
        Self {
            outstanding: sum("tollgate_lease_hits_outstanding"),
            blocks: sum("tollgate_lease_blocks_total"),
            take_backs: sum("tollgate_take_backs_total"),
            lost_hits: sum("tollgate_lease_hits_lost_total"),
            lost_charges: sum("tollgate_take_backs_lost_total")
                + sum("tollgate_unknown_charges_total"),
        }
    }

    /// Returns the maximum number of hits that processes know to be lost.
    fn lost(&self, most_hits: u64) -> u64 {
        self.lost_hits + self.lost_charges * most_hits
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
