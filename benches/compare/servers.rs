//! The servers of a case, tollgate with its store and the ceiling, and their resource usage.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::case::{Place, Policy, Server};
use tollgate_testkit::peer::Peer;
use tollgate_testkit::policy::Policies;
use tollgate_testkit::process::Process;
use tollgate_testkit::redis::cluster::{Cluster, Layout};
use tollgate_testkit::redis::{Redis, listed};
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::usage::Usage;

/// Argument that makes this binary run as the ceiling.
pub(crate) const CEILING: &str = "as-the-ceiling";

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) process: u32,
    /// Address of the metrics, if the server has any.
    pub(crate) http: Option<SocketAddr>,
    _server: Kind,
}

#[allow(dead_code, reason = "held, so that they run")]
enum Kind {
    Tollgate(Tollgate, Policies),
    Ceiling(Process),
    Peer(Process, Policies),
}

/// The store of a tollgate.
pub(crate) enum Store {
    Memory,
    Redis(Redis),
    Cluster(Cluster),
}

impl Running {
    /// Starts a server. `peer` is the binary of envoyproxy/ratelimit, if needed.
    pub(crate) fn start(server: Server, store: &Store, peer: Option<&Path>) -> Self {
        match server {
            Server::Tollgate(_, policy) => Self::tollgate(policy, store, &[]),
            Server::Blind(_, policy) => Self::tollgate(policy, store, &["--denial-journal", "off"]),
            Server::Ceiling => Self::ceiling(&[]),
            Server::Bare => Self::ceiling(&["--bare"]),
            Server::Peer => Self::peer(peer.expect("--peer has the path of its binary"), store),
        }
    }

    pub(crate) fn tollgate(policy: Policy, store: &Store, flags: &[&str]) -> Self {
        let policies = Policies::of(&policy.text(true));
        let url = store.url();
        // Generous: the machine is saturated, and calls that time out or are refused are not
        // measured.
        let generous =
            [["--store-timeout", "5s"], ["--memory-max", "4GiB"], ["--client-memory-max", "1GiB"]];
        let usual = [&["--store", &url], generous.as_flattened()].concat();
        let mut tollgate = Tollgate::serve_with(policies.path(), &[&usual, flags].concat());
        if !matches!(store, Store::Memory) {
            tollgate.wait_for_message("store connected");
        }
        let address = tollgate.grpc;
        let process = tollgate.process.id();
        let http = Some(tollgate.http);
        Self { address, process, http, _server: Kind::Tollgate(tollgate, policies) }
    }

    fn ceiling(flags: &[&str]) -> Self {
        let mut command = Command::new("/proc/self/exe");
        let mut process =
            Process::start("ceiling", command.args([CEILING, "127.0.0.1:0"]).args(flags));
        let address = |line: &str| line.rsplit(' ').next()?.parse().ok();
        let address = process.wait_for_line("its address", address);
        Self { address, process: process.id(), http: None, _server: Kind::Ceiling(process) }
    }

    fn peer(binary: &Path, store: &Store) -> Self {
        let policies = Policies::none();
        policies.write("config/bench.yaml", &Policy::Usual.text(false));
        let store = match store {
            Store::Memory => panic!("envoyproxy/ratelimit has no counters of its own"),
            Store::Redis(redis) => ("SINGLE", redis.address.to_string()),
            Store::Cluster(cluster) => ("CLUSTER", listed(&cluster.seeds())),
        };
        let peer = Peer::new(binary.to_owned(), policies.path().to_owned(), store);
        let server = peer.start();
        let process = server.id();
        Self { address: peer.grpc, process, http: None, _server: Kind::Peer(server, policies) }
    }
}

impl Store {
    pub(crate) async fn start(place: Place) -> Self {
        match place {
            Place::Memory => Self::Memory,
            Place::Redis => Self::Redis(Redis::start().await),
            Place::Cluster => {
                // No node fails here, and a busy machine must not trigger a failover.
                let layout = Layout { replicas: 0, node_timeout_ms: 15_000, ..Layout::default() };
                Self::Cluster(Cluster::start_as(layout).await)
            }
        }
    }

    pub(crate) fn redis(&self) -> Vec<&Redis> {
        match self {
            Self::Memory => Vec::new(),
            Self::Redis(redis) => vec![redis],
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.redis).collect(),
        }
    }

    /// Returns the process IDs of the Redis servers.
    pub(crate) async fn processes(&self) -> Vec<u32> {
        let mut processes = Vec::new();
        for redis in self.redis() {
            processes.push(
                redis.info("server").await["process_id"].parse().expect("a process has a number"),
            );
        }
        processes
    }

    /// Returns the number of script calls.
    pub(crate) async fn commands(&self) -> u64 {
        let mut commands = 0;
        for redis in self.redis() {
            let stats = redis.commandstats().await;
            commands += ["eval", "evalsha"].iter().filter_map(|name| stats.get(*name)).sum::<u64>();
        }
        commands
    }

    fn url(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Redis(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }
}

/// Returns the combined usage of some processes.
pub(crate) fn used_by(processes: &[u32]) -> Usage {
    processes.iter().map(|process| Usage::of(*process)).fold(Usage::default(), Usage::and)
}
