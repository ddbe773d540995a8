//! Health of the servers: the state of this handle's connections, and what each server reports. The
//! queries write nothing.

use std::time::{Duration, Instant};

use super::replica_clocks::{ReplicaClock, ReplicaConnections, offset_us};
use crate::store::redis::RedisStore;
use crate::store::redis::access::Access;
use crate::store::redis::calls::within;
use crate::store::redis::node::Node;
pub use crate::store::redis::node::NodeHealth;
use crate::store::redis::node::failure::shown;
use crate::store::redis::url::ServerAddress;

/// Timeout for a server's `INFO` reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The state that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Its address.
    pub address: String,
    /// Identifies one run of the server (`run_id`).
    pub run: String,
    /// `master` or `slave`.
    pub role: String,
    /// Bytes of memory that its data use.
    pub used_bytes: u64,
    /// Maximum of these bytes (`maxmemory`); `None` if there is none.
    pub max_bytes: Option<u64>,
    /// Treatment of writes at the maximum (`maxmemory_policy`).
    pub policy: Option<String>,
    /// Number of keys evicted since it started.
    pub evicted_keys: u64,
    /// Time since it started.
    pub uptime: Duration,
    /// Microseconds by which its clock is ahead of this process's.
    pub clock_offset_us: i64,
    /// Round-trip time of this query.
    pub round_trip: Duration,
    /// The clocks of its replicas, as far as these are reachable.
    pub replicas: Vec<ReplicaClock>,
}

/// Percentage of `maxmemory` above which a server is nearly full.
pub(super) const NEARLY_FULL_PERCENT: u64 = 90;

/// Returns the percentage of the maximum memory that is in use; `None` if the maximum is 0: there
/// is none.
pub(super) fn memory_percent(used: u64, max: u64) -> Option<u64> {
    used.saturating_mul(100).checked_div(max)
}

impl ServerReport {
    /// Returns the percentage of its maximum memory that is in use; `None` if it has no maximum.
    pub fn memory_percent(&self) -> Option<u64> {
        memory_percent(self.used_bytes, self.max_bytes?)
    }

    /// Returns `true` if more than 90 % of its maximum memory are in use.
    pub fn is_nearly_full(&self) -> bool {
        self.memory_percent().is_some_and(|percent| percent > NEARLY_FULL_PERCENT)
    }
}

impl RedisStore {
    /// Returns the state of the masters as seen by this handle.
    pub fn health(&self) -> Vec<NodeHealth> {
        let masters = self.cores().flat_map(|core| core.routes.masters());
        masters.map(|node| node.health()).collect()
    }

    /// Queries the state of all masters; those that do not answer are left out.
    pub async fn server_reports(&self) -> Vec<ServerReport> {
        let masters = self
            .cores()
            .flat_map(|core| core.routes.masters().into_iter().map(move |node| (core, node)));
        let masters: Vec<_> = masters.collect();
        let reports = masters
            .iter()
            .map(|(core, node)| report_of(node, core.routes.access(), &self.replica_connections));
        let reports: Vec<_> =
            futures_util::future::join_all(reports).await.into_iter().flatten().collect();
        self.replica_connections.keep(reports.iter().flat_map(|report| &report.replicas));
        reports
    }
}

async fn report_of(
    node: &Node,
    access: &Access,
    replicas: &ReplicaConnections,
) -> Option<ServerReport> {
    let sent = access.environment.now();
    let begun = Instant::now();
    let reply = node.call(&redis::cmd("INFO"), within(REPLY_TIMEOUT)).await.ok()?;
    let received = access.environment.now();
    let round_trip = begun.elapsed();
    let text: String = redis::from_redis_value(reply).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let offset = number("server_time_usec").map(|theirs| offset_us(theirs, sent, received));
    let mut report = ServerReport {
        address: node.address.to_string(),
        run: shown(field("run_id")?),
        role: shown(field("role")?),
        used_bytes: number("used_memory")?,
        max_bytes: number("maxmemory").filter(|max| *max > 0),
        policy: field("maxmemory_policy").map(shown),
        evicted_keys: number("evicted_keys")?,
        uptime: Duration::from_secs(number("uptime_in_seconds")?),
        round_trip,
        clock_offset_us: offset.unwrap_or_default(),
        replicas: Vec::new(),
    };
    if let Some(offset) = offset {
        report.replicas = replicas.clocks(access, online_replicas(&text), offset).await;
    }
    Some(report)
}

/// Returns the online replicas in a master's `INFO`, from lines such as
/// `slave0:ip=10.0.0.7,port=6379,state=online,offset=1,lag=0`.
pub(in crate::store::redis) fn online_replicas(info: &str) -> impl Iterator<Item = ServerAddress> {
    info.lines().filter_map(|line| {
        let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
        let field = |name: &str| {
            fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
        };
        let is_online = number.parse::<u32>().is_ok() && field("state")? == "online";
        is_online.then(|| {
            Some(ServerAddress::Tcp(field("ip")?.to_owned(), field("port")?.parse().ok()?))
        })?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_are_online_are_found_in_info() {
        let info = "role:master\r\nconnected_slaves:3\r\n\
                    slave0:ip=10.0.0.7,port=6379,state=online,offset=14,lag=0\r\n\
                    slave1:ip=10.0.0.8,port=6379,state=wait_bgsave,offset=0,lag=0\r\n\
                    slave2:ip=fd00::9,port=7000,state=online,offset=14,lag=1,type=replica\r\n\
                    slave_expires_tracked_keys:0\r\n";
        let found: Vec<String> = online_replicas(info).map(|address| address.to_string()).collect();
        assert_eq!(found, ["10.0.0.7:6379", "[fd00::9]:7000"]);
    }
}
