//! Which nodes of a Cluster may be asked about counters of several slots by one call.
//!
//! A call names the keys of one slot; those of others a script reaches all the same, and Redis and Valkey look at each as if it
//! came by itself: a key whose slot the node does not serve, or has given away, is refused, and the request passed on to be asked
//! by itself. So one call serves all who wait for a node, at a third of the cost of one each. A server that does not look, as a
//! proxy before several shards may not, would count such a key where nobody finds it. Hence no node is believed to: each is
//! asked, and only one that refuses a foreign key for that reason, and takes one of its own, gets such calls.

use std::sync::Arc;
use std::time::Duration;

use super::calls::within;
use super::node::Node;
use super::routes::Routes;
use super::slot::{SLOTS, slot_of};

/// Time for the question.
const PATIENCE: Duration = Duration::from_millis(250);
/// Two keys that the call does not name: what becomes of each.
const PROBE: &str = "\
    local own, foreign = redis.pcall('EXISTS', ARGV[1]), redis.pcall('EXISTS', ARGV[2])
    return {type(own) == 'number' and 'taken' or own.err, type(foreign) == 'number' and 'taken' or foreign.err}";
/// What Redis since 3.0, Valkey and KeyDB say of a key that is not theirs.
const REFUSED: &str = "non local key";

/// Asks those of the masters that are not known to refuse foreign keys. `prefix`: of all keys, since a user may be allowed no
/// other.
pub(super) async fn prove(routes: &Routes, prefix: &[u8]) {
    // Of one master no key is foreign, and with a hash tag in the prefix all keys are in one slot: there is nothing to look for.
    let masters = routes.masters();
    let first = slot_of(&probe(prefix, 0));
    if masters.len() < 2 || (1..8).all(|number| slot_of(&probe(prefix, number)) == first) {
        return;
    }
    for node in masters.iter().filter(|node| !node.refuses_foreign_keys() && !node.is_down()) {
        if refuses(routes, node, prefix).await == Some(true) {
            node.keeps_to_its_keys();
        }
    }
}

/// A key that is only asked about.
fn probe(prefix: &[u8], number: u16) -> Vec<u8> {
    [prefix, format!("tollgate:probe:{number}").as_bytes()].concat()
}

async fn refuses(routes: &Routes, node: &Arc<Node>, prefix: &[u8]) -> Option<bool> {
    let is_own = |slot: u16| routes.with_node(slot, |of_slot| Arc::ptr_eq(of_slot, node)).unwrap_or(false);
    let key = |wanted: &dyn Fn(u16) -> bool| {
        let keys = (0..SLOTS).map(|number| probe(prefix, number));
        keys.map(|key| (slot_of(&key), key)).find(|(slot, _)| wanted(*slot))
    };
    let (slot, named) = key(&is_own)?;
    let (_, own) = key(&|other| other != slot && is_own(other))?;
    let (_, foreign) = key(&|other| !is_own(other))?;
    let mut command = redis::cmd("EVAL");
    command.arg(PROBE).arg(1).arg(named).arg(own).arg(foreign);
    let said = node.call(&command, within(PATIENCE)).await.ok()?;
    let [own, foreign]: [String; 2] = redis::from_redis_value::<Vec<String>>(said).ok()?.try_into().ok()?;
    Some(own == "taken" && foreign.contains(REFUSED))
}
