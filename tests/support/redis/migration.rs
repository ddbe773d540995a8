//! A slot on its way from one master to another, as `redis-cli --cluster reshard` moves it, but step by step.

use super::cluster::{Cluster, Node};

/// A slot between two masters: the old one answers for the keys that it has still, and sends clients for all others to the
/// new one with ASK. Stays so until it is finished.
pub(crate) struct Migration<'a> {
    pub(crate) slot: u16,
    pub(crate) from: &'a Node,
    pub(crate) to: &'a Node,
    cluster: &'a Cluster,
}

impl Cluster {
    /// Moves a slot with all its keys.
    pub(crate) async fn move_slot(&self, slot: u16, to: &Node) {
        self.begin_migration(slot, to).await.finish().await;
    }

    /// Begins to move a slot: no key has moved yet.
    pub(crate) async fn begin_migration<'a>(&'a self, slot: u16, to: &'a Node) -> Migration<'a> {
        let migration = Migration { slot, from: self.master_of(slot).await, to, cluster: self };
        migration.set_slot(to, &["IMPORTING", &migration.from.id]).await;
        migration.set_slot(migration.from, &["MIGRATING", &to.id]).await;
        migration
    }
}

impl Migration<'_> {
    /// Moves so many keys, or fewer where there are not so many; says how many it moved.
    pub(crate) async fn move_keys(&self, most: usize) -> usize {
        let (slot, most) = (self.slot.to_string(), most.to_string());
        let keys: Vec<Vec<u8>> = self.from.redis.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &most]).await.unwrap();
        if !keys.is_empty() {
            let (ip, port) = (self.to.redis.address.ip().to_string(), self.to.redis.address.port().to_string());
            let mut command: Vec<&[u8]> = vec![b"MIGRATE", ip.as_bytes(), port.as_bytes(), b"", b"0", b"10000"];
            command.extend(self.to.redis.setup.password.iter().flat_map(|password| [b"AUTH", password.as_bytes()]));
            command.push(b"KEYS");
            command.extend(keys.iter().map(Vec::as_slice));
            self.from.redis.ask_bytes::<redis::Value>(&command).await.unwrap();
        }
        keys.len()
    }

    /// Moves what keys there are left, tells all masters, and waits until all nodes know.
    pub(crate) async fn finish(self) {
        while self.move_keys(100).await > 0 {}
        self.set_slot(self.to, &["NODE", &self.to.id]).await;
        self.set_slot(self.from, &["NODE", &self.to.id]).await;
        self.cluster.wait_until_agreed().await;
    }

    /// Puts the slot back to where it was, with the keys that moved already.
    pub(crate) async fn abandon(self) {
        let back = Migration { slot: self.slot, from: self.to, to: self.from, cluster: self.cluster };
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
