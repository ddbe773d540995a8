//! A long run of eight Envoys on many counters, while processes die and connections are cut.
//!
//! Runs if `TOLLGATE_RLQS_WINDOWS` is set: for so many windows of 30 s, `TOLLGATE_RLQS_COUNTERS`
//! counters (10) of `TOLLGATE_RLQS_LIMIT` hits (300), in `TOLLGATE_RLQS_STORE`: `memory`, `redis`
//! or `cluster`. A store that outlives a service has two replicas, which are killed, too.
//!
//! ```text
//! TOLLGATE_RLQS_WINDOWS=20 cargo test --locked --test main rlqs::long_run -- --nocapture
//! ```

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio::time::sleep;

use super::fleet::{Admitted, EnvoyLoad, LoadedEnvoy, by_window, next_window, policy, window};
use super::wire::{Passing, QuotaWire};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Requests of each Envoy in 10 s for each counter of 300 hits, ten to one: one and a half times
/// the limit.
const DEMAND: [u32; 8] = [50, 50, 10, 10, 10, 8, 7, 5];
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// Times from the begin of a window to its fault, and for which an Envoy is cut off.
const FAULT_AFTER: Duration = Duration::from_secs(4);
const CUT_FOR: Duration = Duration::from_secs(6);

fn setting(name: &str) -> Option<String> {
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
struct CounterLoad {
    counters: u32,
    limit: u32,
}

/// The services and Envoys of a run.
struct LongRun {
    flags: Vec<String>,
    services: Vec<Tollgate>,
    /// An Envoy with the number of its service.
    envoys: Vec<(LoadedEnvoy, QuotaWire, usize)>,
    load: CounterLoad,
    admitted: Admitted,
    /// Windows without a fault.
    calm: BTreeSet<u64>,
    faults: [u32; 3],
}

impl LongRun {
    async fn start(flags: Vec<String>, replicas: usize, load: CounterLoad) -> Self {
        let services: Vec<_> = (0..replicas).map(|_| serve(&flags)).collect();
        let admitted = Admitted::default();
        let mut envoys = Vec::new();
        for number in 0..DEMAND.len() {
            let service = number % replicas;
            let wire = QuotaWire::to(services[service].grpc, Passing::All).await;
            let envoy = envoy(number, load, wire.address, &admitted).await;
            envoys.push((envoy, wire, service));
        }
        let calm = BTreeSet::new();
        Self { flags, services, envoys, load, admitted, calm, faults: [0; 3] }
    }

    /// Kills an Envoy, which another one replaces.
    async fn kill_envoy(&mut self, number: usize) {
        self.faults[0] += 1;
        let (_, wire, service) = self.envoys.remove(number);
        let envoy = envoy(number, self.load, wire.address, &self.admitted).await;
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

    async fn run(&mut self, windows: usize) {
        for round in 0..windows {
            next_window().await;
            let number = round / 4 % DEMAND.len();
            if round % 4 == 0 {
                self.calm.insert(window(SystemTime::now()));
                continue;
            }
            sleep(FAULT_AFTER).await;
            match round % 4 {
                1 => self.kill_envoy(number).await,
                2 => self.cut_off(number).await,
                _ if self.services.len() > 1 => self.kill_service(number % 2),
                _ => {}
            }
        }
        next_window().await;
    }
}

fn serve(flags: &[String]) -> Tollgate {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Tollgate::serve_by(&flags)
}

async fn envoy(
    number: usize,
    load: CounterLoad,
    service: SocketAddr,
    admitted: &Admitted,
) -> LoadedEnvoy {
    let CounterLoad { counters, limit } = load;
    let every = TEN_SECONDS * 300 / (DEMAND[number] * counters * limit);
    let buckets = usize::try_from(counters).unwrap();
    LoadedEnvoy::start(service, EnvoyLoad { every, buckets }, admitted).await
}

/// Returns the mean and the least part of the limit that was used in windows, in 1/1000.
fn used<'a>(hits: impl Iterator<Item = &'a u64>, limit: u64) -> (u64, u64) {
    let used: Vec<_> = hits.map(|hits| hits * 1_000 / limit).collect();
    let windows = u64::try_from(used.len()).unwrap().max(1);
    (used.iter().sum::<u64>() / windows, used.into_iter().min().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_envoys_never_admit_more_than_the_limit_while_processes_die() {
    let Some(windows) = setting("WINDOWS") else { return };
    let number = |name, default| setting(name).map_or(default, |number| number.parse().unwrap());
    let load = CounterLoad { counters: number("COUNTERS", 10), limit: number("LIMIT", 300) };
    let limit = u64::from(load.limit);
    let store = LongStore::start().await;
    let policies = Policies::of(&policy(limit));
    let flags = ["--policy", policies.path().to_str().unwrap(), "--store", &store.url()];
    let flags = flags.map(str::to_owned).to_vec();
    let mut run = LongRun::start(flags, store.replicas(), load).await;
    next_window().await;
    let first = window(SystemTime::now()) + 1;
    run.run(windows.parse().unwrap()).await;
    let last = window(SystemTime::now());
    let all = by_window(&run.admitted);
    let full = all.iter().filter(|((_, window), _)| (first..last).contains(window));
    let calm = full.clone().filter(|((_, window), _)| run.calm.contains(window));
    let over: Vec<_> = all.iter().filter(|(_, hits)| **hits > limit).collect();
    let (mean, least) = used(full.clone().map(|(_, hits)| hits), limit);
    let (mean_calm, least_calm) = used(calm.map(|(_, hits)| hits), limit);
    let [killed, cut, services] = run.faults;
    eprintln!("{} windows, over: {over:?}", full.count());
    eprintln!("used, in 1/1000: {mean}, at least {least}; calm: {mean_calm}, {least_calm}");
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
