//! Limits, holds and permits stay exact while calls are lost, processes are killed and masters are
//! replaced: 8 processes with 64 clients each, of the workload of `verify`, by `HoldService` and by
//! entries of descriptors.
//!
//! Its checker judges their history: hits never exceed the limit, each denial has its reason, and
//! the hits that are left are those that were not charged. It does not know of take-backs that end
//! with their process, nor of lost writes. A `ttl` after the last call no permit is taken.
//!
//! A killed master has sent all its writes to its replicas first, so that none is lost. Runs that
//! are longer than usual also kill masters at once, which may admit each limit once more
//! (`docs/promise.md`). `TOLLGATE_HOLD_SECONDS` sets the time of a run, `TOLLGATE_RANDOM_SEED`
//! other faults, `TOLLGATE_REDIS` another server.

mod client;
mod masters;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::verify::check::CheckedProperty;
use tollgate::verify::history::ObservedAnswer;
use tollgate::verify::run::VerifyRun;

use self::client::{HoldClient, PATIENCE, Replica, TRIES};
use self::masters::{Loss, Masters};
use super::verified::{answered, contradictions, drive, name_of, peek, run_of, workload};
use super::{from_environment, policy, remaining};
use crate::support::policy::Policies;
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::sentinels::Sentinels;
use crate::support::rls::Client;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const PROCESSES: usize = 8;
const CLIENTS: usize = 64;
/// Requests per second of all clients together.
const RATE: u32 = 2_000;
/// The `ttl` of all limits.
const TTL: Duration = Duration::from_secs(5);
const LIMIT: u32 = 40;
/// Usual time of a run in seconds.
const SECONDS: u32 = 6;
/// Answers between two faults.
const ANSWERS: usize = 300;
/// Faults after which a master is killed.
const MASTER_EVERY: usize = 4;

/// The limits; `N` is replaced by the amount. Amounts are per year, so that no window ends except
/// on one night of the year.
const LIMITS: [(&str, &str); 12] = [
    ("held_fixed", "requests_per_unit: N, unit: year, hold: { ttl: 5s }"),
    (
        "held_sliding",
        "algorithm: sliding_window, requests_per_unit: N, unit: year, hold: { ttl: 5s, on_settle: release }",
    ),
    ("held_log", "algorithm: sliding_log, requests_per_unit: N, unit: year, hold: { ttl: 5s }"),
    (
        "held_gcra",
        "algorithm: gcra, requests_per_unit: N, unit: year, hold: { ttl: 5s, on_settle: release }",
    ),
    (
        "held_bucket",
        "algorithm: token_bucket, requests_per_unit: 1, unit: 10d, burst: N, hold: { ttl: 5s }",
    ),
    (PERMITS, "algorithm: concurrency, in_flight: N, hold: { ttl: 5s }"),
    ("fixed", "requests_per_unit: N, unit: year"),
    (
        "windows",
        "windows: [{ requests_per_unit: N0, unit: year }, { requests_per_unit: N, unit: 3650d }], charge: admitted",
    ),
    ("sliding", "algorithm: sliding_window, requests_per_unit: N, unit: year, charge: admitted"),
    ("log", "algorithm: sliding_log, requests_per_unit: N, unit: year, charge: admitted"),
    ("gcra", "algorithm: gcra, requests_per_unit: N, unit: year, charge: admitted"),
    (
        "bucket",
        "algorithm: token_bucket, requests_per_unit: 1, unit: 100d, burst: N, charge: admitted",
    ),
];
const PERMITS: &str = "permits";

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

/// Returns the policy with limits of so many hits.
fn policy_of(amount: u32) -> String {
    let limits = LIMITS.map(|(key, limit)| (key, limit.replace('N', &amount.to_string())));
    policy(&limits.each_ref().map(|(key, limit)| (*key, limit.as_str())))
}

