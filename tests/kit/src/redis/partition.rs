//! Network partitions: a wire in front of each node, and a source address of its own for the
//! connections that it makes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::cluster::{Cluster, Node};
use super::wire::Wire;

/// Source address of clients' connections; nodes have other addresses.
const CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The extent of a node's isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Isolated from the other nodes; clients still reach it, and it has not noticed the partition
    /// yet.
    FromNodes,
    /// Isolated from nodes and clients.
    FromAll,
}

/// The wires in front of a node.
pub(super) struct Wires {
    pub(super) clients: Wire,
    pub(super) bus: Wire,
    /// Source address of the node's own connections to other nodes.
    pub(super) source: IpAddr,
}

impl Cluster {
    /// Isolates a node: sent data does not arrive, and connections stay open. The cluster must be
    /// wired.
    pub fn isolate(&self, node: &Node, isolation: Isolation) {
        let mut isolated = self.isolated.lock().unwrap();
        isolated.insert(node.wires().source, isolation);
        for node in &self.nodes {
            let own = isolated.get(&node.wires().source).copied();
            let isolated = isolated.clone();
            node.wires().pass_if(move |source| match own {
                None => !isolated.contains_key(&source),
                Some(Isolation::FromNodes) => source == CLIENTS,
                Some(Isolation::FromAll) => false,
            });
        }
    }

    /// Reverts every `isolate`.
    pub fn heal(&self) {
        self.nodes.iter().for_each(|node| node.wires().pass_if(|_| true));
        self.isolated.lock().unwrap().clear();
    }
}

impl Wires {
    pub(super) async fn listen(index: usize) -> Self {
        let source = Ipv4Addr::new(127, 0, 0, 11 + u8::try_from(index).unwrap()).into();
        Self { clients: Wire::listen().await, bus: Wire::listen().await, source }
    }

    fn pass_if(&self, rule: impl Fn(IpAddr) -> bool + Clone + Send + Sync + 'static) {
        self.clients.pass_if(rule.clone());
        self.bus.pass_if(rule);
    }
}

impl Node {
    /// Returns `true` if `isolate` has cut this node off.
    pub(super) fn is_in(&self, isolated: &BTreeMap<IpAddr, Isolation>) -> bool {
        self.wires.as_ref().is_some_and(|wires| isolated.contains_key(&wires.source))
    }

    fn wires(&self) -> &Wires {
        self.wires.as_ref().expect("only a wired cluster can be cut")
    }
}
