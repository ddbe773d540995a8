//! A master that sentinels watch: any of them is asked which server it is now.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tracing::{info, warn};

use super::calls::within;
use super::node::Node;
use super::routes::{Map, Routes};
use super::url::Address;

/// Time for one sentinel to tell the master.
const TELL_TIMEOUT: Duration = Duration::from_millis(250);
/// The master is asked for again after this, and sooner where somebody doubts it, but not sooner than the other.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Keeps the master's address up to date until the routes are gone.
pub(super) async fn find(routes: Weak<Routes>, master: String, sentinels: Vec<Arc<Node>>) {
    let mut complained = false;
    while let Some(routes) = routes.upgrade() {
        let mut found = None;
        for sentinel in sentinels.iter().filter(|sentinel| !sentinel.is_down()) {
            found = ask(sentinel, &master).await;
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(address) => {
                let known = routes.masters().iter().any(|node| node.address == address);
                if !known {
                    info!(%address, master, "the master is known");
                }
                complained = false;
                routes.replace(Map { masters: vec![address], by_slot: Vec::new() });
            }
            None if !complained => {
                warn!(master, "no sentinel tells the master; trying on");
                complained = true;
            }
            None => {}
        }
        routes.doubted(REFRESH_AT_MOST_EVERY, REFRESH_EVERY).await;
    }
}

async fn ask(sentinel: &Node, master: &str) -> Option<Address> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let reply = sentinel.call(&command, within(TELL_TIMEOUT)).await.ok()?;
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Address::Tcp(String::from_utf8(host.clone()).ok()?, port))
}
