//! A master and its replica, and a name that leads to one of them, as a virtual address does.

use super::wire::Wire;
use super::{Redis, Setup};
use crate::support::{PATIENCE, becomes};

/// Running servers; the first one is the master at the beginning, and the name leads to it.
pub(crate) struct Pair {
    pub(crate) name: Wire,
    pub(crate) servers: [Redis; 2],
}

impl Pair {
    /// Starts both, and waits until they are in step.
    pub(crate) async fn start() -> Self {
        Self::start_as(Setup::default(), Setup::default()).await
    }

    /// The same of servers as they are to be.
    pub(crate) async fn start_as(master: Setup, replica: Setup) -> Self {
        let servers = [Redis::start_as(master).await, Redis::start_as(replica).await];
        let pair = Self { name: Wire::to(servers[0].address).await, servers };
        pair.follow(1).await;
        pair
    }

    /// Where the name is, for a client; without TLS and password.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.name.address)
    }

    /// Makes a server the replica of the other one, and waits until it is in step.
    pub(crate) async fn follow(&self, replica: usize) {
        let (replica, master) = (&self.servers[replica], self.servers[1 - replica].address);
        replica.command(&["REPLICAOF", &master.ip().to_string(), &master.port().to_string()]).await;
        let state = || async { replica.info("replication").await["master_link_status"].clone() };
        becomes("the replica is in step", PATIENCE, state, |state| state == "up").await;
    }

    /// Makes a server the master and the other one its replica.
    pub(crate) async fn promote(&self, master: usize) {
        self.servers[master].command(&["REPLICAOF", "NO", "ONE"]).await;
        self.follow(1 - master).await;
    }

    /// Leads the name to a server; connections that are open stay where they are.
    pub(crate) fn lead_to(&self, server: usize) {
        self.name.lead_to(self.servers[server].address);
    }
}
