//! Counters in Redis or Valkey: one node, a master behind sentinels, or a Cluster; the same decisions for every replica.
//!
//! A script judges and charges all checks of a request that live in one slot, at one instant of the server's clock. Checks of
//! several slots are judged at the same time, each slot charging as if the others admitted; where they do not, those charges
//! are taken back, by receipt, after the caller has been answered.
//!
//! | file | what it knows |
//! |---|---|
//! | `lua/`, `script` | the scripts |
//! | `question`, `answer` | what goes to them and what comes back |
//! | `request`, `plan` | a request of any kind: which slot judges what, and what is undone |
//! | `straight` | a request of a frequent kind |
//! | `key` | names of keys |
//! | `options`, `url`, `access`, `slot` | where, as whom, and which slot |
//! | `connect`, `tls` | a connection to a server in the role that it must have, and whom to trust |
//! | `calls` | one request's part in one slot, and what is sent again |
//! | `gather`, `batch` | requests that go to a node at once: when, and as which commands |
//! | `node`, `failure` | one connection: deadlines, the breaker, coming back; why a call failed |
//! | `routes`, `single`, `cluster`, `sentinel` | which node serves a slot, and how that is found out |
//! | `locality` | which nodes of a Cluster may be asked about several slots at once |
//! | `take_back` | charges that have to be undone |
//! | `amend` | what people do to one counter |
//! | `lend` | hits that are charged in advance |
//! | `tallies` | who used a counter up |
//! | `board` | what processes leave for each other |
//! | `health`, `replica_clocks` | how the servers are, and the clocks of their replicas |
//! | `check_up` | what to warn of at the start |
//! | `replicas` | the number of processes that share the limits |

mod access;
mod amend;
mod answer;
mod batch;
mod board;
mod calls;
mod check_up;
mod cluster;
mod connect;
mod failure;
mod gather;
mod health;
mod key;
mod lend;
mod locality;
mod node;
mod options;
mod plan;
mod question;
mod replica_clocks;
mod replicas;
mod request;
mod routes;
mod script;
mod sentinel;
mod single;
mod slot;
mod straight;
mod take_back;
mod tallies;
mod tls;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub use self::access::{Access, Secret};
pub use self::board::Left;
use self::calls::{Core, within};
use self::connect::RequiredRole;
pub use self::health::{NodeHealth, ServerTold};
pub use self::key::check_prefix;
use self::node::Node;
pub use self::options::{RedisOptions, Time};
use self::plan::Group;
pub use self::replica_clocks::ReplicaClock;
use self::replica_clocks::ReplicaConnections;
pub use self::replicas::ReplicaCount;
use self::routes::Routes;
pub use self::url::{Address, Kind, RedisUrl, without_password};
use super::background::Background;
use super::fallback::Fallback;
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::verdict::Prior;
use crate::telemetry::metrics::Metrics;

/// How often it is looked whether a store is connected.
const CONNECTED_EVERY: Duration = Duration::from_millis(5);
/// Time for one step of forgetting keys.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in Redis, for the runtime that it was made in: connections belong to it. Clones are handles of one store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    core: Arc<Core>,
    /// The servers for limits of one second, where they are others.
    per_second: Option<Arc<Core>>,
    /// Charges that have to be undone, and requests whose callers are gone.
    background: Background,
    /// Whether it was tried to reach all servers: until then calls wait for that, within their deadlines.
    begun: Arc<AtomicBool>,
    /// Decides what `on_store_error: local` asks for; without it that is an error.
    fallback: Option<Fallback>,
    /// For the clocks of replicas.
    replica_connections: Arc<ReplicaConnections>,
}

impl RedisStore {
    /// A store that begins to connect at once. To be called within a runtime.
    pub fn connect(options: RedisOptions, time: Time, metrics: Arc<Metrics>) -> Self {
        let per_second =
            options.per_second.clone().map(|other| RedisOptions { prefix: options.prefix.clone(), ..*other });
        let per_second = per_second.map(|options| Self::core(options, time.clone(), Arc::clone(&metrics)));
        let core = Self::core(options, time, metrics);
        Self {
            core,
            per_second,
            background: Background::default(),
            begun: Arc::default(),
            fallback: None,
            replica_connections: Arc::default(),
        }
    }

