//! Reserves of `HoldService` that are sent until they are decided, each time by way of any process,
//! while servers, connections and processes fail: each is charged once at all of its counters, or
//! at none.
//!
//! A world of its own: its holds outlive it, and its faults lose no write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::algorithm::hold::HoldList;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::plan::{Fault, Plan};
use super::process::{SimProcess, id_of};
use super::rules::{Counting, SimRule};
use super::run::{Extras, RunningWorld, in_paused_time};
use super::server::fleet::{Arrangement, Moment};
use crate::random::Random;

const COUNTINGS: [Counting; 5] =
    [Counting::Fixed, Counting::Sliding, Counting::Log, Counting::Gcra, Counting::Permits];
const TTL_US: u64 = 3_600_000_000;
/// Time after which all is connected, and all take-backs have ended.
const QUIET_AFTER: Duration = Duration::from_secs(4);
/// Attempts after which a reserve should have been decided.
const MAX_ATTEMPTS: u64 = 1_000;

/// A reserve that is sent until it is decided.
#[derive(Clone, Debug)]
pub struct RetriedReserve {
    pub id: u32,
    pub hits: u32,
    /// Different ones.
    pub counters: Vec<usize>,
    at: Moment,
}

/// A reserve with its decision.
#[derive(Debug)]
struct DecidedReserve {
    reserve: RetriedReserve,
    /// `None`: never decided.
    code: Option<Result<Code, tonic::Code>>,
    attempts: u64,
    /// `true` if a charge without a reply may be the rest of a denied reserve.
    may_leave: bool,
}

