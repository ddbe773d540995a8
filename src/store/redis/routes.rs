//! Which node serves which slot, as far as is known, and where to ask when it is not known any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::access::Access;
use super::connect::RequiredRole;
use super::node::Node;
use super::url::Address;
use crate::telemetry::metrics::Metrics;

/// The nodes of a store, and the slots of each.
#[derive(Debug)]
pub(super) struct Routes {
    served: ArcSwap<Served>,
    /// Every node that is connected to, those of other slots that were asked once included.
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    access: Arc<Access>,
    /// Of each node.
    role: RequiredRole,
    metrics: Arc<Metrics>,
    /// Somebody found the map wrong.
    stale: Notify,
    /// Whether there was a map, or nobody of those who were asked had one.
    searched: AtomicBool,
}

/// Nodes by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// The masters.
    pub(super) masters: Vec<Address>,
    /// Which of them serves each slot; empty: the first serves all.
    pub(super) by_slot: Vec<Option<u16>>,
}

/// A map with its nodes.
#[derive(Debug, Default)]
struct Served {
    map: Map,
    /// The masters, in their order.
    masters: Vec<Arc<Node>>,
}

impl Routes {
    pub(super) fn new(access: Arc<Access>, role: RequiredRole, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            served: ArcSwap::default(),
            nodes: Mutex::default(),
            access,
            role,
            metrics,
            stale: Notify::new(),
            searched: AtomicBool::new(false),
        })
    }

    /// As whom the nodes are connected to.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// The node that serves a slot.
    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.with_node(slot, Arc::clone)
    }

    /// What `ask` tells of the node that serves a slot.
    pub(super) fn with_node<T>(&self, slot: u16, ask: impl FnOnce(&Arc<Node>) -> T) -> Option<T> {
        let served = self.served.load();
        let master = match served.map.by_slot.is_empty() {
            true => 0,
            false => usize::from(served.map.by_slot.get(usize::from(slot)).copied().flatten()?),
        };
        served.masters.get(master).map(ask)
    }

    /// The node at an address, which is connected to where it is new.
    pub(super) fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let (access, metrics) = (Arc::clone(&self.access), Arc::clone(&self.metrics));
        let node = Node::start(address.clone(), access, self.role.clone(), metrics);
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// The masters, connected or not.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        self.served.load().masters.clone()
    }

    /// Puts a map in force and lets go of nodes that it has no more.
    pub(super) fn replace(&self, map: Map) {
        if self.served.load().map == map {
            return;
        }
        self.nodes.lock().retain(|address, _| map.masters.contains(address));
        let masters = map.masters.iter().map(|address| self.node_at(address)).collect();
        self.served.store(Arc::new(Served { map, masters }));
        self.end_search();
    }

    /// Says that there is a map, or that nobody who could be asked has one.
    pub(super) fn end_search(&self) {
        self.searched.store(true, Ordering::Release);
    }

    /// Whether it is known who the masters are, or that nobody knows.
    pub(super) fn has_searched(&self) -> bool {
        self.searched.load(Ordering::Acquire)
    }

    /// Whether it was tried to reach the masters, with whatever success.
    pub(super) fn is_tried(&self) -> bool {
        self.has_searched() && self.masters().iter().all(|node| node.is_tried())
    }

    /// Says that the map may be wrong.
    pub(super) fn doubt(&self) {
        self.stale.notify_one();
    }

    /// Waits for a doubt, but no longer than `longest`, and at least `shortest`.
    pub(super) async fn doubted(&self, shortest: Duration, longest: Duration) {
        tokio::time::sleep(shortest).await;
        let _ = tokio::time::timeout(longest, self.stale.notified()).await;
    }
}