async fn run(masters: &Masters) {
    let seed = from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default();
    let seconds = from_environment("TOLLGATE_HOLD_SECONDS").unwrap_or(SECONDS);
    let mut random = Random(seed.into());
    let policies = Arc::new(Policies::of(&policy_of(LIMIT)));
    let url = masters.url();
    let start = |_| Replica::start(Arc::clone(&policies), url.clone());
    let replicas: Arc<Vec<Replica>> = Arc::new(join_all((0..PROCESSES).map(start)).await);
    let clients = (0..PROCESSES * CLIENTS).map(|number| {
        HoldClient::new(Arc::clone(&replicas), number % PROCESSES, Random(random.next()))
    });
    let clients: Vec<HoldClient> = clients.collect();
    let length = Duration::from_secs(seconds.into());
    let workload = workload(length, RATE, PATIENCE * TRIES);
    let fail = async |run: &RefCell<VerifyRun>| {
        fail_until(Instant::now() + length, run, masters, &replicas, &mut random).await
    };
    let (mut run, (losses, faults)) =
        drive(run_of(&policy_of(LIMIT)), &workload, clients, fail).await;
    let client = Client::connect(replicas[0].service(|service| service.grpc)).await;
    let mut wrong = permits_in_the_end(&run, &replicas[0], &client).await;
    peek(&mut run, &client).await;
    let count = |is: &dyn Fn(&ObservedAnswer) -> bool| {
        run.calls.iter().filter(|call| is(&call.answer)).count()
    };
    let denied = count(&|answer| matches!(answer, ObservedAnswer::Denied { .. }));
    let ended = count(&|answer| matches!(answer, ObservedAnswer::Ended { .. }));
    let calls = run.calls.len();
    eprintln!(
        "TOLLGATE_RANDOM_SEED={seed}: {seconds} s, {faults} processes killed and writes lost {losses} times; {calls} calls, {denied} denied, {ended} ended"
    );
    assert!(denied > 0 && ended > 0, "limits are not reached, or no holds end");
    wrong.extend(judge(run, losses, matches!(masters, Masters::Cluster(_))));
    assert!(wrong.is_empty(), "TOLLGATE_RANDOM_SEED={seed}\n{}", wrong.join("\n"));
}

/// Kills processes and masters until a time. Returns the number of times that a master may have
/// lost writes, and that of processes.
async fn fail_until(
    until: Instant,
    run: &RefCell<VerifyRun>,
    masters: &Masters,
    replicas: &[Replica],
    random: &mut Random,
) -> (u32, usize) {
    let mut losses = 0;
    let mut faults = 0;
    let mut kills = 0;
    while Instant::now() < until {
        answered(run, ANSWERS, until).await;
        faults += 1;
        if faults % MASTER_EVERY == 2 && masters.have_replicas() {
            let loss = if kills % 2 == 1 { Loss::Possible } else { Loss::None };
            losses += u32::from(loss == Loss::Possible);
            masters.kill_one(loss, random).await;
            kills += 1;
        }
        random.one_of(replicas).kill_and_restart().await;
    }
    (losses, faults)
}

/// Returns what contradicts the history, as far as its faults allow.
fn judge(mut run: VerifyRun, losses: u32, has_slots: bool) -> Vec<String> {
    if losses > 0 {
        run.rules = run_of(&policy_of(LIMIT * (1 + losses))).rules;
        return contradictions(&run, &[CheckedProperty::NeverOver]);
    }
    let denied_by_other =
        run.calls.iter_mut().filter(|call| call.answer == ObservedAnswer::DeniedByOther);
    for call in denied_by_other.filter(|_| has_slots) {
        // The process that would take its charge back may have been killed.
        call.answer = ObservedAnswer::Failed { error: "denied by another slot".to_owned() };
    }
    let mut properties = CheckedProperty::ALL.to_vec();
    properties.retain(|property| *property != CheckedProperty::AnsweredInTime);
    contradictions(&run, &properties)
}

/// Waits until no permit is taken, and returns those that are listed nevertheless.
async fn permits_in_the_end(run: &VerifyRun, replica: &Replica, client: &Client) -> Vec<String> {
    let web = Web::new(replica.service(|service| service.admin));
    let names = (0..run.counters.len()).map(|counter| name_of(run, counter));
    let mut wrong = Vec::new();
    for (key, value) in names.filter(|(key, _)| key == PERMITS) {
        let free = || remaining(client, &key, &value);
        becomes("no permit is taken", TTL + TEST_TIMEOUT, free, |free| *free == LIMIT).await;
        let view = format!("/api/v1/counter?domain=test&descriptor={key}={value}");
        let view: serde_json::Value = serde_json::from_str(&web.get(&view).await.body).unwrap();
        if view["held"]["hits"].as_u64().unwrap_or_default() > 0 {
            wrong.push(format!("permits are listed: {view}"));
        }
    }
    wrong
}
