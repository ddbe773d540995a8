//! The disturbances of the report.

use std::time::Duration;

use clap::ValueEnum;
use rand::Rng;
use tollgate_testkit::redis::Redis;
use tollgate_testkit::redis::cluster::{Cluster, Node};
use tollgate_testkit::redis::flavor::Flavor;
use tollgate_testkit::redis::partition::Isolation;
use tollgate_testkit::redis::sentinels::Sentinels;
use tollgate_testkit::{TEST_TIMEOUT, becomes};

use super::DISTURB_EVERY;
use super::service::Replicas;
use super::store::{ReportedStore, RunningStore};

/// Memory of a full store.
const FULL: &str = "maxmemory 3mb";
/// Bytes of the values that fill it: a large one leaves room for small ones.
const FILLING: [usize; 3] = [100 << 10, 10 << 10, 100];
/// Maximum number of them that are added at once.
const MOST_FILLING: usize = 50;

/// Pause of writes: longer than Sentinel takes to demote the old master.
const PAUSE_MS: &str = "15000";

/// A disturbance, which is repeated.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Disturbance {
    /// None.
    None,
    /// A replica is killed and started again.
    ReplicaKilled,
    /// The clock of the second replica is 30 s ahead; nothing is repeated.
    ClockAhead,
    /// The server is killed and started again after 0.3 s, with its data.
    StoreKilled,
    /// The server is stopped for 0.8 s.
    StorePaused,
    /// The server loses its data.
    StoreEmptied,
    /// The server is full of other data, and refuses writes.
    StoreFull,
    /// The server is full of other data, and evicts keys that were not used for long.
    StoreEvicts,
    /// The master is killed, and its replica promoted: the last writes may be lost.
    MasterKilled,
    /// An operator promotes the replica.
    Switchover,
    /// An operator pauses writes to the master, and then promotes the replica.
    PausedSwitchover,
    /// The second replica cannot reach the server for 0.8 s; in a cluster, a master is isolated
    /// from nodes and clients until its replica has been promoted.
    Partition,
    /// Slots with counters move to another master, key by key; in Valkey, atomically.
    SlotsMove,
}

impl Disturbance {
    /// Returns its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReplicaKilled => "a replica killed",
            Self::ClockAhead => "a replica's clock 30 s ahead",
            Self::StoreKilled => "server killed, data kept",
            Self::StorePaused => "server paused for 0.8 s",
            Self::StoreEmptied => "server emptied",
            Self::StoreFull => "server full, refuses writes",
            Self::StoreEvicts => "server full, evicts",
            Self::MasterKilled => "master killed, replica promoted",
            Self::Switchover => "replica promoted by command",
            Self::PausedSwitchover => "the same, writes paused before",
            Self::Partition => "partition",
            Self::SlotsMove => "slots move",
        }
    }

    /// Returns an error if it is not possible on the store.
    pub(crate) fn possible_on(self, store: ReportedStore) -> Result<(), &'static str> {
        let is_shared = store != ReportedStore::Memory;
        let (is_possible, reason) = match self {
            Self::None => (true, ""),
            Self::ReplicaKilled | Self::ClockAhead => (is_shared, "memory has one replica"),
            Self::StoreKilled
            | Self::StorePaused
            | Self::StoreEmptied
            | Self::StoreFull
            | Self::StoreEvicts => (store.is_single(), "use --store redis or valkey"),
            Self::MasterKilled | Self::Switchover => (
                store.is_cluster() || store == ReportedStore::Sentinel,
                "use --store sentinel, cluster or valkey-cluster",
            ),
            Self::PausedSwitchover => (store == ReportedStore::Sentinel, "use --store sentinel"),
            Self::Partition => (
                store.is_single() || store.is_cluster(),
                "use --store redis, valkey, cluster or valkey-cluster",
            ),
            Self::SlotsMove => (store.is_cluster(), "use --store cluster or valkey-cluster"),
        };
        if is_possible { Ok(()) } else { Err(reason) }
    }

    /// Returns settings of the servers.
    pub(crate) fn store_settings(self) -> &'static [&'static str] {
        match self {
            Self::StoreKilled => &["appendonly yes", "appendfsync always"],
            Self::StoreFull => &[FULL, "maxmemory-policy noeviction"],
            Self::StoreEvicts => &[FULL, "maxmemory-policy allkeys-lru"],
            Self::None
            | Self::ReplicaKilled
            | Self::ClockAhead
            | Self::StorePaused
            | Self::StoreEmptied
            | Self::MasterKilled
            | Self::Switchover
            | Self::PausedSwitchover
            | Self::Partition
            | Self::SlotsMove => &[],
        }
    }

    /// Returns `true` if masters of a cluster need replicas.
    pub(crate) fn needs_replicas(self) -> bool {
        matches!(self, Self::MasterKilled | Self::Switchover | Self::Partition)
    }

    /// Returns `true` if counters are lost, which docs/promise.md excepts: of a promotion by
    /// command, those of the seconds in which the old master behind Sentinel goes on.
    pub(crate) fn loses_data(self, store: ReportedStore) -> bool {
        let is_by_sentinel = self == Self::Switchover && store == ReportedStore::Sentinel;
        let is_replaced = self == Self::Partition && store.is_cluster();
        is_by_sentinel
            || is_replaced
            || matches!(self, Self::StoreEmptied | Self::StoreEvicts | Self::MasterKilled)
    }

    /// Returns `true` if it is repeated during the run.
    pub(crate) fn is_repeated(self) -> bool {
        !matches!(self, Self::None | Self::ClockAhead)
    }

    /// Returns the time until it is repeated.
    pub(crate) fn pause(self) -> Duration {
        let is_small = matches!(self, Self::StoreFull | Self::StoreEvicts | Self::SlotsMove);
        if is_small { Duration::from_millis(100) } else { DISTURB_EVERY }
    }

    /// Disturbs once.
    pub(crate) async fn disturb(self, store: &RunningStore, replicas: &mut Replicas) {
        match self {
            Self::None | Self::ClockAhead => {}
            Self::ReplicaKilled => replicas.kill_first(),
            Self::StoreKilled => {
                store.redis().kill();
                tokio::time::sleep(Duration::from_millis(300)).await;
                store.redis().restart().await;
            }
            Self::StorePaused => {
                store.redis().pause();
                tokio::time::sleep(Duration::from_millis(800)).await;
                store.redis().resume();
            }
            Self::StoreEmptied => {
                store.redis().command(&["FLUSHALL"]).await;
            }
            Self::StoreFull | Self::StoreEvicts => fill(store.redis()).await,
            Self::MasterKilled => match store {
                RunningStore::Sentinel(group) => kill_watched(group).await,
                RunningStore::Cluster(cluster, _) => kill_master(cluster).await,
                RunningStore::Memory | RunningStore::Redis(..) => {}
            },
            Self::Switchover => match store {
                RunningStore::Sentinel(group) => {
                    group.failover().await;
                }
                RunningStore::Cluster(cluster, _) => {
                    let slot = random_slot();
                    cluster.failover(cluster.replica_of(slot).await).await;
                }
                RunningStore::Memory | RunningStore::Redis(..) => {}
            },
            Self::Partition => match store {
                RunningStore::Redis(_, Some(wire)) => {
                    wire.silence();
                    tokio::time::sleep(Duration::from_millis(800)).await;
                    wire.heal();
                }
                RunningStore::Cluster(cluster, _) => cut_master(cluster).await,
                RunningStore::Memory | RunningStore::Redis(..) | RunningStore::Sentinel(_) => {}
            },
            Self::PausedSwitchover => {
                if let RunningStore::Sentinel(group) = store {
                    let old = group.master().await;
                    old.command(&["CLIENT", "PAUSE", PAUSE_MS, "WRITE"]).await;
                    group.failover().await;
                }
            }
            Self::SlotsMove => {
                if let RunningStore::Cluster(cluster, flavor) = store {
                    move_slot(cluster, *flavor).await;
                }
            }
        }
    }
}

