//! A master, its replicas, and three sentinels that watch them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{Kind, Redis, Setup, listed};
use crate::{TEST_TIMEOUT, becomes};

/// Name of the master in the sentinels' configuration.
pub const MASTER: &str = "main";

/// The layout of a sentinel group.
#[derive(Clone)]
pub struct Watch {
    pub replicas: usize,
    /// Time without a response after which a sentinel considers a master down. A failover takes
    /// about a second more.
    pub down_after_ms: u32,
    /// Password that the sentinels require from clients.
    pub sentinel_password: Option<&'static str>,
    /// Setup of each server.
    pub setup: Setup,
}

impl Default for Watch {
    fn default() -> Self {
        Self { replicas: 2, down_after_ms: 1000, sentinel_password: None, setup: Setup::default() }
    }
}

/// A running group of servers and sentinels.
pub struct Sentinels {
    /// The servers; the first one was the initial master.
    pub servers: Vec<Redis>,
    pub sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts a master, two replicas and three sentinels.
    pub async fn start() -> Self {
        Self::start_as(Watch::default()).await
    }

    /// Starts a group, and waits until replicas are in sync and the sentinels know each other and
    /// the replicas.
    pub async fn start_as(watch: Watch) -> Self {
        let mut servers = vec![Redis::start_as(watch.setup.clone()).await];
        let master = servers[0].address;
        let following = Kind::Server(vec![format!("replicaof {} {}", master.ip(), master.port())]);
        servers.extend(Redis::start_all(&watch.setup, vec![following; watch.replicas]).await);
        let watching = Kind::Sentinel(watch.lines(master));
        let setup = Setup { password: watch.sentinel_password, lines: Vec::new(), ..watch.setup };
        let sentinels = Redis::start_all(&setup, vec![watching; 3]).await;
        let group = Self { servers, sentinels };
        group.set_publish_period("250").await;
        group.master().await;
        // A sentinel waits four of these periods before it demotes an unexpected master to a
        // replica. A planned failover must be over by then, on a busy machine too.
        group.set_publish_period("1000").await;
        group
    }

