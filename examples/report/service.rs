//! The services of the report.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::process::Signal;
use tollgate_testkit::envoy::{Envoy, on_free_ports};
use tollgate_testkit::peer::Peer;
use tollgate_testkit::policy::Policies;
use tollgate_testkit::process::{Process, set_clock};
use tollgate_testkit::quotas::{QuotaServer, whole_limit};
use tollgate_testkit::root;
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
/// The limit of RLQS, whose proxies report every 5 s.
const QUOTA: u32 = 100;
const QUOTA_PERIOD: u32 = 60;
/// Calls per second with RLQS: a counter takes twice its limit, and proxies get hits meanwhile.
const QUOTA_RATE: u32 = 100;
/// Difference between the clocks of two replicas in seconds, if they differ.
const CLOCK_AHEAD: i32 = 30;

/// A service with its settings.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportedService {
    /// Tollgate.
    Tollgate,
    /// Tollgate with leases of 16 hits and 100 ms.
    TollgateLeases,
    /// Tollgate behind two Envoys, by ext_authz.
    TollgateExtAuthz,
    /// Tollgate behind two Envoys, by RLQS.
    TollgateRlqs,
    /// A server that gives each of two Envoys the whole limit, by RLQS.
    WholeLimit,
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
    /// The proxies before the replicas, and the server that gives them all.
    gateways: Vec<Envoy>,
    quotas: Option<QuotaServer>,
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
            Self::TollgateExtAuthz => "Envoy, ext_authz, Tollgate",
            Self::TollgateRlqs => "Envoy, RLQS, Tollgate",
            Self::WholeLimit => "Envoy, RLQS, a server that gives each the whole limit",
            Self::Envoyproxy => "envoyproxy/ratelimit",
            Self::EnvoyproxyCache => "envoyproxy/ratelimit, local cache",
        }
    }

    /// Returns `true` for envoyproxy/ratelimit.
    pub(crate) fn is_peer(self) -> bool {
        matches!(self, Self::Envoyproxy | Self::EnvoyproxyCache)
    }

    /// Returns `true` for Tollgate.
    pub(crate) fn is_tollgate(self) -> bool {
        !self.is_peer() && self != Self::WholeLimit
    }

    /// Returns the keys of its descriptors with the headers of an Envoy's requests; none if it is
    /// called by the protocol of rate limits.
    pub(crate) fn headers(self) -> &'static [&'static str] {
        match self {
            Self::TollgateExtAuthz => &["second=x-second", "minute=x-minute", "day=x-day"],
            Self::TollgateRlqs | Self::WholeLimit => &["bucket=x-bucket"],
            Self::Tollgate | Self::TollgateLeases | Self::Envoyproxy | Self::EnvoyproxyCache => &[],
        }
    }

    /// Returns the calls per second, of at most `rate`.
    pub(crate) fn rate(self, rate: u32) -> u32 {
        if self.has_quotas() { rate.min(QUOTA_RATE) } else { rate }
    }

    /// Returns `true` if its proxies hold hits.
    fn has_quotas(self) -> bool {
        matches!(self, Self::TollgateRlqs | Self::WholeLimit)
    }

    fn policy(self) -> String {
        if self.has_quotas() {
            return format!(
                "domain: test\ndescriptors:\n  - key: bucket\n    rate_limit: {{ unit: {QUOTA_PERIOD}s, \
                 requests_per_unit: {QUOTA}, lease: {{ size: 10, ttl: 1s, rlqs: {{ ttl: 7s, size: 60% }} }} }}\n"
            );
        }
        let lease =
            if self == Self::TollgateLeases { ", lease: { size: 16, ttl: 100ms }" } else { "" };
        let mut text = "domain: report\n".to_owned();
        if self == Self::TollgateExtAuthz {
            text += "requests:\n  - name: shop\n    descriptors:\n";
            for (key, _) in LIMITS {
                text += &format!("      - entries: {{ {key}: {{ header: x-{key} }} }}\n");
            }
        }
        text += "descriptors:\n";
        for (key, limit) in LIMITS {
            text += &format!("  - key: {key}\n    rate_limit: {{ {limit}{lease} }}\n");
        }
        text
    }
}

impl Replicas {
    /// Starts replicas that share a store. `peer`: the binary of envoyproxy/ratelimit.
    pub(crate) async fn start(
        row: ReportRow,
        count: usize,
        store: &RunningStore,
        peer: Option<&Path>,
    ) -> Self {
        let policies = Policies::none();
        policies.write("config/report.yaml", &row.service.policy());
        let running = Vec::new();
        let gateways = Vec::new();
        let mut replicas = Self { policies, running, targets: Vec::new(), gateways, quotas: None };
        if row.service == ReportedService::WholeLimit {
            let period = i64::from(QUOTA_PERIOD);
            let server = QuotaServer::that_assigns(period, whole_limit(QUOTA, period)).await;
            replicas.targets = vec![server.address.to_string(); 2];
            replicas.quotas = Some(server);
            replicas.add_gateways(row.service, 2).await;
            return replicas;
        }
        for number in 0..count {
            let is_ahead = row.disturbance == Disturbance::ClockAhead && number == 1;
            let (target, start) = if row.service.is_peer() {
                let binary = peer.expect("--peer has the path of its binary");
                replicas.peer(row.service, store, number, binary)
            } else {
                replicas.tollgate(store, number, is_ahead)
            };
            let process = start();
            replicas.running.push(Replica { start, process });
            replicas.targets.push(target);
        }
        if !row.service.headers().is_empty() {
            replicas.add_gateways(row.service, 2).await;
        }
        replicas
    }

    /// Puts proxies before the targets, each of which asks one of them.
    async fn add_gateways(&mut self, service: ReportedService, count: usize) {
        let template = if service.has_quotas() {
            std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap()
        } else {
            let text = std::fs::read_to_string(root().join("deploy/gateways/envoy.yaml"));
            on_free_ports(&text.unwrap())
        };
        for target in self.targets.iter().cycle().take(count) {
            let (_, port) = target.rsplit_once(':').unwrap();
            self.gateways.push(Envoy::start_by(&template, &[("TOLLGATE", port)]).await);
        }
        let gateways = self.gateways.iter();
        self.targets =
            gateways.map(|gateway| format!("http://{}/", gateway.edge.server())).collect();
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

    fn tollgate(
        &self,
        store: &RunningStore,
        number: usize,
        is_ahead: bool,
    ) -> (String, Box<dyn Fn() -> Process>) {
        let target = lasting_address();
        let policy = self.policy().to_str().unwrap().to_owned();
        let flags = ["--policy", &policy, "--grpc-listen", &target, "--store", &store.url(number)]
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
        number: usize,
        binary: &Path,
    ) -> (String, Box<dyn Fn() -> Process>) {
        let root = self.policies.path().to_owned();
        let mut peer = Peer::new(binary.to_owned(), root, store.peer_settings(number));
        if service == ReportedService::EnvoyproxyCache {
            peer.cache_bytes = 1 << 20;
        }
        (peer.grpc.to_string(), Box::new(move || peer.start()))
    }
}
