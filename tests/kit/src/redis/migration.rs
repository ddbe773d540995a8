//! Migration of a slot between masters, as `redis-cli --cluster reshard` does it, but step by step.

use super::cluster::{Cluster, Node};

/// A slot in migration. The source serves the keys that it still has, and redirects clients to the
/// target with ASK for all others, until the migration is finished.
pub struct Migration<'a> {
    pub slot: u16,
    pub from: &'a Node,
    pub to: &'a Node,
    cluster: &'a Cluster,
}

impl Cluster {
    /// Starts the migration of a slot without moving any keys.
    pub async fn begin_migration<'a>(&'a self, slot: u16, to: &'a Node) -> Migration<'a> {
        let migration = Migration { slot, from: self.master_of(slot).await, to, cluster: self };
        migration.set_slot(to, &["IMPORTING", &migration.from.id]).await;
        migration.set_slot(migration.from, &["MIGRATING", &to.id]).await;
        migration
    }
}

impl Migration<'_> {
    /// Moves at most `most` keys, and returns the number of keys moved.
    pub async fn move_keys(&self, most: usize) -> usize {
        let slot = self.slot.to_string();
        let most = most.to_string();
        let keys: Vec<Vec<u8>> =
            self.from.redis.query(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]).await.unwrap();
        if !keys.is_empty() {
            let ip = self.to.redis.address.ip().to_string();
            let port = self.to.redis.address.port().to_string();
            let mut command: Vec<&[u8]> =
                vec![b"MIGRATE", ip.as_bytes(), port.as_bytes(), b"", b"0", b"10000"];
            command.extend(
                self.to
                    .redis
                    .setup
                    .password
                    .iter()
                    .flat_map(|password| [b"AUTH", password.as_bytes()]),
            );
            command.push(b"KEYS");
            command.extend(keys.iter().map(Vec::as_slice));
            self.from.redis.query_bytes::<redis::Value>(&command).await.unwrap();
        }
        keys.len()
    }

    /// Moves the remaining keys, assigns the slot, and waits until all nodes agree.
    pub async fn finish(self) {
        while self.move_keys(100).await > 0 {}
        self.set_slot(self.to, &["NODE", &self.to.id]).await;
        self.set_slot(self.from, &["NODE", &self.to.id]).await;
        self.cluster.wait_until_agreed().await;
    }

    /// Cancels the migration, and moves keys back that have already moved.
    pub async fn abandon(self) {
        let back =
            Migration { slot: self.slot, from: self.to, to: self.from, cluster: self.cluster };
        while back.move_keys(100).await > 0 {}
        for node in [self.from, self.to] {
            self.set_slot(node, &["STABLE"]).await;
        }
    }

    async fn set_slot(&self, node: &Node, state: &[&str]) {
        let slot = self.slot.to_string();
        node.redis.command(&[&["CLUSTER", "SETSLOT", &slot], state].concat()).await;
    }
}