    fn core(options: RedisOptions, time: Time, metrics: Arc<Metrics>) -> Arc<Core> {
        let access = Arc::new(options.access.clone().with(&options.url));
        let by_slot = matches!(options.url.kind, Kind::Cluster(_));
        let role = if by_slot { RequiredRole::Any } else { RequiredRole::master(&options.prefix) };
        let routes = Routes::new(Arc::clone(&access), role, Arc::clone(&metrics));
        let start =
            |seed, access: &Arc<Access>| Node::start(seed, Arc::clone(access), RequiredRole::Any, Arc::clone(&metrics));
        match options.url.kind.clone() {
            Kind::Single(address) => single::find(&routes, address),
            Kind::Cluster(seeds) => {
                let seeds = seeds.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(cluster::find(Arc::downgrade(&routes), seeds, options.prefix.clone()));
            }
            Kind::Sentinel { master, sentinels } => {
                let access = Arc::new(Access { tls: options.url.tls, ..options.sentinel_access });
                let sentinels = sentinels.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(sentinel::find(Arc::downgrade(&routes), master, sentinels));
            }
        }
        Arc::new(Core {
            routes,
            prefix: options.prefix,
            by_slot,
            time,
            clock_ahead_us: AtomicI64::new(0),
            metrics,
            complained: parking_lot::Mutex::default(),
        })
    }

    /// All servers.
    fn cores(&self) -> impl Iterator<Item = &Arc<Core>> {
        std::iter::once(&self.core).chain(&self.per_second)
    }

    fn core_of(&self, group: &Group) -> &Arc<Core> {
        self.core_for(group.per_second)
    }

    /// The servers of limits of a second, or of the others.
    fn core_for(&self, per_second: bool) -> &Arc<Core> {
        self.per_second.as_ref().filter(|_| per_second).unwrap_or(&self.core)
    }

    /// Whether it was tried to reach all servers.
    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// The same, with somebody to decide while it is away.
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// Waits until a master is connected to, and every other one is too or was tried in vain: one that is dead does not keep
    /// the keys of the others from being decided.
    pub async fn connected(&self) {
        for core in self.cores() {
            loop {
                let masters = core.routes.masters();
                let (one, tried) = (|node: &Arc<Node>| node.is_connected(), |node: &Arc<Node>| node.is_tried());
                if masters.iter().any(one) && masters.iter().all(tried) {
                    break;
                }
                tokio::time::sleep(CONNECTED_EVERY).await;
            }
        }
    }

    /// Waits until it was tried to reach the servers of these slots, with whatever success: at the start of the process.
    async fn begin(&self, groups: &[Group], deadline: Instant) {
        if self.has_begun() {
            return;
        }
        let is_tried = |group: &Group| self.core_of(group).is_tried(group.slot);
        while !groups.iter().all(is_tried) && Instant::now() < deadline {
            tokio::time::sleep(CONNECTED_EVERY).await;
        }
        if self.cores().all(|core| core.routes.is_tried()) {
            self.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a connection to a master is open; where limits of a second are elsewhere, to one of theirs as well.
    pub fn is_connected(&self) -> bool {
        self.cores().all(|core| core.routes.masters().iter().any(|node| node.is_connected()))
    }

    /// The address of a server that must be a master and is a replica.
    pub fn replica(&self) -> Option<String> {
        let mut masters = self.cores().flat_map(|core| core.routes.masters());
        masters.find(|node| node.is_replica()).map(|node| node.address.to_string())
    }

    /// Forgets every key that begins with this store's prefix.
    ///
    /// # Errors
    /// What kept a node from it.
    pub async fn clear(&self) -> Result<(), StoreError> {
        for node in self.cores().flat_map(|core| core.routes.masters()) {
            let mut cursor = 0u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg([self.core.prefix.as_slice(), b"*"].concat()).arg("COUNT").arg(1_000);
                let reply = node.call(&scan, within(CLEAR_TIMEOUT)).await?;
                let (next, keys): (u64, Vec<Vec<u8>>) =
                    redis::from_redis_value(reply).map_err(|_| StoreError::Refused)?;
                for key in keys {
                    node.call(redis::cmd("UNLINK").arg(key), within(CLEAR_TIMEOUT)).await?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until charges that have to be undone are, and requests whose callers are gone are decided.
    pub async fn settled(&self) {
        self.background.settled().await;
    }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: std::time::Instant) -> Outcomes {
        let deadline = Instant::from_std(deadline);
        if let [check] = checks
            && let Some(outcome) = self.decide_straight(check, prior, deadline).await
        {
            if self.fallback.is_none() || !plan::is_left(check, &outcome) {
                return Outcomes::from_iter([outcome]);
            }
            let mut judged = request::Judged::from_iter([Some(outcome)]);
            Box::pin(self.fall_back(checks, &mut judged, prior)).await;
            return request::all_of(judged);
        }
        // On the heap, so that the usual way does not carry it along.
        Box::pin(self.decide_all(checks, prior, deadline)).await
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: std::time::Instant,
    ) -> Result<Amended, StoreError> {
        self.amend_one(check, amendment, Instant::from_std(deadline)).await
    }
}
