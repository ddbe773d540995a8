//! Checks at startup for server settings that break a promise.

use std::time::Duration;

use crate::redis::RedisStore;
use crate::redis::calls::{Core, within};
use crate::redis::server::Node;
use crate::redis::server::failure::{CallFailure, shown};
use crate::redis::server::info::InfoReply;
use crate::servers::CheckUp;

/// Timeout for one command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Checks the relevant settings of every master. A setting that the user may not read is not an
    /// error.
    pub(in crate::redis) async fn check_up(&self) -> CheckUp {
        let mut found = CheckUp::default();
        for core in self.cores() {
            for node in core.routes.masters() {
                check_node(&node, core, &mut found).await;
            }
        }
        found
    }
}

async fn check_node(node: &Node, core: &Core, found: &mut CheckUp) {
    let address = &node.address;
    let by_slot = core.by_slot;
    let mut probe = redis::cmd("EVAL");
    probe.arg("return 1");
    // Proxies need a key to pick the server, and a node of a Cluster does not have every key.
    if by_slot {
        probe.arg(0)
    } else {
        probe.arg(1).arg([core.prefix.as_slice(), b"tollgate:probe"].concat())
    };
    if let Err(CallFailure::Refused(error) | CallFailure::Forbidden(error)) =
        node.call(&probe, within(REPLY_TIMEOUT)).await
    {
        found
            .errors
            .push(format!("{address} cannot run scripts, which all decisions need: {error}"));
    }
    match eviction_policy(node).await.as_deref() {
        Some("noeviction") => {}
        Some(policy) => found.warnings.push(format!(
            "{address} has maxmemory-policy {policy} and may evict live counters, which admits more than the limits; set noeviction"
        )),
        None => found.warnings.push(format!(
            "{address} does not report maxmemory-policy; unless it is noeviction, live counters may be evicted, which admits more \
             than the limits"
        )),
    }
    if node.is_sharded() {
        found.warnings.push(format!(
            "{address} is a proxy that distributes keys over several servers, so each key takes a separate call; \
             for better performance, use redis-cluster:// with the addresses of the servers"
        ));
    }
    if by_slot && setting(node, "cluster-require-full-coverage").await.as_deref() == Some("yes") {
        found.warnings.push(format!(
            "{address} has cluster-require-full-coverage yes: while one master is down, the Cluster refuses all keys; set it to no"
        ));
    }
}

/// Returns the `maxmemory-policy` of a server, or `None` if it does not report it.
pub(super) async fn eviction_policy(node: &Node) -> Option<String> {
    // CONFIG is forbidden by many cloud providers, and its refusal would be logged.
    match info_field(node, "memory", "maxmemory_policy").await {
        Some(policy) => Some(policy),
        None => setting(node, "maxmemory-policy").await,
    }
}

/// Returns a field of a server's `INFO`.
pub(super) async fn info_field(node: &Node, section: &str, name: &str) -> Option<String> {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    let reply = node.call(&command, within(REPLY_TIMEOUT)).await.ok()?;
    InfoReply::read(reply)?.field(name).map(shown)
}

/// Returns a setting of a server, or `None` if it does not report it.
pub(super) async fn setting(node: &Node, name: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    let reply = node.call(&command, within(REPLY_TIMEOUT)).await.ok()?;
    let pairs: Vec<String> = redis::from_redis_value(reply).ok()?;
    pairs.get(1).map(shown)
}
