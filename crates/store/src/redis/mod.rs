//! Counters in Redis or Valkey: a single node, a master monitored by sentinels, or a Cluster, with
//! the same decisions for every replica.
//!
//! A script judges and charges all checks of a request in one slot, at one instant of the server's
//! clock. Several slots are judged concurrently, each charging as if the others admitted; if they
//! do not, those charges are taken back by receipt, after the reply to the caller.
//!
//! Each algorithm is one Lua file, and one script decides all requests. The alternative was to
//! judge rare requests in this process: read the values, judge, and write if they are unchanged. It
//! was not taken, since a counter that is written often never stays unchanged for a round trip:
//! take-backs and amendments would starve on the counters that need them most.
//!
//! | module | purpose |
//! |---|---|
//! | `config` | addresses, access, options; the network, clock and randomness |
//! | `credentials` | users and passwords that change: files, the output of a program |
//! | `script` | the scripts, their arguments and replies; names of keys, and their slots |
//! | `server` | one server: its connection, permissions, batches, breaker; kinds of failure |
//! | `topology` | the node of each slot: a single server, a Cluster, sentinels |
//! | `calls` | one request's part in one slot, with its retries |
//! | `decide` | decisions, leases and amendments: what is sent to which slots, and undone |
//! | `backend` | all that the process may ask of the store besides decisions |
//! | `admin` | health, warnings at startup; tallies, shared denials, number of replicas |
//! | `fuzz` | fuzz targets, compiled for fuzzing and tests only |

mod admin;
mod backend;
mod calls;
mod config;
mod credentials;
mod decide;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod script;
mod server;
mod topology;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tollgate_telemetry::metrics::StoreMetrics;

use self::admin::replica_clocks::ReplicaConnections;
use self::calls::Core;
pub use self::config::access::{Access, LoggedErrors};
pub use self::config::environment::{BoxedStream, Environment, NetworkStream, Simulation};
pub use self::config::options::{RedisOptions, Time};
pub use self::config::url::{RedisUrl, RedisUrlError, RedisUrlFault, ServerAddress, Topology};
pub use self::credentials::SharedLogins;
pub use self::credentials::command::{CredentialsCommand, CredentialsCommandError};
pub use self::credentials::source::Credential;
use self::script::key::prepare_tags;
pub use self::script::key::{PrefixError, check_prefix};
use self::server::Node;
use self::server::connect::RequiredRole;
use self::server::rights::RightsCheck;
use self::topology::routes::Routes;
use self::topology::{cluster, sentinel, single};
use super::CertainDenials;
use super::background::Background;

/// Interval of polling whether a store is connected.
const CONNECTED_EVERY: Duration = Duration::from_millis(5);

/// A store in Redis. Its connections belong to the runtime in which it was created. Clones are
/// handles of one store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    core: Arc<Core>,
    /// The servers for limits of one second, if these are separate.
    per_second: Option<Arc<Core>>,
    /// Denials that are certain, unless a proxy shards keys.
    certain_denials: CertainDenials,
    /// Pending take-backs, and requests whose callers are gone.
    background: Background,
    /// Set once connections to all servers were attempted: until then calls wait for that, within
    /// their deadlines.
    begun: Arc<AtomicBool>,
    /// Connections for reading the clocks of replicas.
    replica_connections: Arc<ReplicaConnections>,
}

impl RedisStore {
    /// Creates a store, which starts to connect immediately. Must be called within a runtime.
    pub fn connect(options: RedisOptions, time: Time, metrics: Arc<StoreMetrics>) -> Self {
        prepare_tags();
        let certain_denials = options.certain_denials();
        let per_second = options
            .per_second
            .clone()
            .map(|other| RedisOptions { prefix: options.prefix.clone(), ..*other });
        let per_second =
            per_second.map(|options| Self::core(options, time.clone(), Arc::clone(&metrics)));
        let core = Self::core(options, time, metrics);
        Self {
            core,
            per_second,
            certain_denials,
            background: Background::default(),
            begun: Arc::default(),
            replica_connections: Arc::default(),
        }
    }

    fn core(options: RedisOptions, time: Time, metrics: Arc<StoreMetrics>) -> Arc<Core> {
        let access = Arc::new(options.access.clone().with(&options.url));
        let by_slot = matches!(options.url.kind, Topology::Cluster(_));
        let role = if by_slot {
            RequiredRole::ClusterNode(RightsCheck::of_cluster_node(&options.prefix))
        } else {
            RequiredRole::Master(RightsCheck::of_only_server(&options.prefix))
        };
        let logins = access.logins(&metrics);
        let routes = Routes::new(Arc::clone(&access), role.clone(), Arc::clone(&metrics));
        match options.url.kind.clone() {
            Topology::Single(address) => single::find(&routes, address),
            Topology::Cluster(seeds) => {
                let seeds = start_all(seeds, &access, &role, &metrics);
                tokio::spawn(cluster::find(Arc::downgrade(&routes), seeds, options.prefix.clone()));
            }
            Topology::Sentinel { master, sentinels } => {
                let access = Arc::new(Access { tls: options.url.tls, ..options.sentinel_access });
                let sentinels = start_all(sentinels, &access, &RequiredRole::Sentinel, &metrics);
                tokio::spawn(sentinel::find(Arc::downgrade(&routes), master, sentinels));
            }
        }
        Arc::new(Core {
            routes,
            prefix: options.prefix,
            logins,
            by_slot,
            time,
            clock_ahead_us: AtomicI64::new(0),
            metrics,
            complained: parking_lot::Mutex::default(),
        })
    }

    /// Returns all sets of servers.
    fn cores(&self) -> impl Iterator<Item = &Arc<Core>> {
        std::iter::once(&self.core).chain(&self.per_second)
    }

    /// Returns the servers for limits of a second, or those for the others.
    fn core_for(&self, per_second: bool) -> &Arc<Core> {
        self.per_second.as_ref().filter(|_| per_second).unwrap_or(&self.core)
    }

    /// Returns `true` once connections to all servers were attempted.
    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// Connects to all of these servers.
fn start_all(
    addresses: Vec<ServerAddress>,
    access: &Arc<Access>,
    role: &RequiredRole,
    metrics: &Arc<StoreMetrics>,
) -> Vec<Arc<Node>> {
    let mut nodes = Vec::with_capacity(addresses.len());
    for address in addresses {
        nodes.push(Node::start(address, Arc::clone(access), role.clone(), Arc::clone(metrics)));
    }
    nodes
}
