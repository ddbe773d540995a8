//! A world as it runs: processes, calls and faults, until all is quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::history::{CallRecord, Chronicle, Ending};
use super::hold_steps::{HeldList, list_holds};
use super::holders::SimHolder;
use super::plan::{Part, PartHits, Plan, PlannedCall};
use super::process::SimProcess;
use super::proxies::ProxyLink;
use super::server::fleet::{Fleet, LostWrites, Moment, RecordedScript};
use super::shared::SharedWorld;

/// Time after the last fault after which everything is decided.
const HEALED_WITHIN: Duration = Duration::from_secs(2);
/// Time after which leases have ended, and take-backs are given up.
const QUIET_AFTER: Duration = Duration::from_secs(4);

/// All that is known of a world that has run.
pub struct Report {
    pub plan: Plan,
    pub chronicle: Chronicle,
    /// Calls after the last fault healed.
    pub probes: Vec<CallRecord>,
    /// Open holds of each counter that keeps them, after the last fault healed.
    pub held: Vec<HeldList>,
    /// Hits that each counter counts in the end, and when that is.
    pub used: Vec<Option<u64>>,
    pub ended: Moment,
    pub losses: Vec<LostWrites>,
    /// Charges that could not be taken back, leased hits that were lost, and checks that processes
    /// decided alone.
    pub take_backs_lost: u64,
    pub leases_lost: u64,
    /// Lent hits that may be charged although no holder has them.
    pub loans_lost: u64,
    /// Hits of proxies that were given back, that may stay charged although none has them, and that
    /// were charged after they had been admitted.
    pub quotas: QuotaCounts,
    /// Charges without a reply.
    pub unknown_charges: u64,
    pub decided_alone: u64,
    /// Number of processes that crashed.
    pub crashes: u64,
    /// Number of times that each thing happened.
    pub counts: BTreeMap<String, u64>,
    /// Calls of scripts, if they were recorded.
    pub scripts: Vec<RecordedScript>,
}

/// Counts of hits of proxies.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuotaCounts {
    pub returned: u64,
    pub stranded: u64,
    pub afterwards: u64,
}

impl QuotaCounts {
    fn of<'a>(processes: impl Iterator<Item = &'a Arc<SimProcess>>) -> Self {
        let mut counts = Self::default();
        for process in processes {
            let quotas = &process.all_metrics.loans.quotas;
            counts.returned += quotas.returned.get();
            counts.stranded += quotas.stranded.get();
            counts.afterwards += quotas.overrun.get() + quotas.first.get();
        }
        counts
    }
}

/// A world that runs.
pub(super) struct RunningWorld {
    pub(super) plan: Plan,
    pub(super) shared: Arc<SharedWorld>,
    /// The processes, and the version of the policy that each has.
    pub(super) processes: Mutex<Vec<(Option<Arc<SimProcess>>, usize)>>,
    /// Processes that crashed.
    pub(super) crashed: Mutex<Vec<Arc<SimProcess>>>,
    /// The holders of loans.
    pub(super) holders: Vec<SimHolder>,
    /// The proxies with RLQS.
    pub(super) proxies: Vec<ProxyLink>,
    /// Hits of admitted calls that may be given back, by counter.
    refundable: Mutex<BTreeMap<usize, Vec<u32>>>,
    /// IDs whose reserve was admitted.
    admitted: Mutex<BTreeSet<u32>>,
}

/// Runs the world of a plan to its end, on this thread.
pub fn run(plan: &Plan) -> Report {
    run_with(plan, Extras::default())
}

/// Additions to a run that do not change it.
#[derive(Clone, Copy, Default)]
pub struct Extras {
    /// Records the calls of scripts.
    pub records_scripts: bool,
    /// Shows the world as it runs.
    pub watches: bool,
}

/// Runs the world of a plan to its end, with additions.
pub fn run_with(plan: &Plan, extras: Extras) -> Report {
    in_paused_time(live(plan.clone(), extras))
}

/// Runs a world to its end, in time that passes while all wait.
pub(super) fn in_paused_time<T>(world: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let report = runtime.block_on(world);
    runtime.shutdown_background();
    report
}

