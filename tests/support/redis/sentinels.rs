//! A master, its replicas, and three sentinels that agree on which is which.

use std::collections::BTreeSet;
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
        group.hurry().await;
        group.settled(|_| true).await;
        group
    }

    /// Where the sentinels are.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|sentinel| sentinel.address).collect()
    }

    /// The server that all sentinels name as the master, once they name the same one and it thinks so too.
    pub(crate) async fn master(&self) -> &Redis {
        self.settled(|_| true).await
    }

    /// A server that is not the master.
    pub(crate) async fn replica(&self) -> &Redis {
        let master = self.master().await.address;
        self.servers.iter().find(|server| server.is_up() && server.address != master).expect("there is no replica")
    }

    /// Makes another server the master, as an operator would; says which.
    pub(crate) async fn failover(&self) -> &Redis {
        let old = self.master().await.address;
        let command = ["SENTINEL", "FAILOVER", MASTER];
        let is_begun = |answer: &redis::RedisResult<String>| answer.is_ok();
        let _ = becomes("a sentinel begins a failover", PATIENCE, || self.sentinels[0].ask(&command), is_begun).await;
        self.successor_of(old).await
    }

    /// Waits until the sentinels have replaced a master, which a test has killed or paused; says by which.
    pub(crate) async fn successor_of(&self, old: SocketAddr) -> &Redis {
        self.settled(|master| master != old).await
    }

    /// Waits until all sentinels that run name the same right master, and see each other and its replicas.
    async fn settled(&self, is_right: impl Fn(SocketAddr) -> bool) -> &Redis {
        let is_settled = |named: &Result<SocketAddr, String>| named.as_ref().is_ok_and(|master| is_right(*master));
        let master = becomes("the sentinels agree", PATIENCE, || self.named(), is_settled).await.unwrap();
        self.server_at(master).unwrap()
    }

    /// Whom all name as the master; or else what is not right yet.
    async fn named(&self) -> Result<SocketAddr, String> {
        let mut named = BTreeSet::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let info = sentinel.try_info("sentinel").await.map_err(|error| error.to_string())?;
            let of_master = info.get("master0").ok_or("no master")?;
            let others = format!("slaves={},sentinels={}", self.servers.len() - 1, self.sentinels.len());
            let address = of_master.strip_prefix(&format!("name={MASTER},status=ok,address="));
            let address = address.and_then(|rest| rest.strip_suffix(&format!(",{others}")));
            named.insert(address.ok_or_else(|| of_master.clone())?.to_owned());
        }
        let named: Vec<_> = named.into_iter().collect();
        let [master] = named.as_slice() else { return Err(format!("they name {named:?}")) };
        let master: SocketAddr = master.parse().map_err(|_| master.clone())?;
        self.is_followed(master).await.map(|()| master)
    }

    /// Whether `master` thinks that it is one, and has all the others that run.
    async fn is_followed(&self, master: SocketAddr) -> Result<(), String> {
        let server = self.server_at(master).filter(|server| server.is_up()).ok_or("a master that does not run")?;
        let info = server.try_info("replication").await.map_err(|error| error.to_string())?;
        let replicas = info.values().filter(|value| value.contains("state=online")).count();
        let wanted = self.servers.iter().filter(|server| server.is_up()).count() - 1;
        let is_followed = info.get("role").is_some_and(|role| role == "master") && replicas >= wanted;
        is_followed.then_some(()).ok_or_else(|| format!("{master} has {replicas} of {wanted} replicas: {info:?}"))
    }

    fn server_at(&self, address: SocketAddr) -> Option<&Redis> {
        self.servers.iter().find(|server| server.address == address)
    }

    /// Has the sentinels look more often than every ten seconds, and not give up for half a minute when this machine
    /// stalls for two. Old ones cannot be told, and take their time.
    async fn hurry(&self) {
        let periods = ["info-period", "500", "publish-period", "250", "ask-period", "250", "tilt-trigger", "20000"];
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.setup.flavor.is_modern()) {
            sentinel.command(&[&["SENTINEL", "DEBUG"], &periods[..]].concat()).await;
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