/// Adds other data until it is refused. A server that evicts for it refuses none.
async fn fill(redis: &Redis) {
    for size in FILLING {
        let value = "x".repeat(size);
        for _ in 0..MOST_FILLING {
            let key = format!("other-{}", rand::rng().random::<u32>());
            if redis.query::<redis::Value>(&["SET", &key, &value]).await.is_err() {
                break;
            }
        }
    }
}

async fn kill_watched(group: &Sentinels) {
    let master = group.master().await;
    master.kill();
    group.successor_of(master.address).await;
    master.restart().await;
    group.master().await;
}

async fn kill_master(cluster: &Cluster) {
    let slot = random_slot();
    let master = cluster.master_of(slot).await;
    let replica = cluster.replica_of(slot).await;
    master.redis.kill();
    cluster.wait_until_promoted(replica).await;
    master.redis.restart().await;
    cluster.wait_until_agreed().await;
}

/// Cuts off a master from nodes and clients until its replica has been promoted.
async fn cut_master(cluster: &Cluster) {
    let slot = random_slot();
    let replica = cluster.replica_of(slot).await;
    cluster.isolate(cluster.master_of(slot).await, Isolation::FromAll);
    cluster.wait_until_promoted(replica).await;
    cluster.heal();
    cluster.wait_until_agreed().await;
}

fn random_slot() -> u16 {
    rand::rng().random_range(0..16_384)
}

/// Moves the slot of a random counter to the next master.
async fn move_slot(cluster: &Cluster, flavor: Flavor) {
    let masters: Vec<&Node> = cluster.nodes.iter().collect();
    let from = rand::rng().random_range(0..masters.len());
    let found: redis::RedisResult<Option<String>> = masters[from].redis.query(&["RANDOMKEY"]).await;
    let Ok(Some(key)) = found else { return };
    let slot = cluster.slot_of(&key).await;
    let to = masters[(from + 1) % masters.len()];
    if flavor == Flavor::Valkey {
        let slot_text = slot.to_string();
        let command =
            ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot_text, &slot_text, "NODE", &to.id];
        masters[from].redis.command(&command).await;
        let has_slot = || async { cluster.master_of(slot).await.id == to.id };
        becomes("the slot has moved", TEST_TIMEOUT, has_slot, |has| *has).await;
    } else {
        let migration = cluster.begin_migration(slot, to).await;
        migration.move_keys(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        migration.finish().await;
    }
}
