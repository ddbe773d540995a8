//! Detection of Cluster nodes that accept one call for counters of several slots.
//!
//! A call declares the keys of one slot, but its script can access keys of other slots as well.
//! Redis and Valkey check each access as if it were a command of its own: a key whose slot the node
//! does not serve, or has migrated away, is refused, and that request is retried alone. One call
//! thus serves all requests waiting for a node, at a third of the cost of one call each. A server
//! without this check, such as a proxy in front of several shards, might create such a counter
//! where no other call finds it. Therefore each node is probed, and only one that refuses a foreign
//! key for that reason, and accepts one of its own, gets such calls.

use std::sync::Arc;
use std::time::Duration;

use super::routes::Routes;
use crate::redis::calls::within;
use crate::redis::script::slot::{SLOTS, slot_of};
use crate::redis::server::Node;

/// Timeout for the probe.
const REPLY_TIMEOUT: Duration = Duration::from_millis(250);
/// Accesses two undeclared keys and returns the result of each.
const PROBE: &str = "\
    local own, foreign = redis.pcall('EXISTS', ARGV[1]), redis.pcall('EXISTS', ARGV[2])
    return {type(own) == 'number' and 'taken' or own.err, type(foreign) == 'number' and 'taken' or foreign.err}";
/// Error of Redis since 3.0, Valkey and KeyDB for a foreign key.
const REFUSED: &str = "non local key";

/// Probes the masters that are not known to refuse foreign keys. `prefix` is that of all keys,
/// since the user may be restricted to it.
pub(in crate::redis) async fn detect(routes: &Routes, prefix: &[u8]) {
    // With one master no key is foreign, and with a hash tag in the prefix all keys are in one
    // slot: there is nothing to probe for.
    let masters = routes.masters();
    let first = slot_of(&probe(prefix, 0));
    if masters.len() < 2 || (1..8).all(|number| slot_of(&probe(prefix, number)) == first) {
        return;
    }
    for node in masters.iter().filter(|node| !node.refuses_foreign_keys() && !node.is_down()) {
        if refuses(routes, node, prefix).await == Some(true) {
            node.set_refuses_foreign_keys();
        }
    }
}

/// Returns a key that is only probed.
fn probe(prefix: &[u8], number: u16) -> Vec<u8> {
    [prefix, format!("tollgate:probe:{number}").as_bytes()].concat()
}

/// Returns the first such key in a wanted slot, and the slot.
fn first_key(prefix: &[u8], is_wanted: impl Fn(u16) -> bool) -> Option<(u16, Vec<u8>)> {
    let keys = (0..SLOTS).map(|number| probe(prefix, number));
    keys.map(|key| (slot_of(&key), key)).find(|(slot, _)| is_wanted(*slot))
}

fn serves(routes: &Routes, node: &Arc<Node>, slot: u16) -> bool {
    routes.with_node(slot, |of_slot| Arc::ptr_eq(of_slot, node)).unwrap_or(false)
}

async fn refuses(routes: &Routes, node: &Arc<Node>, prefix: &[u8]) -> Option<bool> {
    let (slot, named) = first_key(prefix, |slot| serves(routes, node, slot))?;
    let (_, own) = first_key(prefix, |other| other != slot && serves(routes, node, other))?;
    let (_, foreign) = first_key(prefix, |slot| !serves(routes, node, slot))?;
    let mut command = redis::cmd("EVAL");
    command.arg(PROBE).arg(1).arg(named).arg(own).arg(foreign);
    let reply = node.call(&command, within(REPLY_TIMEOUT)).await.ok()?;
    let [own, foreign]: [String; 2] =
        redis::from_redis_value::<Vec<String>>(reply).ok()?.try_into().ok()?;
    Some(own == "taken" && foreign.contains(REFUSED))
}
