//! A master monitored by sentinels: all of them are queried for its address, and the reply with the
//! latest election wins.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tracing::{info, warn};

use super::routes::{Routes, SlotMap};
use crate::redis::calls::within;
use crate::redis::config::url::ServerAddress;
use crate::redis::server::Node;

/// Timeout for a sentinel's reply.
const TELL_TIMEOUT: Duration = Duration::from_millis(250);
/// Interval of refreshing the master's address. A refresh is due earlier if the address is
/// suspected to be wrong, but never sooner than [`REFRESH_AT_MOST_EVERY`].
///
/// After `SENTINEL FAILOVER`, the old master accepts writes for seconds, which are lost; nothing
/// else makes its address suspicious.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Keeps the master's address up to date until the routes are dropped.
pub(in crate::redis) async fn find(
    routes: Weak<Routes>,
    master: String,
    sentinels: Vec<Arc<Node>>,
) {
    let mut complained = false;
    while let Some(routes) = routes.upgrade() {
        let queries = sentinels
            .iter()
            .filter(|sentinel| !sentinel.is_down())
            .map(|sentinel| master_of(sentinel, &master));
        let replies = join_all(queries).await.into_iter().flatten();
        let was_attempted = sentinels.iter().all(|node| node.was_attempted());
        match replies.max_by_key(|(epoch, _)| *epoch) {
            Some((_, address)) => {
                let known = routes.masters().iter().any(|node| node.address == address);
                if !known {
                    info!(%address, master, "master discovered");
                }
                complained = false;
                routes.replace(SlotMap { masters: vec![address], by_slot: Vec::new() });
            }
            None => {
                // While connections are being opened, no reply is expected.
                if was_attempted && !complained {
                    warn!(master, "no sentinel reports the master; retrying");
                    complained = true;
                }
                routes.doubt();
            }
        }
        if was_attempted {
            routes.end_search();
        }
        routes.doubted(REFRESH_AT_MOST_EVERY, REFRESH_EVERY).await;
    }
}

/// Queries a sentinel for the master's address, and for the epoch of the election that chose it: a
/// partitioned sentinel keeps returning an old master.
async fn master_of(sentinel: &Node, master: &str) -> Option<(u64, ServerAddress)> {
    let until = within(TELL_TIMEOUT);
    let mut find = redis::cmd("SENTINEL");
    find.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let mut describe = redis::cmd("SENTINEL");
    describe.arg("MASTER").arg(master);
    let reply = sentinel.call(&find, until).await.ok()?;
    let about = sentinel.call(&describe, until).await.ok();
    let about: Option<HashMap<String, String>> =
        about.and_then(|about| redis::from_redis_value(about).ok());
    let epoch = about.and_then(|about| about.get("config-epoch")?.parse().ok()).unwrap_or_default();
    Some((epoch, read(&reply)?))
}

/// Parses the reply of `SENTINEL GET-MASTER-ADDR-BY-NAME`: host and port.
pub(in crate::redis) fn read(reply: &Value) -> Option<ServerAddress> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(ServerAddress::Tcp(String::from_utf8(host.clone()).ok()?, port))
}
