//! The stores of the report.

use clap::ValueEnum;
use tollgate_testkit::redis::cluster::{Cluster, Layout};
use tollgate_testkit::redis::flavor::Flavor;
use tollgate_testkit::redis::sentinels::{MASTER, Sentinels};
use tollgate_testkit::redis::wire::Wire;
use tollgate_testkit::redis::{Redis, Setup, listed};

use super::disturbance::Disturbance;

/// A kind of store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportedStore {
    Memory,
    Redis,
    Valkey,
    Sentinel,
    Cluster,
    ValkeyCluster,
}

/// A running store.
pub(crate) enum RunningStore {
    Memory,
    /// A server, and the wire of the second replica to it, if it is to be cut off.
    Redis(Box<Redis>, Option<Wire>),
    Sentinel(Sentinels),
    Cluster(Cluster, Flavor),
}

impl ReportedStore {
    /// Returns its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
            Self::Sentinel => "Sentinel, 3 servers",
            Self::Cluster => "Redis Cluster, 3 masters",
            Self::ValkeyCluster => "Valkey Cluster, 3 masters",
        }
    }

    /// Returns `true` for a single server.
    pub(crate) fn is_single(self) -> bool {
        matches!(self, Self::Redis | Self::Valkey)
    }

    /// Returns `true` for a cluster.
    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster | Self::ValkeyCluster)
    }

    fn flavor(self) -> Flavor {
        match self {
            Self::Valkey | Self::ValkeyCluster => Flavor::Valkey,
            Self::Memory | Self::Redis | Self::Sentinel | Self::Cluster => Flavor::Distribution,
        }
    }

    /// Starts it, as the disturbance needs it.
    pub(crate) async fn start(self, disturbance: Disturbance) -> RunningStore {
        let flavor = self.flavor();
        let lines = disturbance.store_settings().iter().map(|line| (*line).to_owned()).collect();
        let setup = Setup { flavor, lines, ..Setup::default() };
        match self {
            Self::Memory => RunningStore::Memory,
            Self::Redis | Self::Valkey => {
                let redis = Redis::start_as(setup).await;
                let is_cut = disturbance == Disturbance::Partition;
                let wire = if is_cut { Some(Wire::to(redis.address).await) } else { None };
                RunningStore::Redis(Box::new(redis), wire)
            }
            Self::Sentinel => RunningStore::Sentinel(Sentinels::start().await),
            Self::Cluster | Self::ValkeyCluster => {
                let replicas = usize::from(disturbance.needs_replicas());
                let is_wired = disturbance == Disturbance::Partition;
                let layout = Layout { replicas, is_wired, setup, ..Layout::default() };
                RunningStore::Cluster(Cluster::start_as(layout).await, flavor)
            }
        }
    }
}

impl RunningStore {
    /// Returns the URL for a replica of Tollgate, by its number.
    pub(crate) fn url(&self, replica: usize) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Redis(redis, wire) => match wire.as_ref().filter(|_| replica == 1) {
                Some(wire) => format!("redis://{}", wire.address),
                None => redis.url(),
            },
            Self::Sentinel(group) => group.url(),
            Self::Cluster(cluster, _) => cluster.url(),
        }
    }

    /// Returns type and address for a replica of envoyproxy/ratelimit.
    pub(crate) fn peer_settings(&self, replica: usize) -> (&'static str, String) {
        match self {
            Self::Memory => panic!("envoyproxy/ratelimit has no counters of its own"),
            Self::Redis(redis, wire) => {
                let wire = wire.as_ref().filter(|_| replica == 1);
                ("SINGLE", wire.map_or(redis.address, |wire| wire.address).to_string())
            }
            Self::Sentinel(group) => {
                ("SENTINEL", format!("{MASTER},{}", listed(&group.addresses())))
            }
            Self::Cluster(cluster, _) => ("CLUSTER", listed(&cluster.seeds())),
        }
    }

    /// Returns the server of a store that has only one.
    pub(crate) fn redis(&self) -> &Redis {
        let Self::Redis(redis, _) = self else { panic!("the store is not a single server") };
        redis
    }
}