/// Properties that the world of a seed violates, and how often each thing happened.
#[derive(Debug, Default)]
pub struct RetryReport {
    pub broken: Vec<String>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs the world of a seed, and checks it.
pub fn run_retries(seed: u64) -> RetryReport {
    let mut plan = Plan::of(seed);
    let mut random = Random(seed ^ 0x5eed);
    if random.percent(70) {
        plan.arrangement = Arrangement::Cluster;
        plan.groups = plan.groups.max(2);
    }
    plan.rules = (0..3)
        .map(|_| {
            let amount = 4 + random.below(40) as u32;
            SimRule::holding(*random.one_of(&COUNTINGS), amount, TTL_US)
        })
        .collect();
    plan.counters = (0..6).map(|number| number % plan.rules.len()).collect();
    plan.calls.clear();
    plan.loans = None;
    plan.faults.retain(|(_, fault)| loses_nothing(fault));
    let reserves = draw_reserves(&plan, &mut random);
    if random.percent(50) {
        slow_down(&mut plan, &reserves, &mut random);
    }
    in_paused_time(live(plan, reserves))
}

fn draw_reserves(plan: &Plan, random: &mut Random) -> Vec<RetriedReserve> {
    let draw = |id: usize| {
        let mut counters: Vec<usize> = (0..plan.counters.len()).collect();
        random.shuffle(&mut counters);
        counters.truncate(1 + random.below(3));
        let at = random.below(plan.end as usize) as u64;
        RetriedReserve { id: id as u32, hits: 1 + random.below(4) as u32, counters, at }
    };
    (0..20 + plan.seed as usize % 60).map(draw).collect()
}

/// Slows connections down while reserves are under way, so that data of a first attempt
/// arrives after a retry.
fn slow_down(plan: &mut Plan, reserves: &[RetriedReserve], random: &mut Random) {
    plan.most_delay_ms = 1 + random.below(15);
    for reserve in reserves.iter().filter(|reserve| reserve.id % 2 == 0) {
        let at = reserve.at + 1_000 * random.below(20) as u64;
        let slow = Fault::Slow {
            process: random.below(plan.processes),
            server: random.below(2 * plan.groups),
            us: 1_000 * (5 + random.below(60)) as u64,
            by_us: 1_000 * (5 + random.below(40)) as u64,
        };
        plan.faults.push((at, slow));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

fn loses_nothing(fault: &Fault) -> bool {
    is_brief(fault)
        || matches!(
            fault,
            Fault::Silence { .. }
                | Fault::Slow { .. }
                | Fault::Hang { .. }
                | Fault::Busy { .. }
                | Fault::Loading { .. }
                | Fault::Crash { .. }
                | Fault::Stop { .. }
        )
}

/// Returns `true` for a fault after which nothing arrives that was sent long before.
fn is_brief(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::CutAll { .. } | Fault::CutOne { .. } | Fault::MoveSlots { .. } | Fault::Flush { .. }
    )
}

async fn live(plan: Plan, reserves: Vec<RetriedReserve>) -> RetryReport {
    let world = RunningWorld::begin(plan, Extras::default()).await;
    let begun = world.shared.now();
    let mut callers = JoinSet::new();
    for reserve in reserves {
        let random = Random(world.plan.seed ^ u64::from(reserve.id) << 32);
        callers.spawn(reserve_until_decided(Arc::clone(&world), begun, reserve, random));
    }
    let failing = tokio::spawn(Arc::clone(&world).fail_all(begun));
    world.shared.sleep_until(begun + world.plan.end).await;
    failing.await.unwrap();
    world.heal();
    let mut decided = Vec::new();
    while let Some(one) = callers.join_next().await {
        decided.push(one.unwrap());
    }
    sleep(QUIET_AFTER).await;
    check(&world, &decided).await
}

async fn reserve_until_decided(
    world: Arc<RunningWorld>,
    begun: Moment,
    reserve: RetriedReserve,
    mut random: Random,
) -> DecidedReserve {
    world.shared.sleep_until(begun + reserve.at).await;
    for attempts in 1..MAX_ATTEMPTS {
        let number = random.below(world.plan.processes);
        let process = world.processes.lock()[number].0.clone();
        let worker = random.below(world.plan.workers);
        let timeout = Duration::from_millis(*random.one_of(&[10, 20, 50]));
        if let Some(process) = process {
            let unknown = || process.metrics.unknown_charges.get();
            let before = unknown();
            let answer = process.reserve(&world.plan, worker, &reserve, timeout).await;
            let is_heard =
                !world.crashed.lock().iter().any(|crashed| Arc::ptr_eq(crashed, &process));
            if is_heard && answer != Err(tonic::Code::Unavailable) {
                let may_leave = unknown() > before;
                return DecidedReserve { reserve, code: Some(answer), attempts, may_leave };
            }
        }
        let pause = *random.one_of(&[0, 5, 80]);
        sleep(Duration::from_millis(random.below(pause + 1) as u64)).await;
    }
    DecidedReserve { reserve, code: None, attempts: MAX_ATTEMPTS, may_leave: true }
}

async fn check(world: &RunningWorld, decided: &[DecidedReserve]) -> RetryReport {
    let mut report = RetryReport::default();
    let process = world.processes.lock()[0].0.clone().unwrap();
    let mut held = Vec::new();
    for counter in 0..world.plan.counters.len() {
        let list = process.usage(&world.plan, counter).await;
        held.push(list.unwrap_or_default().1);
    }
    let may_leave = may_leave(world);
    for one in decided {
        let hits: Vec<u64> =
            one.reserve.counters.iter().map(|counter| hits_of(&held[*counter], one)).collect();
        let all = hits.iter().all(|hits| *hits == u64::from(one.reserve.hits));
        let none = hits.iter().all(|hits| *hits == 0);
        let name = match (&one.code, one.attempts) {
            (Some(Ok(Code::Ok)), 1) if all => "admitted",
            (Some(Ok(Code::Ok)), _) if all => "admitted by a retry",
            (Some(Ok(Code::OverLimit)), 1) if none => "denied",
            (Some(Ok(Code::OverLimit)), _) if none => "denied by a retry",
            (Some(Ok(Code::OverLimit)), _) if may_leave || one.may_leave => "left",
            _ => {
                report.broken.push(format!("{one:?} holds {hits:?}"));
                "broken"
            }
        };
        *report.counts.entry(name).or_default() += 1;
    }
    let counters = 0..world.plan.counters.len();
    for counter in counters.filter(|counter| !may_leave && *counter < held.len()) {
        report.broken.extend(miscounted(world, &process, counter, &held[counter]).await);
    }
    report
}

/// Returns `true` if something may have been charged, or not been taken back, after its caller was
/// answered.
fn may_leave(world: &RunningWorld) -> bool {
    let processes = world.processes.lock();
    let mut alive = processes.iter().filter_map(|(process, _)| process.as_ref());
    world.plan.faults.iter().any(|(_, fault)| !is_brief(fault))
        || alive.any(|process| process.metrics.take_backs_lost.get() > 0)
}

fn hits_of(held: &HoldList, one: &DecidedReserve) -> u64 {
    let id = id_of(one.reserve.id);
    let of_id = held.holds.iter().filter(|permit| *permit.id == *id.as_bytes());
    of_id.map(|permit| u64::from(permit.hits)).sum()
}

/// Returns the difference between the hits of a counter and those of its holds.
async fn miscounted(
    world: &RunningWorld,
    process: &SimProcess,
    counter: usize,
    held: &HoldList,
) -> Option<String> {
    // gcra counts in time: its hits drain.
    if world.plan.rule_of(counter).counting == Counting::Gcra {
        return None;
    }
    let sum = held.holds.iter().map(|permit| u64::from(permit.hits)).sum::<u64>();
    let used = process.used(&world.plan, counter).await;
    (used != Some(sum)).then(|| format!("counter {counter}: {used:?} used, {sum} held"))
}
