//! A master, its replicas, and three sentinels that agree on which is which.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{Kind, Redis, Setup};
use crate::support::{PATIENCE, becomes};

/// What the sentinels call the master.
pub(crate) const MASTER: &str = "main";

/// What to start.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) replicas: usize,
    /// How long a master may be silent before a sentinel thinks that it is down. A failover takes about a second more.
    pub(crate) down_after_ms: u32,
    /// What the sentinels ask of those who come to them.
    pub(crate) sentinel_password: Option<&'static str>,
    /// How each server is to be.
    pub(crate) setup: Setup,
}

impl Default for Watch {
    fn default() -> Self {
        Self { replicas: 2, down_after_ms: 1000, sentinel_password: None, setup: Setup::default() }
    }
}

/// Running servers with sentinels.
pub(crate) struct Sentinels {
    /// The servers; the first one was the master at the beginning.
    pub(crate) servers: Vec<Redis>,
    pub(crate) sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts a master, two replicas and three sentinels.
    pub(crate) async fn start() -> Self {
        Self::start_as(Watch::default()).await
    }

    /// Starts what `watch` says, and waits until replicas are in step and the sentinels see each other and them.
    pub(crate) async fn start_as(watch: Watch) -> Self {
        let mut servers = vec![Redis::start_as(watch.setup.clone()).await];
        let master = servers[0].address;
        let following = Kind::Server(vec![format!("replicaof {} {}", master.ip(), master.port())]);
        servers.extend(Redis::start_all(&watch.setup, vec![following; watch.replicas]).await);
        let watching = Kind::Sentinel(watch.lines(master));
        let setup = Setup { password: watch.sentinel_password, lines: Vec::new(), ..watch.setup };
        let sentinels = Redis::start_all(&setup, vec![watching; 3]).await;
        let group = Self { servers, sentinels };
        group.hurry("250").await;
        group.master().await;
        // Four of these are what a sentinel waits before it makes a replica again of a master that it has not heard of: a
        // planned failover must be over by then, on a busy machine too.
        group.hurry("1000").await;
        group
    }

    /// Where the sentinels are.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|sentinel| sentinel.address).collect()
    }

    /// The master, once all is in order: all sentinels name the same one, and see that all servers that run follow it.
    pub(crate) async fn master(&self) -> &Redis {
        let in_order = async || {
            let master = self.named().await?;
            self.is_followed(master).await.map(|()| master)
        };
        let master = becomes("the sentinels see all in order", 2 * PATIENCE, in_order, Result::is_ok).await;
        self.server_at(master.unwrap()).unwrap()
    }

    /// A server that is not the master.
    pub(crate) async fn replica(&self) -> &Redis {
        let master = self.master().await.address;
        self.servers.iter().find(|server| server.is_up() && server.address != master).expect("there is no replica")
    }

    /// Makes another server the master, as an operator would; says which. The old one goes on as a master, whose writes
    /// will be lost, until the sentinels get round to it: some four seconds with us, eight by default.
    pub(crate) async fn failover(&self) -> &Redis {
        let old = self.master().await.address;
        let command = ["SENTINEL", "FAILOVER", MASTER];
        let is_begun = |answer: &redis::RedisResult<String>| answer.is_ok();
        let _ = becomes("a sentinel begins a failover", PATIENCE, || self.sentinels[0].ask(&command), is_begun).await;
        self.successor_of(old).await
    }

    /// Waits until all sentinels name another master than `old`, which a test has killed or paused; says which.
    pub(crate) async fn successor_of(&self, old: SocketAddr) -> &Redis {
        let is_other = |named: &Result<SocketAddr, String>| named.as_ref().is_ok_and(|master| *master != old);
        let master = becomes("the sentinels replace the master", PATIENCE, || self.named(), is_other).await;
        self.server_at(master.unwrap()).unwrap()
    }

    /// Whom all sentinels that run name as the master, if it is one and they know each other; or else what is not right.
    async fn named(&self) -> Result<SocketAddr, String> {
        let mut named = BTreeSet::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let info = sentinel.try_info("sentinel").await.map_err(|error| error.to_string())?;
            let of_master = info.get("master0").ok_or("no master")?;
            let others = format!(",slaves={},sentinels={}", self.servers.len() - 1, self.sentinels.len());
            let address = of_master.strip_prefix(&format!("name={MASTER},status=ok,address="));
            let address = address.and_then(|rest| rest.strip_suffix(&others));
            named.insert(address.ok_or_else(|| of_master.clone())?.to_owned());
        }
        let named: Vec<_> = named.into_iter().collect();
        let [master] = named.as_slice() else { return Err(format!("they name {named:?}")) };
        let master: SocketAddr = master.parse().map_err(|_| master.clone())?;
        let server = self.server_at(master).filter(|server| server.is_up()).ok_or("a master that does not run")?;
        let info = server.try_info("replication").await.map_err(|error| error.to_string())?;
        info.get("role").filter(|role| *role == "master").map(|_| master).ok_or(format!("{master} is no master"))
    }

    /// Whether each sentinel has seen that all the other servers that run are replicas of `master`, and in step.
    async fn is_followed(&self, master: SocketAddr) -> Result<(), String> {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let replicas = sentinel.ask::<Vec<BTreeMap<String, String>>>(&["SENTINEL", "REPLICAS", MASTER]).await;
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

    /// Has the sentinels tell each other of themselves after so many milliseconds, look more often than every ten seconds,
    /// and not give up for half a minute when this machine stalls for two. Old ones cannot be told, and take their time.
    async fn hurry(&self, publish_period: &str) {
        let periods = ["info-period", "500", "ask-period", "250", "tilt-trigger", "20000"];
        let command = [&["SENTINEL", "DEBUG", "publish-period", publish_period], &periods[..]].concat();
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
        lines.extend(self.setup.password.map(|password| format!("sentinel auth-pass {MASTER} {password}")));
        lines.extend(self.sentinel_password.map(|password| format!("sentinel sentinel-pass {password}")));
        lines
    }
}
