//! Reports of the servers on themselves. The queries write nothing.

use std::time::{Duration, Instant};

use super::replica_clocks::{ReplicaConnections, offset_us};
use crate::redis::RedisStore;
use crate::redis::calls::{Core, within};
use crate::redis::config::url::ServerAddress;
use crate::redis::server::Node;
use crate::redis::server::failure::shown;
use crate::redis::server::info::InfoReply;
use crate::servers::ServerReport;

/// Timeout for a server's `INFO` reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

impl RedisStore {
    /// Queries the state of all masters; those that do not answer are left out.
    pub(in crate::redis) async fn server_reports(&self) -> Vec<ServerReport> {
        let masters = self
            .cores()
            .flat_map(|core| core.routes.masters().into_iter().map(move |node| (core, node)));
        let masters: Vec<_> = masters.collect();
        let reports =
            masters.iter().map(|(core, node)| report_of(node, core, &self.replica_connections));
        let reports: Vec<_> =
            futures_util::future::join_all(reports).await.into_iter().flatten().collect();
        self.replica_connections.keep(reports.iter().flat_map(|report| &report.replicas));
        reports
    }
}

async fn report_of(
    node: &Node,
    core: &Core,
    replicas: &ReplicaConnections,
) -> Option<ServerReport> {
    let access = core.routes.access();
    let sent = access.environment.now();
    let begun = Instant::now();
    let reply = node.call(&redis::cmd("INFO"), within(REPLY_TIMEOUT)).await.ok()?;
    let received = access.environment.now();
    let round_trip = begun.elapsed();
    let info = InfoReply::read(reply)?;
    let offset = info.number("server_time_usec").map(|theirs| offset_us(theirs, sent, received));
    let mut report = ServerReport {
        address: node.address.to_string(),
        run: shown(info.field("run_id")?),
        role: shown(info.field("role")?),
        used_bytes: info.number("used_memory")?,
        max_bytes: info.number("maxmemory").filter(|max| *max > 0),
        policy: info.field("maxmemory_policy").map(shown),
        evicted_keys: info.number("evicted_keys")?,
        uptime: Duration::from_secs(info.number("uptime_in_seconds")?),
        round_trip,
        clock_offset_us: offset.unwrap_or_default(),
        replicas: Vec::new(),
    };
    if let Some(offset) = offset {
        let online = online_replicas(&info.0);
        report.replicas = replicas.clocks(access, &core.logins, online, offset).await;
    }
    Some(report)
}

/// Returns the online replicas in a master's `INFO`, from lines such as
/// `slave0:ip=10.0.0.7,port=6379,state=online,offset=1,lag=0`.
pub(in crate::redis) fn online_replicas(info: &str) -> impl Iterator<Item = ServerAddress> {
    info.lines().filter_map(|line| {
        let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
        number.parse::<u32>().ok()?;
        if replica_field(fields, "state")? != "online" {
            return None;
        }
        let host = replica_field(fields, "ip")?.to_owned();
        Some(ServerAddress::Tcp(host, replica_field(fields, "port")?.parse().ok()?))
    })
}

fn replica_field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
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
