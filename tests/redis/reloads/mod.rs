//! Never more than the highest amount in force, while reloads raise and lower the amounts a
//! hundredfold: 8 processes, 64 clients of each, all algorithms at once, with leases, refunds, and
//! requests of several descriptors.
//!
//! Two facts are checked for each counter, by the clients' own record alone:
//! - At no time do hits admitted less hits refunded exceed the highest amount in force; for gcra
//!   and token_bucket, its burst and the hits that its rate drains meanwhile.
//! - Once all leases have ended, exactly the rest of that amount is admitted, except hits that
//!   processes count as lost.
//!
//! `TOLLGATE_RELOAD_RUNS` sets the number of runs, `TOLLGATE_RANDOM_SEED` other random numbers,
//! `TOLLGATE_PREVIOUS` the binary of an earlier release for every other pair of processes.

mod clients;
mod ledger;
mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinSet;

use self::clients::{CLIENTS, Replica, send_until};
use self::ledger::Ledger;
use self::rules::{Counts, LEASE, RULES};
use super::cluster;
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

const REPLICAS: usize = 8;
/// Candidates for the highest amount of a run.
const HIGHEST: [u32; 5] = [10_000, 10_000, 10_000, 1_000, 100];
/// Number of changes of the amounts in a run.
const CHANGES: usize = 6;
/// Maximum number of checks for whether hits in flight have been returned.
const SETTLES: usize = 100;
/// Attempts to take all that is left, one lease apart.
const TRIES: usize = 5;
/// Answers between two reloads.
const ANSWERS: u64 = 100;

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
    let replicas =
        Arc::new(join_all((0..replicas).map(|number| Replica::start(store, number))).await);
    let mut wrong = Vec::new();
    for run in 0..from_environment("TOLLGATE_RELOAD_RUNS").unwrap_or(1) {
        let begun = Instant::now();
        let seed = seed.wrapping_add(run);
        let outcome = one_run(&replicas, seed).await;
        let (Ok(summary) | Err(summary)) = &outcome;
        eprintln!(
            "TOLLGATE_RANDOM_SEED={seed}: {}, {:?}",
            summary.lines().next().unwrap(),
            begun.elapsed()
        );
        wrong.extend(outcome.err().map(|wrong| format!("TOLLGATE_RANDOM_SEED={seed}: {wrong}")));
    }
    assert!(wrong.is_empty(), "{} runs:\n{}", wrong.len(), wrong.join("\n"));
    Totals::of(&replicas).await
}

/// Executes one run. Returns its summary, or its failures.
async fn one_run(replicas: &Arc<Vec<Replica>>, seed: u64) -> Result<String, String> {
    let mut random = Random(seed);
    let highest = *random.one_of(&HIGHEST);
    let before = Totals::of(replicas).await;
    let ledger = Arc::new(Ledger::new(&format!("run {seed}"), highest));
    let all: Vec<usize> = (0..replicas.len()).collect();
    let mut history = vec![reload(replicas, &all, highest).await];
    let ended = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS * REPLICAS {
        let random = Random(random.next());
        clients.spawn(send_until(
            Arc::clone(&ended),
            Arc::clone(replicas),
            client,
            Arc::clone(&ledger),
            random,
        ));
    }
    change_amounts(replicas, &ledger, &mut random, &mut history).await;
    ended.store(true, Ordering::Relaxed);
    clients.join_all().await;
    history.push(reload(replicas, &all, highest).await);
    let summary = format!("highest {highest}, {} answers, {ledger}", ledger.answers());
    let mut wrong = ledger.over();

    tokio::time::sleep(LEASE).await;
    becomes(
        "no lease is held",
        TEST_TIMEOUT,
        || Totals::of(replicas),
        |totals| totals.outstanding == 0,
    )
    .await;
    let most_hits = ledger.most_hits().into();
    let after = Totals::of(replicas).await;
    let lost = after.lost(most_hits) - before.lost(most_hits) + ledger.undecided();
    let blocks = after.blocks - before.blocks;
    let take_backs = after.take_backs - before.take_backs;
    let summary = format!("{summary}, {blocks} blocks, {take_backs} take-backs, {lost} hits lost");
    wrong.extend(fill(replicas, &ledger, lost).await);
    if wrong.is_empty() {
        return Ok(summary);
    }
    Err(format!("{summary}\n{}\namounts {history:?}", wrong.join("\n")))
}

/// Changes the amounts several times, in some processes first and then in the others.
async fn change_amounts(
    replicas: &[Replica],
    ledger: &Ledger,
    random: &mut Random,
    history: &mut Vec<(u32, Vec<usize>)>,
) {
    let highest = ledger.highest();
    // Never a ban: hits refunded through one are lost.
    let amounts = [highest, highest, highest / 100, (highest / 10_000).max(1)];
    let mut order: Vec<usize> = (0..replicas.len()).collect();
    for _ in 0..CHANGES {
        let amount = *random.one_of(&amounts);
        random.shuffle(&mut order);
        let first = 1 + random.below(replicas.len() - 1);
        for some in [&order[..first], &order[first..]] {
            ledger.set_hot(random.below(RULES.len()));
            history.push(reload(replicas, some, amount).await);
            let enough = ledger.answers() + ANSWERS;
            let answers = || std::future::ready(ledger.answers());
            becomes("clients continue", TEST_TIMEOUT, answers, |answers| *answers >= enough).await;
        }
    }
}

/// Reloads some processes with this amount.
async fn reload(replicas: &[Replica], which: &[usize], amount: u32) -> (u32, Vec<usize>) {
    join_all(which.iter().map(|number| replicas[*number].reload(amount))).await;
    (amount, which.to_vec())
}

/// Takes all that is left of each counter. Returns the counters for which that differs from the
/// record.
async fn fill(replicas: &[Replica], ledger: &Ledger, lost: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, rule) in RULES.iter().enumerate() {
        let replica = &replicas[number % replicas.len()];
        let expected = ledger.unused(number, lost);
        // Charges in one slot may still be pending their take-back after another slot's denial.
        let mut left = replica.remaining(rule.key, ledger.value()).await;
        for _ in 0..SETTLES {
            if expected.contains(&left.into()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            left = replica.remaining(rule.key, ledger.value()).await;
        }
        if !expected.contains(&left.into()) {
            wrong.push(format!(
                "{}: {left} left, expected {expected:?}; {}",
                rule.key,
                ledger.line(number)
            ));
        }
        if rule.counts == Counts::AtLeast || !wrong.is_empty() {
            continue;
        }
        if left > 0 && !takes_all(replica, rule.key, ledger.value(), left).await {
            wrong.push(format!("{}: {left} left, and not admitted", rule.key));
        }
        let over = rule.drains_slowly() && replica.hit(rule.key, ledger.value(), 1).await;
        wrong.extend(over.then(|| format!("{}: one hit more than was left", rule.key)));
    }
    wrong
}

/// Takes all that is left of a counter. Retries so rarely that no process leases a part of it for
/// the next attempt.
async fn takes_all(replica: &Replica, key: &str, value: &str, left: u32) -> bool {
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
