//! Routing: the nodes of a store by slot, and the refresh of an outdated map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate_telemetry::metrics::StoreMetrics;

use crate::redis::config::access::Access;
use crate::redis::config::url::ServerAddress;
use crate::redis::server::Node;
use crate::redis::server::connect::RequiredRole;

/// The nodes of a store, and the slots of each.
#[derive(Debug)]
pub(in crate::redis) struct Routes {
    served: ArcSwap<ServedSlots>,
    /// All connected nodes, including those that redirections led to.
    nodes: Mutex<BTreeMap<ServerAddress, Arc<Node>>>,
    access: Arc<Access>,
    /// The role required of each node.
    role: RequiredRole,
    metrics: Arc<StoreMetrics>,
    /// Notifies that the map may be wrong.
    stale: Notify,
    /// Set once there is a map, or once the search for one has failed.
    searched: AtomicBool,
}

/// Nodes by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::redis) struct SlotMap {
    /// The masters.
    pub(in crate::redis) masters: Vec<ServerAddress>,
    /// Index of the master of each slot; if empty, the first master serves all.
    pub(in crate::redis) by_slot: Vec<Option<u16>>,
}

/// A map with its nodes.
#[derive(Debug, Default)]
struct ServedSlots {
    map: SlotMap,
    /// The masters, in their order.
    masters: Vec<Arc<Node>>,
}

impl Routes {
    pub(in crate::redis) fn new(
        access: Arc<Access>,
        role: RequiredRole,
        metrics: Arc<StoreMetrics>,
    ) -> Arc<Self> {
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

    /// Returns the access settings for the nodes.
    pub(in crate::redis) fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the node that serves a slot.
    pub(in crate::redis) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.with_node(slot, Arc::clone)
    }

    /// Applies a function to the node that serves a slot, and returns its result.
    pub(in crate::redis) fn with_node<T>(
        &self,
        slot: u16,
        ask: impl FnOnce(&Arc<Node>) -> T,
    ) -> Option<T> {
        let served = self.served.load();
        let master = if served.map.by_slot.is_empty() {
            0
        } else {
            usize::from(served.map.by_slot.get(usize::from(slot)).copied().flatten()?)
        };
        served.masters.get(master).map(ask)
    }

    /// Returns the node at an address; connects to it if it is new.
    pub(in crate::redis) fn node_at(&self, address: &ServerAddress) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let access = Arc::clone(&self.access);
        let metrics = Arc::clone(&self.metrics);
        let node = Node::start(address.clone(), access, self.role.clone(), metrics);
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Returns the masters, connected or not.
    pub(in crate::redis) fn masters(&self) -> Vec<Arc<Node>> {
        self.served.load().masters.clone()
    }

    /// Installs a map, and drops the nodes that are not in it.
    pub(super) fn replace(&self, map: SlotMap) {
        if self.served.load().map == map {
            return;
        }
        self.nodes.lock().retain(|address, _| map.masters.contains(address));
        let masters = map.masters.iter().map(|address| self.node_at(address)).collect();
        self.served.store(Arc::new(ServedSlots { map, masters }));
        self.end_search();
    }

    /// Marks the search as finished: there is a map, or no reachable node has one.
    pub(super) fn end_search(&self) {
        self.searched.store(true, Ordering::Release);
    }

    /// Returns `true` if the search for the masters is finished, successfully or not.
    pub(in crate::redis) fn has_searched(&self) -> bool {
        self.searched.load(Ordering::Acquire)
    }

    /// Returns `true` once connections to the masters were attempted, successfully or not.
    pub(in crate::redis) fn was_attempted(&self) -> bool {
        self.has_searched() && self.masters().iter().all(|node| node.was_attempted())
    }

    /// Marks the map as possibly wrong.
    pub(in crate::redis) fn doubt(&self) {
        self.stale.notify_one();
    }

    /// Waits for `shortest`, then until the map is marked as possibly wrong, for at most `longest`.
    pub(super) async fn doubted(&self, shortest: Duration, longest: Duration) {
        tokio::time::sleep(shortest).await;
        let _ = tokio::time::timeout(longest, self.stale.notified()).await;
    }
}
