//! A long run of eight Envoys on many counters: at steady demand, after its shifts, and while
//! processes die and connections are cut.
//!
//! Runs for `TOLLGATE_RLQS_WINDOWS` windows of 30 s with faults (1): in each, an Envoy is killed,
//! another one is cut off, and, if the store outlives services, one of the two replicas is killed,
//! whose Envoys go to the other one. Before them are 4 windows at steady demand and 3 after shifts.
//! `TOLLGATE_RLQS_COUNTERS` counters (10) have `TOLLGATE_RLQS_LIMIT` hits (300) in
//! `TOLLGATE_RLQS_STORE`: `memory`, `redis` or `cluster`. `TOLLGATE_RLQS_PROGRAM` is the service,
//! such as one of a release build.
//!
//! ```text
//! TOLLGATE_RLQS_WINDOWS=20 cargo test --locked --test long long_run -- --nocapture
//! ```

mod whole_limit;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio::time::sleep;

use crate::support::built;
use crate::support::fleet::{
    Answered, EnvoyLoad, LoadedEnvoy, WindowRequests, by_window, in_window, next_window, policy,
    window,
};
use crate::support::policy::Policies;
use crate::support::quota_wire::{Passing, QuotaWire};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::tollgate::{Tollgate, command_of};
use crate::support::web::Web;

/// Requests of each Envoy in 10 s for each counter of 300 hits, ten to one: one and a half times
/// the limit.
pub(super) const DEMAND: [u32; 8] = [50, 50, 10, 10, 10, 8, 7, 5];
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// Windows at steady demand, and shifts of it.
const STEADY: usize = 4;
const SHIFTS: usize = 3;
/// Seconds of a window at which the demand shifts: two reports before the next one.
const SHIFT_AT: u64 = 20;
/// Seconds of a window at which faults happen, and the time for which an Envoy is cut off.
const KILL_ENVOY_AT: u64 = 3;
const CUT_OFF_AT: u64 = 8;
const KILL_SERVICE_AT: u64 = 17;
const CUT_FOR: Duration = Duration::from_secs(6);

pub(super) fn setting(name: &str) -> Option<String> {
    std::env::var(format!("TOLLGATE_RLQS_{name}")).ok()
}

/// A store, which ends when dropped.
enum LongStore {
    Memory,
    Redis(Redis),
    Cluster(Cluster),
}

