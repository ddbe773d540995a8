//! Masters that are killed, and replaced by their replicas.

use super::{TEST_TIMEOUT, becomes};
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::redis::sentinels::Sentinels;

/// Time in milliseconds for which a master takes no writes before it is killed.
const PAUSE: &str = "60000";

/// Writes that the death of a master loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// No writes: all replicas have them.
    None,
    /// Writes that have not reached the replicas.
    Possible,
}

/// The servers of a run.
pub(super) enum Masters {
    One(Redis),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

impl Masters {
    pub(super) fn url(&self) -> String {
        match self {
            Self::One(redis) => redis.url(),
            Self::Sentinels(group) => group.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(super) fn have_replicas(&self) -> bool {
        !matches!(self, Self::One(_))
    }

    /// Kills a master, waits for its successor, and restarts it as a replica of that.
    pub(super) async fn kill_one(&self, loss: Loss, random: &mut Random) {
        match self {
            Self::One(_) => {}
            Self::Sentinels(group) => {
                let old = group.master().await;
                let replicas: Vec<&Redis> =
                    group.servers.iter().filter(|server| server.address != old.address).collect();
                kill(old, &replicas, loss).await;
                group.successor_of(old.address).await;
                old.restart().await;
                group.master().await;
            }
            Self::Cluster(cluster) => {
                let slot = u16::try_from(random.below(16_384)).unwrap();
                let master = cluster.master_of(slot).await;
                let replica = cluster.replica_of(slot).await;
                kill(&master.redis, &[&replica.redis], loss).await;
                cluster.wait_until_promoted(replica).await;
                master.redis.restart().await;
                let follows = async || {
                    let info = replica.redis.info("replication").await;
                    info.values().any(|value| value.contains("state=online"))
                };
                becomes("the old master follows", TEST_TIMEOUT, follows, |follows| *follows).await;
                cluster.wait_until_agreed().await;
            }
        }
    }
}

async fn kill(master: &Redis, replicas: &[&Redis], loss: Loss) {
    if loss == Loss::None {
        master.command(&["CLIENT", "PAUSE", PAUSE, "WRITE"]).await;
        for replica in replicas {
            let has_all = async || {
                let sent = offset(master, "master_repl_offset").await;
                sent == offset(replica, "slave_repl_offset").await
            };
            becomes("the replica has all", 2 * TEST_TIMEOUT, has_all, |all| *all).await;
        }
    }
    master.kill();
}

async fn offset(server: &Redis, name: &str) -> String {
    server.info("replication").await.get(name).cloned().unwrap_or_default()
}
