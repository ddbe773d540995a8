//! Discovery of a Cluster: all known nodes are queried for the slot map, and the most credible
//! reply wins.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tracing::{info, warn};

use super::foreign_slots;
use super::routes::{Routes, SlotMap};
use crate::redis::calls::within;
use crate::redis::config::url::ServerAddress;
use crate::redis::script::slot::SLOTS;
use crate::redis::server::Node;
use crate::redis::server::info::InfoReply;

/// Timeout for a node's slot map.
const TELL_TIMEOUT: Duration = Duration::from_millis(250);
/// Interval of refreshing the map. A refresh is due earlier if the map is suspected to be wrong,
/// but never sooner than [`REFRESH_AT_MOST_EVERY`].
const REFRESH_EVERY: Duration = Duration::from_secs(10);
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_millis(50);

/// Keeps the map up to date until the routes are dropped. Queries `seeds` as well as the masters.
pub(in crate::redis) async fn find(routes: Weak<Routes>, seeds: Vec<Arc<Node>>, prefix: Vec<u8>) {
    let mut complained = false;
    while let Some(routes) = routes.upgrade() {
        let mut known = routes.masters();
        known.extend(seeds.iter().cloned());
        let queries = known.iter().filter(|node| !node.is_down()).map(|node| slots_of(node));
        let replies = join_all(queries).await.into_iter().flatten();
        let was_attempted = seeds.iter().all(|node| node.was_attempted());
        match replies.max_by_key(|(standing, _)| *standing) {
            Some((_, map)) => {
                if complained {
                    info!(masters = map.masters.len(), "Cluster nodes discovered");
                }
                complained = false;
                routes.replace(map);
            }
            None => {
                // While connections are being opened, no reply is expected.
                if was_attempted && !complained {
                    warn!("no node reports the Cluster slots; retrying");
                    complained = true;
                }
                routes.doubt();
            }
        }
        if was_attempted {
            routes.end_search();
        }
        foreign_slots::detect(&routes, &prefix).await;
        routes.doubted(REFRESH_AT_MOST_EVERY, REFRESH_EVERY).await;
    }
}

/// Credibility of a node: whether it serves, then the latest election epoch it knows of. A
/// partitioned node keeps reporting an outdated map.
pub(super) type NodeStanding = (bool, u64);

async fn slots_of(node: &Node) -> Option<(NodeStanding, SlotMap)> {
    let until = within(TELL_TIMEOUT);
    let slots = node.call(redis::cmd("CLUSTER").arg("SLOTS"), until).await.ok()?;
    let info = node.call(redis::cmd("CLUSTER").arg("INFO"), until).await.ok();
    Some((info.and_then(standing).unwrap_or_default(), read(&slots, &node.address)?))
}

/// Parses the reply of `CLUSTER INFO`.
pub(in crate::redis) fn standing(info: Value) -> Option<NodeStanding> {
    let info = InfoReply::read(info)?;
    Some((info.field("cluster_state")? == "ok", info.number("cluster_current_epoch")?))
}

/// Parses the reply of `CLUSTER SLOTS`: for each range its first and last slot, then its nodes,
/// master first.
pub(in crate::redis) fn read(reply: &Value, queried: &ServerAddress) -> Option<SlotMap> {
    let Value::Array(ranges) = reply else { return None };
    let mut map = SlotMap { masters: Vec::new(), by_slot: vec![None; usize::from(SLOTS)] };
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice()
        else {
            return None;
        };
        let address = address(master, queried)?;
        let known = map.masters.iter().position(|other| *other == address);
        let master = known.unwrap_or(map.masters.len());
        if master == map.masters.len() {
            map.masters.push(address);
        }
        let master = u16::try_from(master).ok()?;
        let first = usize::try_from(*first).ok()?;
        let last = usize::try_from(*last).ok()?;
        map.by_slot.get_mut(first..=last)?.fill(Some(master));
    }
    (!map.masters.is_empty()).then_some(map)
}

/// Returns the address in a node of the reply: host and port. The host may be missing if it is that
/// of the queried node.
fn address(node: &[Value], queried: &ServerAddress) -> Option<ServerAddress> {
    let [host, Value::Int(port), ..] = node else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8(host.clone()).ok()?
        }
        _ => match queried {
            ServerAddress::Tcp(host, _) => host.clone(),
            ServerAddress::Unix(_) => return None,
        },
    };
    Some(ServerAddress::Tcp(host, u16::try_from(*port).ok()?))
}