async fn live(plan: Plan, extras: Extras) -> Report {
    let world = RunningWorld::begin(plan, extras).await;
    if extras.watches {
        tokio::spawn(super::watch::watch(Arc::clone(&world.shared), world.plan.clone()));
    }
    let begun = world.shared.now();
    let calling = tokio::spawn(Arc::clone(&world).call_all(begun));
    let failing = tokio::spawn(Arc::clone(&world).fail_all(begun));
    let holding = tokio::spawn(Arc::clone(&world).hold(begun));
    let proxying = tokio::spawn(Arc::clone(&world).run_proxies(begun));
    world.shared.sleep_until(begun + world.plan.end).await;
    failing.await.unwrap();
    world.heal();
    calling.await.unwrap();
    holding.await.unwrap();
    proxying.await.unwrap();
    sleep(HEALED_WITHIN).await;
    let probes = world.probe().await;
    let process = world.processes.lock()[0].0.clone().unwrap();
    let held = list_holds(&process, &world.plan, &world.shared).await;
    sleep(QUIET_AFTER.max(world.plan.holds_end_within())).await;
    world.finish(probes, held).await
}

impl RunningWorld {
    /// Starts the servers and processes.
    pub(super) async fn begin(plan: Plan, extras: Extras) -> Arc<Self> {
        let mut fleet = Fleet::new(plan.arrangement, plan.groups);
        fleet.scripts = extras.records_scripts.then(Vec::new);
        let shared = SharedWorld::new(fleet, plan.most_delay_ms, plan.seed);
        let holders = plan.loans.as_ref().map_or(0, |loans| loans.rates.len());
        let proxies = plan.proxies.as_ref().map_or(0, |proxies| proxies.count);
        let world = Arc::new(Self {
            holders: (0..holders).map(|_| SimHolder::new(shared.begun.into_std())).collect(),
            proxies: (0..proxies).map(|_| ProxyLink::default()).collect(),
            processes: Mutex::default(),
            crashed: Mutex::default(),
            refundable: Mutex::default(),
            admitted: Mutex::default(),
            plan,
            shared,
        });
        for number in 0..world.plan.processes {
            let process = SimProcess::start(&world.shared, &world.plan, number);
            process.install(&world.plan, 0);
            process.connected().await;
            world.processes.lock().push((Some(Arc::new(process)), 0));
        }
        world
    }

    async fn call_all(self: Arc<Self>, begun: Moment) {
        let mut calls = tokio::task::JoinSet::new();
        for call in self.plan.calls.clone() {
            self.shared.sleep_until(begun + call.at).await;
            calls.spawn(Arc::clone(&self).call(call));
        }
        while let Some(called) = calls.join_next().await {
            called.unwrap();
        }
    }

    async fn call(self: Arc<Self>, mut call: PlannedCall) {
        self.choose_refunds(&mut call);
        let Some(process) = self.processes.lock()[call.process].0.clone() else { return };
        if call.parts.is_empty() {
            return;
        }
        let begun = self.shared.now();
        let ending = process.call(&self.plan, &call).await;
        if self.crashed.lock().iter().any(|crashed| Arc::ptr_eq(crashed, &process)) {
            // No client gets the answer of a process that has ended.
            let record =
                CallRecord { call, begun, ended: self.shared.now(), ending: Ending::Cancelled };
            self.shared.chronicle.lock().record(record);
            return;
        }
        self.learn_refundable(&call, &ending);
        let record = CallRecord { call, begun, ended: self.shared.now(), ending };
        self.shared.chronicle.lock().record(record);
    }

    /// Replaces refunds by those of hits that were admitted, and drops ends of holds that were not.
    fn choose_refunds(&self, call: &mut PlannedCall) {
        let mut refundable = self.refundable.lock();
        call.parts.retain_mut(|part| {
            if let PartHits::End { id, if_admitted: true, .. } = part.hits {
                return self.admitted.lock().contains(&id);
            }
            let PartHits::Refund(hits) = &mut part.hits else { return true };
            let admitted = refundable.entry(part.counter).or_default().pop();
            *hits = admitted.unwrap_or_default();
            admitted.is_some()
        });
    }

