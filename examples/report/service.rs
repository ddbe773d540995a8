//! The services of the report.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::process::Signal;
use tollgate_testkit::peer::Peer;
use tollgate_testkit::policy::Policies;
use tollgate_testkit::process::{Process, set_clock};
use tollgate_testkit::tollgate::{Tollgate, command, lasting_address};

use super::ReportRow;
use super::disturbance::Disturbance;
use super::store::RunningStore;

/// Limits that end during a row, after it, and much later.
const LIMITS: [(&str, &str); 3] = [
    ("second", "unit: second, requests_per_unit: 20"),
    ("minute", "unit: minute, requests_per_unit: 100"),
    ("day", "unit: day, requests_per_unit: 200"),
];
/// Difference between the clocks of two replicas in seconds, if they differ.
const CLOCK_AHEAD: i32 = 30;

/// A service with its settings.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportedService {
    /// Tollgate.
    Tollgate,
    /// Tollgate with leases of 16 hits and 100 ms.
    TollgateLeases,
    /// envoyproxy/ratelimit.
    Envoyproxy,
    /// envoyproxy/ratelimit with a local cache of 1 MiB.
    EnvoyproxyCache,
}

/// The replicas of a service.
pub(crate) struct Replicas {
    policies: Policies,
    running: Vec<Replica>,
    targets: Vec<String>,
}

struct Replica {
    start: Box<dyn Fn() -> Process>,
    process: Process,
}

impl ReportedService {
    /// Returns its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "Tollgate",
            Self::TollgateLeases => "Tollgate, leases",
            Self::Envoyproxy => "envoyproxy/ratelimit",
            Self::EnvoyproxyCache => "envoyproxy/ratelimit, local cache",
        }
    }

    /// Returns `true` for envoyproxy/ratelimit.
    pub(crate) fn is_peer(self) -> bool {
        matches!(self, Self::Envoyproxy | Self::EnvoyproxyCache)
    }

    fn policy(self) -> String {
        let lease =
            if self == Self::TollgateLeases { ", lease: { size: 16, ttl: 100ms }" } else { "" };
        let mut text = "domain: report\ndescriptors:\n".to_owned();
        for (key, limit) in LIMITS {
            text += &format!("  - key: {key}\n    rate_limit: {{ {limit}{lease} }}\n");
        }
        text
    }
}

impl Replicas {
    /// Starts replicas that share a store. `peer`: the binary of envoyproxy/ratelimit.
    pub(crate) fn start(
        row: ReportRow,
        count: usize,
        store: &RunningStore,
        peer: Option<&Path>,
    ) -> Self {
        let policies = Policies::none();
        policies.write("config/report.yaml", &row.service.policy());
        let mut replicas = Self { policies, running: Vec::new(), targets: Vec::new() };
        for number in 0..count {
            let is_ahead = row.disturbance == Disturbance::ClockAhead && number == 1;
            let (target, start) = if row.service.is_peer() {
                let binary = peer.expect("--peer has the path of its binary");
                replicas.peer(row.service, store, binary)
            } else {
                replicas.tollgate(store, is_ahead)
            };
            let process = start();
            replicas.running.push(Replica { start, process });
            replicas.targets.push(target);
        }
        replicas
    }

    /// Returns the folder of the policy.
    pub(crate) fn policy(&self) -> PathBuf {
        self.policies.file("config")
    }

    /// Returns the addresses of the replicas.
    pub(crate) fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Kills the first replica as a crash would, and starts it again.
    pub(crate) fn kill_first(&mut self) {
        let replica = &mut self.running[0];
        replica.process.signal(Signal::KILL);
        replica.process.wait_for_end();
        replica.process = (replica.start)();
    }

    fn tollgate(&self, store: &RunningStore, is_ahead: bool) -> (String, Box<dyn Fn() -> Process>) {
        let target = lasting_address();
        let policy = self.policy().to_str().unwrap().to_owned();
        let flags = ["--policy", &policy, "--grpc-listen", &target, "--store", &store.url()]
            .map(str::to_owned);
        let has_connections = !matches!(store, RunningStore::Memory);
        let start = move || {
            let mut serve = command(["serve"]);
            set_clock(&mut serve, if is_ahead { CLOCK_AHEAD } else { 0 });
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let mut tollgate = Tollgate::serve_as(&mut serve, &flags);
            if has_connections {
                tollgate.wait_for_message("store connected");
            }
            tollgate.process
        };
        (target, Box::new(start))
    }

    fn peer(
        &self,
        service: ReportedService,
        store: &RunningStore,
        binary: &Path,
    ) -> (String, Box<dyn Fn() -> Process>) {
        let root = self.policies.path().to_owned();
        let mut peer = Peer::new(binary.to_owned(), root, store.peer_settings());
        if service == ReportedService::EnvoyproxyCache {
            peer.cache_bytes = 1 << 20;
        }
        (peer.grpc.to_string(), Box::new(move || peer.start()))
    }
}
