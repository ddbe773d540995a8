//! Nodes that the others cannot reach: a wire before each, and an address of its own for the connections that it makes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::cluster::{Cluster, Node};
use super::wire::Wire;

/// What clients' connections come from; nodes have other addresses.
const CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Who is cut off from an isolated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// The other nodes; clients reach it still, and it does not know yet that it is alone.
    FromNodes,
    /// Everybody.
    FromAll,
}

/// The wires before a node.
pub(super) struct Wires {
    pub(super) clients: Wire,
    pub(super) bus: Wire,
    /// What the node's own connections to the others come from.
    pub(super) source: IpAddr,
}

impl Cluster {
    /// Cuts a node off: what is sent does not arrive, and connections stay open. The cluster must be wired.
    pub(crate) fn isolate(&self, node: &Node, isolation: Isolation) {
        let mut isolated = self.isolated.lock().unwrap();
        isolated.insert(node.wires().source, isolation);
        for node in &self.nodes {
            let (own, isolated) = (isolated.get(&node.wires().source).copied(), isolated.clone());
            node.wires().pass_if(move |source| match own {
                None => !isolated.contains_key(&source),
                Some(Isolation::FromNodes) => source == CLIENTS,
                Some(Isolation::FromAll) => false,
            });
        }
    }

    /// Mends all that `isolate` has cut.
    pub(crate) fn heal(&self) {
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
    /// Whether `isolate` has cut it off.
    pub(super) fn is_in(&self, isolated: &BTreeMap<IpAddr, Isolation>) -> bool {
        self.wires.as_ref().is_some_and(|wires| isolated.contains_key(&wires.source))
    }

    fn wires(&self) -> &Wires {
        self.wires.as_ref().expect("only a wired cluster can be cut")
    }
}