    fn learn_refundable(&self, call: &PlannedCall, ending: &Ending) {
        let Ending::Decided(false, statuses) = ending else { return };
        for (Part { counter, hits }, status) in call.parts.iter().zip(statuses) {
            if let PartHits::Charge(hits) = hits
                && status.standing == "allowed"
            {
                self.refundable.lock().entry(*counter).or_default().push(*hits);
            }
            if let PartHits::Reserve { id, .. } = hits {
                self.admitted.lock().insert(*id);
            }
        }
    }

    pub(super) async fn fail_all(self: Arc<Self>, begun: Moment) {
        for (at, fault) in self.plan.faults.clone() {
            self.shared.sleep_until(begun + at).await;
            let now = self.shared.now();
            let mut chronicle = self.shared.chronicle.lock();
            chronicle.note(now, &format!("FAULT {fault:?}"));
            chronicle.faults.push((now, fault.clone()));
            drop(chronicle);
            let name = format!("{fault:?}");
            let name = name.split([' ', '{']).next().unwrap_or_default();
            self.shared.fleet.lock().count(&format!("fault {name}"));
            self.inject(&fault, begun + self.plan.end);
        }
    }

    /// Starts a process that crashed, unless it runs.
    pub(super) fn start(&self, number: usize) {
        let mut processes = self.processes.lock();
        let (process, version) = &mut processes[number];
        if process.is_none() {
            let started = SimProcess::start(&self.shared, &self.plan, number);
            started.install(&self.plan, *version);
            *process = Some(Arc::new(started));
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        let now = self.shared.now();
        self.shared.fleet.lock().heal(now);
        (0..self.plan.processes).for_each(|number| self.start(number));
        self.shared.chronicle.lock().note(now, "healed");
    }

    /// Calls every process about every counter, without charging it.
    async fn probe(self: &Arc<Self>) -> Vec<CallRecord> {
        let mut probes = Vec::new();
        for process in 0..self.plan.processes {
            for counter in 0..self.plan.counters.len() {
                let call = PlannedCall {
                    number: usize::MAX,
                    at: 0,
                    process,
                    worker: counter % self.plan.workers,
                    parts: vec![Part { counter, hits: PartHits::Peek }],
                    timeout_us: 100_000,
                    cancel_after_us: None,
                };
                let begun = self.shared.now();
                let process = self.processes.lock()[process].0.clone().unwrap();
                let ending = process.call(&self.plan, &call).await;
                probes.push(CallRecord { call, begun, ended: self.shared.now(), ending });
            }
        }
        probes
    }

    async fn finish(&self, probes: Vec<CallRecord>, held: Vec<HeldList>) -> Report {
        let alive: Vec<Arc<SimProcess>> =
            self.processes.lock().iter().filter_map(|(process, _)| process.clone()).collect();
        for process in &alive {
            process.settled().await;
            process.install(&self.plan, 0);
        }
        let mut used = Vec::new();
        for counter in 0..self.plan.counters.len() {
            used.push(alive[0].used(&self.plan, counter).await);
        }
        let ended = self.shared.now();
        let crashed = self.crashed.lock();
        let all = || alive.iter().chain(crashed.iter()).map(|process| &process.metrics);
        let mut chronicle = std::mem::take(&mut *self.shared.chronicle.lock());
        chronicle.note(ended, &format!("used {used:?}"));
        let mut fleet = self.shared.fleet.lock();
        Report {
            plan: self.plan.clone(),
            chronicle,
            probes,
            held,
            used,
            ended,
            losses: fleet.losses.clone(),
            take_backs_lost: all().map(|metrics| metrics.take_backs_lost.get()).sum(),
            unknown_charges: all().map(|metrics| metrics.unknown_charges.get()).sum(),
            loans_lost: all().map(|metrics| metrics.loans.lost.get()).sum(),
            quotas: QuotaCounts::of(alive.iter().chain(crashed.iter())),
            leases_lost: all().map(|metrics| metrics.leases.lost.get()).sum(),
            decided_alone: all().map(|metrics| metrics.local_decisions.get()).sum(),
            crashes: crashed.len() as u64,
            counts: fleet.counts.clone(),
            scripts: fleet.scripts.take().unwrap_or_default(),
        }
    }
}
