//! A Redis Cluster: masters that share the slots, and replicas; created by commands, without
//! redis-cli.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Mutex;

use redis::RedisResult;

use super::partition::{Isolation, Wires};
use super::view::View;
use super::{Kind, Redis, Setup, listed, port};
use crate::{TEST_TIMEOUT, becomes};

const SLOTS: u16 = 16_384;

/// The layout of a cluster.
#[derive(Clone)]
pub struct Layout {
    pub masters: usize,
    /// Number of replicas per master.
    pub replicas: usize,
    /// Time without a response after which the other nodes consider a node down. A failover takes a
    /// second or two more.
    pub node_timeout_ms: u32,
    /// Set if the cluster stops serving when any slot has no master.
    pub needs_all_slots: bool,
    /// Puts wires in front of all nodes, so that `isolate` can cut them; not possible with Redis
    /// 6.2.
    pub is_wired: bool,
    /// Setup of each node.
    pub setup: Setup,
}

impl Default for Layout {
    fn default() -> Self {
        let needs_all_slots = true;
        let is_wired = false;
        let setup = Setup::default();
        Self { masters: 3, replicas: 1, node_timeout_ms: 1500, needs_all_slots, is_wired, setup }
    }
}

/// A running cluster.
pub struct Cluster {
    /// The initial masters, followed by their replicas.
    pub nodes: Vec<Node>,
    pub(super) isolated: Mutex<BTreeMap<IpAddr, Isolation>>,
}

/// A member of a cluster.
pub struct Node {
    pub redis: Redis,
    /// Node ID within the cluster.
    pub id: String,
    /// Address for other nodes and clients: that of the wire, if there is one.
    pub address: SocketAddr,
    bus: SocketAddr,
    pub(super) wires: Option<Wires>,
}

impl Cluster {
    /// Starts `masters` masters with `replicas` replicas each.
    pub async fn start(masters: usize, replicas: usize) -> Self {
        Self::start_as(Layout { masters, replicas, ..Layout::default() }).await
    }

    /// Starts a cluster, and waits until all nodes serve and all replicas are in sync.
    pub async fn start_as(layout: Layout) -> Self {
        let count = layout.masters * (1 + layout.replicas);
        let mut wires = Vec::new();
        let mut kinds = Vec::new();
        for index in 0..count {
            wires.push(if layout.is_wired { Some(Wires::listen(index).await) } else { None });
            kinds.push(Kind::Server(layout.lines(wires[index].as_ref())));
        }
        let mut nodes = Vec::new();
        for (redis, wires) in Redis::start_all(&layout.setup, kinds).await.into_iter().zip(wires) {
            nodes.push(Node::join(redis, wires).await);
        }
        let cluster = Self { nodes, isolated: Mutex::default() };
        cluster.form(layout.masters).await;
        cluster
    }

    /// Returns the addresses of all nodes, as seeds for clients.
    pub fn seeds(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Returns the seeds as a store URL.
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", listed(&self.seeds()))
    }

    /// Returns the slot of a key.
    pub async fn slot_of(&self, key: &str) -> u16 {
        self.reachable()[0].redis.query(&["CLUSTER", "KEYSLOT", key]).await.unwrap()
    }

    /// Returns the master of a slot: of the nodes that claim it, the one with the highest epoch.
    pub async fn master_of(&self, slot: u16) -> &Node {
        let mut found = None;
        for node in self.reachable() {
            let own = node.own_view().await;
            if own.has(slot) && found.as_ref().is_none_or(|(epoch, _)| *epoch < own.epoch) {
                found = Some((own.epoch, node));
            }
        }
        found.unwrap_or_else(|| panic!("no server has slot {slot}")).1
    }

    /// Returns a replica of the master of a slot.
    pub async fn replica_of(&self, slot: u16) -> &Node {
        let master = self.master_of(slot).await;
        for node in self.reachable() {
            if node.is_replica_of(master).await {
                return node;
            }
        }
        panic!("{} has no replica that runs", master.address)
    }

    /// Promotes a replica by a manual failover, which loses no writes.
    pub async fn failover(&self, replica: &Node) {
        replica.redis.command(&["CLUSTER", "FAILOVER"]).await;
        self.wait_until_promoted(replica).await;
    }

    /// Waits until all reachable nodes see `node` as a master and serve.
    pub async fn wait_until_promoted(&self, node: &Node) {
        let is_master = |view: &View| {
            view.id == node.id
                && view.flags.iter().any(|flag| flag == "master")
                && !view.slots.is_empty()
        };
        let is_promoted = |views: &Result<Vec<View>, String>| {
            views.as_ref().is_ok_and(|now| now.iter().any(is_master))
        };
        let _ = becomes(
            &format!("{} is a master for all", node.address),
            TEST_TIMEOUT,
            || self.agreed_view(),
            is_promoted,
        )
        .await;
    }

    /// Waits until all reachable nodes serve, and agree on the masters of the slots.
    pub async fn wait_until_agreed(&self) {
        let _ =
            becomes("the cluster agrees", TEST_TIMEOUT, || self.agreed_view(), Result::is_ok).await;
    }

    /// Returns the nodes that run and are not isolated.
    fn reachable(&self) -> Vec<&Node> {
        let isolated = self.isolated.lock().unwrap();
        let is_reachable = |node: &&Node| node.redis.is_up() && !node.is_in(&isolated);
        self.nodes.iter().filter(is_reachable).collect()
    }

