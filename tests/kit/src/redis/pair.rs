//! A master and its replica, and a name that resolves to one of them, like a virtual IP address.

use super::wire::Wire;
use super::{Redis, Setup};
use crate::{TEST_TIMEOUT, becomes};

/// Two running servers; initially the first one is the master and the name resolves to it.
pub struct Pair {
    pub name: Wire,
    pub servers: [Redis; 2],
}

impl Pair {
    /// Starts both, and waits until they are in sync.
    pub async fn start() -> Self {
        Self::start_as(Setup::default(), Setup::default()).await
    }

    /// Starts both with the given setups.
    pub async fn start_as(master: Setup, replica: Setup) -> Self {
        let servers = [Redis::start_as(master).await, Redis::start_as(replica).await];
        let pair = Self { name: Wire::to(servers[0].address).await, servers };
        pair.follow(1).await;
        pair
    }

    /// Returns the URL of the name, without TLS and password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.name.address)
    }

    /// Makes a server the replica of the other one, and waits until it is in sync.
    pub async fn follow(&self, replica: usize) {
        let master = self.servers[1 - replica].address;
        let replica = &self.servers[replica];
        replica.command(&["REPLICAOF", &master.ip().to_string(), &master.port().to_string()]).await;
        let state = || async { replica.info("replication").await["master_link_status"].clone() };
        becomes("the replica is in step", TEST_TIMEOUT, state, |state| state == "up").await;
    }

    /// Makes a server the master and the other one its replica.
    pub async fn promote(&self, master: usize) {
        self.servers[master].command(&["REPLICAOF", "NO", "ONE"]).await;
        self.follow(1 - master).await;
    }

    /// Points the name at a server; open connections are not affected.
    pub fn lead_to(&self, server: usize) {
        self.name.lead_to(self.servers[server].address);
    }
}