impl LongStore {
    async fn start() -> Self {
        match setting("STORE").as_deref().unwrap_or("memory") {
            "memory" => Self::Memory,
            "redis" => Self::Redis(Redis::start().await),
            "cluster" => Self::Cluster(Cluster::start(3, 0).await),
            other => panic!("memory, redis or cluster, not {other}"),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Redis(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Returns the number of replicas that share it.
    fn replicas(&self) -> usize {
        if matches!(self, Self::Memory) { 1 } else { 2 }
    }
}

/// The number of counters, and the limit of each.
#[derive(Clone, Copy)]
pub(super) struct CounterLoad {
    pub(super) counters: u32,
    pub(super) limit: u32,
}

impl CounterLoad {
    /// Reads the settings.
    pub(super) fn of_settings() -> Self {
        let number =
            |name, default| setting(name).map_or(default, |number| number.parse().unwrap());
        Self { counters: number("COUNTERS", 10), limit: number("LIMIT", 300) }
    }

    /// Returns the load of the Envoy with this number after some shifts.
    pub(super) fn of_envoy(self, number: usize, shifts: usize) -> EnvoyLoad {
        let Self { counters, limit } = self;
        let demand = DEMAND[(number + 3 * shifts) % DEMAND.len()];
        let every = TEN_SECONDS * 300 / (demand * counters * limit);
        EnvoyLoad { every, buckets: usize::try_from(counters).unwrap() }
    }
}

/// The course of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WindowKind {
    Steady,
    Shifted,
    Faulty,
}

/// The services and Envoys of a run.
struct LongRun {
    flags: Vec<String>,
    services: Vec<Tollgate>,
    /// An Envoy with the number of its service.
    envoys: Vec<(LoadedEnvoy, QuotaWire, usize)>,
    load: CounterLoad,
    shifts: usize,
    answered: Answered,
    windows: BTreeMap<u64, WindowKind>,
    faults: [u32; 3],
}

impl LongRun {
    async fn start(flags: Vec<String>, replicas: usize, load: CounterLoad) -> Self {
        let services: Vec<_> = (0..replicas).map(|_| serve(&flags)).collect();
        let answered = Answered::default();
        let mut envoys = Vec::new();
        for number in 0..DEMAND.len() {
            let service = number % replicas;
            let wire = QuotaWire::to(services[service].grpc, Passing::All).await;
            let load = load.of_envoy(number, 0);
            let envoy = LoadedEnvoy::start(wire.address, load, &answered).await;
            envoys.push((envoy, wire, service));
        }
        let windows = BTreeMap::new();
        Self { flags, services, envoys, load, shifts: 0, answered, windows, faults: [0; 3] }
    }

    /// Moves the demand to other Envoys.
    fn shift(&mut self) {
        self.shifts += 1;
        for (number, (envoy, ..)) in self.envoys.iter_mut().enumerate() {
            envoy.load(self.load.of_envoy(number, self.shifts), &self.answered);
        }
    }

    /// Kills an Envoy, which another one replaces.
    async fn kill_envoy(&mut self, number: usize) {
        self.faults[0] += 1;
        let (_, wire, service) = self.envoys.remove(number);
        let load = self.load.of_envoy(number, self.shifts);
        let envoy = LoadedEnvoy::start(wire.address, load, &self.answered).await;
        self.envoys.insert(number, (envoy, wire, service));
    }

    /// Cuts an Envoy off; what was on its way is lost.
    async fn cut_off(&mut self, number: usize) {
        self.faults[1] += 1;
        let (_, wire, _) = &self.envoys[number];
        wire.pass(Passing::Nothing);
        sleep(CUT_FOR).await;
        wire.cut();
        wire.pass(Passing::All);
    }

    /// Kills a service: the other one takes its Envoys over.
    fn kill_service(&mut self, number: usize) {
        self.faults[2] += 1;
        self.services[number].process.signal(Signal::KILL);
        self.services[number].process.wait_for_end();
        self.services[number] = serve(&self.flags);
        let other = (number + 1) % self.services.len();
        for (_, wire, service) in &mut self.envoys {
            if *service == number {
                *service = other;
                wire.lead_to(self.services[other].grpc);
            }
        }
    }

    /// Waits for the next window.
    async fn begin(&mut self, kind: WindowKind) {
        next_window().await;
        self.windows.insert(window(SystemTime::now()), kind);
    }

    async fn run(&mut self, windows: usize) {
        for _ in 0..STEADY {
            self.begin(WindowKind::Steady).await;
        }
        for _ in 0..SHIFTS {
            // The last steady window has used up its limit by then.
            in_window(SHIFT_AT).await;
            self.shift();
            self.begin(WindowKind::Shifted).await;
        }
        for round in 0..windows {
            self.begin(WindowKind::Faulty).await;
            let number = round % DEMAND.len();
            in_window(KILL_ENVOY_AT).await;
            self.kill_envoy(number).await;
            in_window(CUT_OFF_AT).await;
            self.cut_off((number + 3) % DEMAND.len()).await;
            in_window(KILL_SERVICE_AT).await;
            if self.services.len() > 1 {
                self.kill_service(round % 2);
            }
        }
        next_window().await;
    }

    /// Prints the use of the limit by the kinds of windows, and returns those that exceed it.
    fn report(&self, limit: u64) -> Vec<((usize, u64), u64)> {
        let all = by_window(&self.answered);
        for kind in [WindowKind::Steady, WindowKind::Shifted, WindowKind::Faulty] {
            let of_kind = all.iter().filter(|((_, window), _)| {
                self.windows.get(window).is_some_and(|found| *found == kind)
            });
            let found: Vec<WindowRequests> = of_kind.map(|(_, requests)| *requests).collect();
            let windows = u64::try_from(found.len()).unwrap().max(1);
            let mean = |hits: fn(&WindowRequests) -> u64| {
                found.iter().map(hits).sum::<u64>() * 1_000 / limit / windows
            };
            let used = mean(|requests| requests.admitted);
            let requested = mean(|requests| requests.all);
            let least = found.iter().map(|requests| requests.admitted * 1_000 / limit).min();
            eprintln!(
                "{kind:?}: {windows} windows, used {used} in 1,000, at least {}, of {requested}",
                least.unwrap_or_default()
            );
        }
        let admitted = all.into_iter().map(|(of, requests)| (of, requests.admitted));
        admitted.filter(|(_, hits)| *hits > limit).collect()
    }
}

fn serve(flags: &[String]) -> Tollgate {
    let program = setting("PROGRAM").map(OsString::from);
    let program = program.unwrap_or_else(|| built().join("tollgate").into_os_string());
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Tollgate::serve_as(&mut command_of(program, ["serve"]), &flags)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_envoys_never_admit_more_than_the_limit_while_processes_die() {
    let windows = setting("WINDOWS").map_or(1, |windows| windows.parse().unwrap());
    let load = CounterLoad::of_settings();
    let limit = u64::from(load.limit);
    let store = LongStore::start().await;
    let policies = Policies::of(&policy(limit));
    let flags = ["--policy", policies.path().to_str().unwrap(), "--store", &store.url()];
    let flags = flags.map(str::to_owned).to_vec();
    let mut run = LongRun::start(flags, store.replicas(), load).await;
    // The first window has the first requests, which are denied.
    next_window().await;
    run.run(windows).await;
    let over = run.report(limit);
    let [killed, cut, services] = run.faults;
    eprintln!("over: {over:?}");
    eprintln!("Envoys killed: {killed}, cut off: {cut}; services killed: {services}");
    for service in &run.services {
        let web = Web::new(service.http);
        for name in ["lent", "spent", "returned", "stranded"] {
            let hits = web.metric(&format!("tollgate_rlqs_hits_{name}_total")).await;
            eprint!("{name} {hits}, ");
        }
        eprintln!("overrun {}", web.metric("tollgate_rlqs_overrun_hits_total").await);
    }
    assert!(over.is_empty(), "{over:?}");
}