    /// Joins nodes that do not know each other into a cluster.
    async fn form(&self, masters: usize) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Unique config epochs from the start avoid epoch conflicts that the nodes would have
            // to resolve.
            node.redis.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await;
            if index < masters {
                let slots: Vec<String> =
                    share(index, masters).map(|slot| slot.to_string()).collect();
                let slots = slots.iter().map(String::as_str);
                let command: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
                node.redis.command(&command).await;
            }
            for known in &self.nodes[..index] {
                let ip = known.address.ip();
                let port = known.address.port();
                let bus = known.bus.port();
                let ip = ip.to_string();
                let port = port.to_string();
                let bus = bus.to_string();
                node.redis.command(&["CLUSTER", "MEET", &ip, &port, &bus]).await;
            }
        }
        becomes("all nodes have met", TEST_TIMEOUT, || self.have_met(), |have_met| *have_met).await;
        for (index, replica) in self.nodes.iter().enumerate().skip(masters) {
            let master = &self.nodes[index % masters];
            replica.redis.command(&["CLUSTER", "REPLICATE", &master.id]).await;
        }
        becomes(
            "the replicas are in step",
            TEST_TIMEOUT,
            || self.replicas(),
            |now| *now == self.nodes.len() - masters,
        )
        .await;
        self.wait_until_agreed().await;
    }

    async fn have_met(&self) -> bool {
        for node in &self.nodes {
            let views = node.views().await.unwrap_or_default();
            let mut ids: Vec<&String> = views.iter().map(|view| &view.id).collect();
            ids.retain(|id| self.nodes.iter().any(|node| node.id == **id));
            if ids.len() != self.nodes.len() || views.len() != self.nodes.len() {
                return false;
            }
        }
        true
    }

    /// Returns the number of replicas that are in sync.
    async fn replicas(&self) -> usize {
        let mut count = 0;
        for node in &self.nodes {
            let info = node.redis.info("replication").await;
            count += info.values().filter(|value| value.contains("state=online")).count();
        }
        count
    }

    /// Returns the masters with slots that all reachable nodes agree on. Otherwise, returns the
    /// node that disagrees or does not serve.
    async fn agreed_view(&self) -> Result<Vec<View>, String> {
        let mut agreed: Option<Vec<View>> = None;
        for node in self.reachable() {
            let failure = |error: &dyn Debug| format!("{}: {error:?}", node.address);
            let info: String =
                node.redis.query(&["CLUSTER", "INFO"]).await.map_err(|error| failure(&error))?;
            if !info.contains("cluster_state:ok") {
                return Err(failure(&info));
            }
            let mut views = node.views().await.map_err(|error| failure(&error))?;
            views.retain(|view| !view.slots.is_empty());
            views.iter_mut().for_each(|view| view.flags.retain(|flag| flag != "myself"));
            views.sort();
            if agreed.as_ref().is_some_and(|agreed| *agreed != views) {
                return Err(format!("{} sees {views:?}, others {agreed:?}", node.address));
            }
            agreed = Some(views);
        }
        agreed.ok_or_else(|| "no node can be reached".to_owned())
    }
}

impl Node {
    async fn join(redis: Redis, wires: Option<Wires>) -> Self {
        let id = redis.query(&["CLUSTER", "MYID"]).await.unwrap();
        let own_bus = SocketAddr::new(redis.address.ip(), redis.address.port() + port::BUS);
        if let Some(wires) = &wires {
            wires.clients.lead_to(redis.address);
            wires.bus.lead_to(own_bus);
        }
        let (address, bus) = wires
            .as_ref()
            .map_or((redis.address, own_bus), |wires| (wires.clients.address, wires.bus.address));
        Self { redis, id, address, bus, wires }
    }

    /// Returns `true` if this node considers itself a replica of `master`.
    pub async fn is_replica_of(&self, master: &Self) -> bool {
        self.own_view().await.master == master.id
    }

    /// Returns this node's view of all nodes.
    async fn views(&self) -> RedisResult<Vec<View>> {
        let text: String = self.redis.query(&["CLUSTER", "NODES"]).await?;
        Ok(text.lines().map(View::parse).collect())
    }

    /// Returns this node's view of itself.
    async fn own_view(&self) -> View {
        let views = self.views().await.unwrap();
        views.into_iter().find(|view| view.id == self.id).unwrap()
    }
}

impl Layout {
    fn lines(&self, wires: Option<&Wires>) -> Vec<String> {
        let coverage = if self.needs_all_slots { "yes" } else { "no" };
        let mut lines = vec![
            "cluster-enabled yes".to_owned(),
            format!("cluster-node-timeout {}", self.node_timeout_ms),
            format!("cluster-require-full-coverage {coverage}"),
            // A replica is eligible for failover however long it was disconnected from its master.
            "cluster-replica-validity-factor 0".to_owned(),
            "cluster-announce-ip 127.0.0.1".to_owned(),
        ];
        if let Some(wires) = wires {
            let client = wires.clients.address.port();
            let bus = wires.bus.address.port();
            let announced = if self.setup.tls.is_some() {
                "cluster-announce-tls-port"
            } else {
                "cluster-announce-port"
            };
            lines.extend([
                format!("{announced} {client}"),
                format!("cluster-announce-bus-port {bus}"),
            ]);
            lines.push(format!("bind-source-addr {}", wires.source));
        }
        lines
    }
}

/// Returns the slots of one master; all but the last have the same number.
fn share(index: usize, masters: usize) -> RangeInclusive<u16> {
    let index = u16::try_from(index).unwrap();
    let masters = u16::try_from(masters).unwrap();
    let begin = |index: u16| {
        u16::try_from(u32::from(index) * u32::from(SLOTS) / u32::from(masters)).unwrap()
    };
    begin(index)..=begin(index + 1) - 1
}