    /// Returns the addresses of the sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|sentinel| sentinel.address).collect()
    }

    /// Returns the sentinels as a store URL.
    pub fn url(&self) -> String {
        format!("redis-sentinel://{MASTER}@{}", listed(&self.addresses()))
    }

    /// Waits until all sentinels name the same master, and see all running servers follow it.
    /// Returns the master.
    pub async fn master(&self) -> &Redis {
        let in_order = async || {
            let master = self.named().await?;
            self.is_followed(master).await.map(|()| master)
        };
        let master =
            becomes("the sentinels see all in order", 2 * TEST_TIMEOUT, in_order, Result::is_ok)
                .await;
        self.server_at(master.unwrap()).unwrap()
    }

    /// Returns a server that is not the master.
    pub async fn replica(&self) -> &Redis {
        let master = self.master().await.address;
        self.servers
            .iter()
            .find(|server| server.is_up() && server.address != master)
            .expect("there is no replica")
    }

    /// Fails over to another server by a command, as an operator would, and returns the new master.
    /// The old one remains a master, whose writes will be lost, until the sentinels demote it:
    /// after about four seconds here, eight by default.
    pub async fn failover(&self) -> &Redis {
        let old = self.master().await.address;
        let command = ["SENTINEL", "FAILOVER", MASTER];
        let is_begun = |answer: &redis::RedisResult<String>| answer.is_ok();
        let _ = becomes(
            "a sentinel begins a failover",
            TEST_TIMEOUT,
            || self.sentinels[0].query(&command),
            is_begun,
        )
        .await;
        self.successor_of(old).await
    }

    /// Waits until all sentinels name a master other than `old`, which a test has killed or paused,
    /// and returns it.
    pub async fn successor_of(&self, old: SocketAddr) -> &Redis {
        let is_other =
            |named: &Result<SocketAddr, String>| named.as_ref().is_ok_and(|master| *master != old);
        let master =
            becomes("the sentinels replace the master", TEST_TIMEOUT, || self.named(), is_other)
                .await;
        self.server_at(master.unwrap()).unwrap()
    }

    /// Returns the master that all running sentinels name, if it is a master and the sentinels know
    /// each other; otherwise, the reason.
    async fn named(&self) -> Result<SocketAddr, String> {
        let mut named = BTreeSet::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let info = sentinel.try_info("sentinel").await.map_err(|error| error.to_string())?;
            let of_master = info.get("master0").ok_or("no master")?;
            let others =
                format!(",slaves={},sentinels={}", self.servers.len() - 1, self.sentinels.len());
            let address = of_master.strip_prefix(&format!("name={MASTER},status=ok,address="));
            let address = address.and_then(|rest| rest.strip_suffix(&others));
            named.insert(address.ok_or_else(|| of_master.clone())?.to_owned());
        }
        let named: Vec<_> = named.into_iter().collect();
        let [master] = named.as_slice() else { return Err(format!("they name {named:?}")) };
        let master: SocketAddr = master.parse().map_err(|_| master.clone())?;
        let server = self
            .server_at(master)
            .filter(|server| server.is_up())
            .ok_or("a master that does not run")?;
        let info = server.try_info("replication").await.map_err(|error| error.to_string())?;
        info.get("role")
            .filter(|role| *role == "master")
            .map(|_| master)
            .ok_or(format!("{master} is no master"))
    }

    /// Returns `Ok` if each sentinel sees all other running servers as replicas of `master`, in
    /// sync.
    async fn is_followed(&self, master: SocketAddr) -> Result<(), String> {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let replicas = sentinel
                .query::<Vec<BTreeMap<String, String>>>(&["SENTINEL", "REPLICAS", MASTER])
                .await;
            let replicas = replicas.map_err(|error| error.to_string())?;
            let is_seen = |server: &Redis| {
                let expected = [
                    ("port", server.address.port().to_string()),
                    ("flags", "slave".to_owned()),
                    ("role-reported", "slave".to_owned()),
                    ("master-link-status", "ok".to_owned()),
                    ("master-port", master.port().to_string()),
                ];
                let follows = |seen: &BTreeMap<String, String>| {
                    expected.iter().all(|(name, value)| seen.get(*name) == Some(value))
                };
                !server.is_up() || server.address == master || replicas.iter().any(follows)
            };
            if !self.servers.iter().all(is_seen) {
                return Err(format!("{} sees {replicas:?}", sentinel.address));
            }
        }
        Ok(())
    }

    fn server_at(&self, address: SocketAddr) -> Option<&Redis> {
        self.servers.iter().find(|server| server.address == address)
    }

    /// Makes the sentinels announce themselves after `publish_period` milliseconds and poll more
    /// often than every ten seconds, and raises the threshold of TILT mode, so that a stall of two
    /// seconds does not disable them for half a minute. Redis 6.2 lacks the command and keeps its
    /// defaults.
    async fn set_publish_period(&self, publish_period: &str) {
        let periods = ["info-period", "500", "ask-period", "250", "tilt-trigger", "20000"];
        let command =
            [&["SENTINEL", "DEBUG", "publish-period", publish_period], &periods[..]].concat();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.setup.flavor.is_modern()) {
            sentinel.command(&command).await;
        }
    }
}

impl Watch {
    fn lines(&self, master: SocketAddr) -> Vec<String> {
        let mut lines = vec![
            format!("sentinel monitor {MASTER} {} {} 2", master.ip(), master.port()),
            format!("sentinel down-after-milliseconds {MASTER} {}", self.down_after_ms),
            format!("sentinel failover-timeout {MASTER} 5000"),
        ];
        lines.extend(
            self.setup.password.map(|password| format!("sentinel auth-pass {MASTER} {password}")),
        );
        lines.extend(
            self.sentinel_password.map(|password| format!("sentinel sentinel-pass {password}")),
        );
        lines
    }
}
