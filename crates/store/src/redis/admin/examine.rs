//! Examination of a store before a service uses it: the capabilities of its servers, and settings
//! that break a promise.

use std::time::{Duration, Instant};

use super::check_up::{eviction_policy, info_field, setting};
use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::{Core, within};
use crate::redis::server::Node;
use crate::redis::server::failure::CallFailure;
use crate::redis::server::rights::{EXTRAS, acl_setuser};
use crate::servers::{Grade, NEARLY_FULL_PERCENT, StoreFinding, memory_percent};

/// Timeout for one command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of round trips that are measured.
const PINGS: usize = 20;
/// Median round trip above which a decision may be late: Envoy waits for 20 ms by default.
const SLOW: Duration = Duration::from_millis(5);
/// The oldest tested version, as `major.minor`.
const OLDEST: (u32, u32) = (6, 2);

/// Number of keys tried, of which a node of a Cluster may have none, and their TTL.
const WRITTEN_KEYS: usize = 64;
const WRITTEN_FOR_MS: &str = "5000";

/// Collects the findings of a server.
struct ServerFindings<'a> {
    node: &'a Node,
    findings: Vec<StoreFinding>,
}

impl RedisStore {
    /// Examines every master.
    pub(in crate::redis) async fn examine(&self) -> Vec<StoreFinding> {
        let mut findings = Vec::new();
        for core in self.cores() {
            for node in core.routes.masters() {
                let mut server = ServerFindings { node: &node, findings: Vec::new() };
                server.examine(core).await;
                findings.append(&mut server.findings);
            }
        }
        findings
    }
}

