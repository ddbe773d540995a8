//! Holds and permits stay exact while calls are lost, processes are killed and masters are
//! replaced: 8 processes with 64 clients each, which reserve, commit, settle and cancel at random,
//! by entries of descriptors and by `HoldService`.
//!
//! The clients' own records alone must show, for each counter:
//! - At no time do admitted hits less those given back exceed the limit, nor permits `in_flight`.
//! - In the end, the remaining hits follow from the records, except hits of calls without an
//!   answer.
//! - A `ttl` after the last call no permit is taken.
//!
//! A killed master has sent all its writes to its replicas first, so that none is lost. Runs that
//! are longer than usual also kill masters at once, which may admit each limit once more
//! (`docs/promise.md`). `TOLLGATE_HOLD_SECONDS` sets the time of a run, `TOLLGATE_RANDOM_SEED`
//! other random numbers, `TOLLGATE_REDIS` another server.

mod clients;
mod ledger;
mod masters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinSet;

use self::clients::{Replica, hold_until};
use self::ledger::Ledger;
use self::masters::{Loss, Masters};
use super::{from_environment, policy, remaining};
use crate::support::policy::Policies;
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::sentinels::Sentinels;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const PROCESSES: usize = 8;
const CLIENTS: usize = 64;
/// The `ttl` of all limits.
const TTL: Duration = Duration::from_secs(5);
const LIMIT: u32 = 200;
const IN_FLIGHT: u32 = 40;
/// Usual time of a run in seconds.
const SECONDS: u32 = 6;
/// Answers between two faults.
const ANSWERS: u64 = 300;
/// Faults after which a master is killed.
const MASTER_EVERY: usize = 4;

/// A limit of the policy.
struct Rule {
    key: &'static str,
    limit: &'static str,
    /// Set if a settle gives the hits back.
    releases: bool,
    /// Set if exactly the unused hits are left in the end. Logs and rates give back less if other
    /// charges came in between.
    is_exact: bool,
}

/// Amounts are per year, so that no window ends except on one night of the year.
const RULES: [Rule; 6] = [
    Rule {
        key: "fixed",
        limit: "requests_per_unit: 200, unit: year, hold: { ttl: 5s }",
        releases: false,
        is_exact: true,
    },
    Rule {
        key: "sliding",
        limit: "algorithm: sliding_window, requests_per_unit: 200, unit: year, hold: { ttl: 5s, on_settle: release }",
        releases: true,
        is_exact: true,
    },
    Rule {
        key: "log",
        limit: "algorithm: sliding_log, requests_per_unit: 200, unit: year, hold: { ttl: 5s }",
        releases: false,
        is_exact: false,
    },
    Rule {
        key: "gcra",
        limit: "algorithm: gcra, requests_per_unit: 200, unit: year, hold: { ttl: 5s, on_settle: release }",
        releases: true,
        is_exact: false,
    },
    Rule {
        key: "bucket",
        limit: "algorithm: token_bucket, requests_per_unit: 1, unit: 10d, burst: 200, hold: { ttl: 5s }",
        releases: false,
        is_exact: false,
    },
    Rule {
        key: "permits",
        limit: "algorithm: concurrency, in_flight: 40, hold: { ttl: 5s }",
        releases: true,
        is_exact: true,
    },
];
/// Index of the rule that limits permits.
const PERMITS: usize = RULES.len() - 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_on_one_server_survive_killed_processes() {
    run(&Masters::One(Redis::start().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_masters_that_sentinels_replace() {
    run(&Masters::Sentinels(Sentinels::start().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_masters_that_a_cluster_replaces() {
    let layout = Layout { needs_all_slots: false, ..Layout::default() };
    run(&Masters::Cluster(Cluster::start_as(layout).await)).await;
}

async fn run(masters: &Masters) {
    let seed = from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default();
    let seconds = from_environment("TOLLGATE_HOLD_SECONDS").unwrap_or(SECONDS);
    let mut random = Random(seed.into());
    let policies = Arc::new(Policies::of(&policy(&RULES.map(|rule| (rule.key, rule.limit)))));
    let url = masters.url();
    let start = |_| Replica::start(Arc::clone(&policies), url.clone());
    let replicas: Arc<Vec<Replica>> = Arc::new(join_all((0..PROCESSES).map(start)).await);
    let ledger = Arc::new(Ledger::default());
    let ended = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for number in 0..PROCESSES * CLIENTS {
        let random = Random(random.next());
        clients.spawn(hold_until(
            Arc::clone(&ended),
            Arc::clone(&replicas),
            number,
            Arc::clone(&ledger),
            random,
        ));
    }
    let begun = Instant::now();
    let length = Duration::from_secs(seconds.into());
    let mut faults = 0;
    let mut kills = 0;
    while begun.elapsed() < length {
        let enough = ledger.answers() + ANSWERS;
        let answers = || std::future::ready(ledger.answers());
        becomes("clients continue", TEST_TIMEOUT, answers, |answers| *answers >= enough).await;
        faults += 1;
        if faults % MASTER_EVERY == 2 && masters.have_replicas() {
            let loss = if kills % 2 == 1 { Loss::Possible } else { Loss::None };
            if loss == Loss::Possible {
                ledger.lose_writes();
            }
            masters.kill_one(loss, &mut random).await;
            kills += 1;
        }
        random.one_of(&replicas).kill_and_restart().await;
        ledger.next_counters();
    }
    ended.store(true, Ordering::Relaxed);
    clients.join_all().await;
    eprintln!(
        "TOLLGATE_RANDOM_SEED={seed}: {seconds} s, {faults} processes and {kills} masters killed, {ledger}"
    );
    let mut wrong = ledger.over();
    wrong.extend(in_the_end(&replicas[0], &ledger).await);
    assert!(wrong.is_empty(), "TOLLGATE_RANDOM_SEED={seed}\n{}", wrong.join("\n"));
}

/// Returns the remaining hits of each counter if they contradict the record.
async fn in_the_end(replica: &Replica, ledger: &Ledger) -> Vec<String> {
    let client = replica.client();
    let mut wrong = Vec::new();
    let free = || remaining(&client, RULES[PERMITS].key, "0");
    becomes("no permit is taken", TTL + TEST_TIMEOUT, free, |free| *free == IN_FLIGHT).await;
    let permits = "/api/v1/counter?domain=test&descriptor=permits=0";
    let view = Web::new(replica.admin()).get(permits).await.body;
    let view: serde_json::Value = serde_json::from_str(&view).unwrap();
    if view["held"]["hits"].as_u64().unwrap_or_default() > 0 {
        wrong.push(format!("permits are listed: {view}"));
    }
    for (rule, value) in ledger.used_counters() {
        let expected = ledger.left(rule, value);
        let left = remaining(&client, RULES[rule].key, &value.to_string()).await;
        if !expected.contains(&i64::from(left)) {
            let key = RULES[rule].key;
            wrong.push(format!("{key}={value}: {left} left, expected {expected:?}"));
        }
    }
    wrong
}