impl ServerFindings<'_> {
    async fn examine(&mut self, core: &Core) {
        if !self.node.is_connected() {
            let reason = self.node.connect_error().unwrap_or_else(|| "no connection".to_owned());
            let text = format!("cannot connect: {reason}; limits whose keys are here fail");
            return self.add("connection", Grade::Problem, text);
        }
        self.version().await;
        self.latency().await;
        self.scripts(core).await;
        self.rights(core).await;
        self.writes(core).await;
        self.keys(core).await;
        self.memory().await;
        self.eviction().await;
        self.persistence().await;
        self.coverage(core).await;
    }

    fn add(&mut self, topic: &'static str, grade: Grade, text: impl Into<String>) {
        self.findings.push(StoreFinding {
            server: self.node.address.to_string(),
            topic,
            grade,
            text: text.into(),
        });
    }

    async fn call(&self, command: &[&str]) -> Result<redis::Value, CallFailure> {
        let (name, arguments) = command.split_first().ok_or(CallFailure::Unavailable)?;
        self.node.call(redis::cmd(name).arg(arguments), within(REPLY_TIMEOUT)).await
    }

    async fn version(&mut self) {
        let redis = info_field(self.node, "server", "redis_version").await;
        let valkey = info_field(self.node, "server", "valkey_version").await;
        let (name, version) = match (valkey, redis) {
            (Some(version), _) => ("Valkey", version),
            (None, Some(version)) => ("Redis", version),
            (None, None) => return self.add("version", Grade::Warning, "unknown: INFO refused"),
        };
        let mut numbers = version.split('.').filter_map(|number| number.parse::<u32>().ok());
        let is_old =
            (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) < OLDEST;
        let (major, minor) = OLDEST;
        if is_old {
            self.add(
                "version",
                Grade::Warning,
                format!("{name} {version}, older than the oldest tested version {major}.{minor}"),
            )
        } else {
            self.add("version", Grade::Good, format!("{name} {version}"))
        }
    }

    async fn latency(&mut self) {
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let begun = Instant::now();
            if self.call(&["PING"]).await.is_err() {
                return self.add("latency", Grade::Warning, "PING refused");
            }
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let median = times.get(PINGS / 2).copied();
        let longest = times.last().copied();
        let median = median.unwrap_or_default();
        let longest = longest.unwrap_or_default();
        let grade = if median > SLOW { Grade::Warning } else { Grade::Good };
        self.add(
            "latency",
            grade,
            format!("median {median:.1?}, maximum {longest:.1?} of {PINGS} pings"),
        );
    }

    async fn scripts(&mut self, core: &Core) {
        let key = probe_key(core);
        // Proxies need a key to pick the server, and a node of a Cluster does not have every key.
        let keys: &[&str] = if core.by_slot { &["0"] } else { &["1", &key] };
        let run = self.call(&[&["EVAL", "return 1"], keys].concat()).await;
        let time = self.call(&[&["EVAL", "return redis.call('TIME')[1]"], keys].concat()).await;
        match (run, time) {
            (Err(failure), _) => {
                let text = format!(
                    "the server cannot run scripts, which all decisions need: {}",
                    reason(&failure)
                );
                self.add("scripts", Grade::Problem, text);
            }
            (Ok(_), Err(failure)) => {
                let text = format!(
                    "scripts cannot read the server's clock, which all decisions need: {}; this server is not supported",
                    reason(&failure)
                );
                self.add("scripts", Grade::Problem, text);
            }
            (Ok(_), Ok(_)) => {
                self.add("scripts", Grade::Good, "scripts run and can read the server's clock")
            }
        }
    }

    async fn rights(&mut self, core: &Core) {
        let key = probe_key(core);
        let mut missing = Vec::new();
        for extra in &EXTRAS {
            if let Err(CallFailure::Forbidden(_)) = self.call(&extra.command(&key)).await {
                missing.push(extra);
            }
        }
        if missing.is_empty() {
            return self.add("permissions", Grade::Good, "the user has all permissions");
        }
        let listed: Vec<_> =
            missing.iter().map(|extra| format!("{} ({})", extra.name, extra.purpose)).collect();
        let names: Vec<_> = missing.iter().map(|extra| extra.name).collect();
        let text = format!(
            "decisions work, but the user has no permission for {}; to grant it, run {}",
            listed.join(", "),
            acl_setuser(core.logins.user().as_deref(), &names)
        );
        self.add("permissions", Grade::Warning, text);
    }

    /// Writes a key and removes it.
    async fn writes(&mut self, core: &Core) {
        // A node of a Cluster does not have every key.
        for number in 0..WRITTEN_KEYS {
            let key = format!("{}:{number}", probe_key(core));
            let written = self.call(&["SET", &key, "1", "PX", WRITTEN_FOR_MS]).await;
            match written.and(self.call(&["DEL", &key]).await) {
                Err(CallFailure::Moved(_)) => {}
                Ok(_) => {
                    return self.add("writes", Grade::Good, "a key was written and removed");
                }
                Err(failure) => {
                    let text = format!("a key cannot be written: {}", reason(&failure));
                    return self.add("writes", Grade::Problem, text);
                }
            }
        }
    }

    /// Compares the memory in use with its maximum.
    async fn memory(&mut self) {
        let used = info_field(self.node, "memory", "used_memory").await;
        let max = info_field(self.node, "memory", "maxmemory").await;
        let used: Option<u64> = used.and_then(|used| used.parse().ok());
        let max: Option<u64> = max.and_then(|max| max.parse().ok());
        let Some((used, max)) = used.zip(max) else {
            return self.add("memory", Grade::Warning, "unknown: INFO refused");
        };
        let Some(percent) = memory_percent(used, max) else {
            return self.add("memory", Grade::Good, format!("{used} bytes used; no maxmemory"));
        };
        let text = format!("{used} of {max} bytes used (maxmemory), {percent} %");
        match percent {
            percent if percent <= NEARLY_FULL_PERCENT => self.add("memory", Grade::Good, text),
            ..=99 => self.add("memory", Grade::Warning, format!("{text}; raise maxmemory")),
            _ => {
                let text = format!("{text}: writes fail or evict counters; raise maxmemory");
                self.add("memory", Grade::Problem, text);
            }
        }
    }

    /// Examines how many calls are needed for keys of several servers and slots.
    async fn keys(&mut self, core: &Core) {
        if self.node.is_sharded() {
            let text = "a proxy distributes keys over several servers, so each key takes a separate call: limits are exact, \
                        but slower; use redis-cluster:// with the addresses of the servers";
            return self.add("keys", Grade::Warning, text);
        }
        if !core.by_slot {
            return self.add("keys", Grade::Good, "all keys are on this server");
        }
        let text = if self.node.refuses_foreign_keys() {
            "one call covers all slots of the server"
        } else {
            "each slot takes a separate call: there is one server, or it does not refuse foreign keys"
        };
        self.add("keys", Grade::Good, text);
    }

    async fn eviction(&mut self) {
        match eviction_policy(self.node).await.as_deref() {
            Some("noeviction") => self.add("eviction", Grade::Good, "maxmemory-policy noeviction"),
            Some(policy) => {
                let text = format!(
                    "maxmemory-policy {policy} may evict live counters, which admits more than the limits; set noeviction"
                );
                self.add("eviction", Grade::Warning, text);
            }
            None => self.add(
                "eviction",
                Grade::Warning,
                "unknown: the server does not report maxmemory-policy",
            ),
        }
    }

    async fn persistence(&mut self) {
        let appends = info_field(self.node, "persistence", "aof_enabled").await;
        let saves = setting(self.node, "save").await;
        match (appends.as_deref(), saves.as_deref()) {
            (Some("1"), _) => self.add("persistence", Grade::Good, "append-only file"),
            (_, Some(saves)) if !saves.is_empty() => {
                let text = format!(
                    "snapshots (save {saves}): a restart loses the hits counted since the last snapshot"
                );
                self.add("persistence", Grade::Warning, text);
            }
            (Some(_), Some(_)) => {
                self.add(
                    "persistence",
                    Grade::Warning,
                    "none: a restart of the server loses all counters",
                );
            }
            (None, _) | (_, None) => {
                self.add("persistence", Grade::Warning, "unknown: the server does not report it")
            }
        }
    }

    async fn coverage(&mut self, core: &Core) {
        if !core.by_slot {
            return;
        }
        match setting(self.node, "cluster-require-full-coverage").await.as_deref() {
            Some("no") => self.add("coverage", Grade::Good, "cluster-require-full-coverage no"),
            Some(_) => {
                let text = "cluster-require-full-coverage yes: while one master is down, the Cluster refuses all keys; set it to no";
                self.add("coverage", Grade::Warning, text);
            }
            None => self.add(
                "coverage",
                Grade::Warning,
                "unknown: the server does not report cluster-require-full-coverage",
            ),
        }
    }
}

/// Returns a key that no counter has.
fn probe_key(core: &Core) -> String {
    String::from_utf8_lossy(&core.prefix).into_owned() + "tollgate:probe"
}

/// Returns the server's error message if there is one, or a description of the failure.
fn reason(failure: &CallFailure) -> String {
    if let CallFailure::Forbidden(text)
    | CallFailure::LoginRefused(text)
    | CallFailure::Refused(text) = failure
    {
        return text.clone();
    }
    StoreError::from(failure.clone()).to_string()
}
