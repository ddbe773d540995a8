//! What to say at the start: settings of the servers that break a promise; and how many processes share the limits.
#![allow(clippy::wildcard_enum_match_arm, reason = "replies are another crate's enum, of which one arm is meant")]

use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::calls::within;
use super::failure::Failure;
use super::node::Node;
use super::slot::slot_of;

/// Time for one question.
const PATIENCE: Duration = Duration::from_secs(2);
/// A process that has not been heard of for so long is gone.
const REPLICA_TTL_US: u64 = 15_000_000;
/// The processes, by their ids, with the instant at which each was last heard of.
const REPLICAS: &[u8] = b"tollgate:replicas";
const HEARTBEAT: &str = "\
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[2] / 1000)
    return redis.call('ZCARD', KEYS[1])";

/// What was found wrong with the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckUp {
    /// What keeps limits from being shared at all.
    pub errors: Vec<String>,
    /// What breaks a promise now and then.
    pub warnings: Vec<String>,
}

impl RedisStore {
    /// Asks every master for what matters. What it may not be asked is not known to be wrong.
    pub async fn check_up(&self) -> CheckUp {
        let mut found = CheckUp::default();
        for core in self.cores() {
            for node in core.routes.masters() {
                check_node(&node, core.by_slot, &mut found).await;
            }
        }
        found
    }

    /// Says that the process `id` is alive; answers how many are.
    pub async fn heartbeat(&self, id: &str) -> Option<u32> {
        let key = [self.core.prefix.as_slice(), REPLICAS].concat();
        let node = self.core.routes.node(if self.core.by_slot { slot_of(&key) } else { 0 })?;
        let mut command = redis::cmd("EVAL");
        command.arg(HEARTBEAT).arg(1).arg(key).arg(id).arg(REPLICA_TTL_US);
        let counted = node.call(&command, within(PATIENCE)).await;
        match counted.inspect_err(|failure| self.core.complain_of(failure)).ok()? {
            Value::Int(count) => u32::try_from(count).ok(),
            _ => None,
        }
    }
}

async fn check_node(node: &Node, by_slot: bool, found: &mut CheckUp) {
    let address = &node.address;
    let mut probe = redis::cmd("EVAL");
    probe.arg("return 1").arg(0);
    if let Err(Failure::Refused(error) | Failure::Forbidden(error)) = node.call(&probe, within(PATIENCE)).await {
        found.errors.push(format!("{address} runs no scripts, without which nothing is decided: {error}"));
    }
    let policy = match setting(node, "maxmemory-policy").await {
        Some(policy) => policy,
        // Where CONFIG is forbidden, as in many a cloud.
        None => told(node, "maxmemory_policy").await.unwrap_or_else(|| "of which it does not tell".to_owned()),
    };
    if policy != "noeviction" {
        found.warnings.push(format!(
            "{address} has maxmemory-policy {policy} and may drop live counters, which admits more than the limits; set noeviction"
        ));
    }
    if by_slot && setting(node, "cluster-require-full-coverage").await.as_deref() == Some("yes") {
        found.warnings.push(format!(
            "{address} has cluster-require-full-coverage yes: one master down stops all keys until it is replaced; set no"
        ));
    }
}

/// A line of what a server says of its memory.
async fn told(node: &Node, name: &str) -> Option<String> {
    let mut command = redis::cmd("INFO");
    command.arg("memory");
    let reply = node.call(&command, within(PATIENCE)).await.ok()?;
    let text: String = redis::from_redis_value(reply).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
}

/// A setting of a server; `None` where it does not tell.
async fn setting(node: &Node, name: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    let reply = node.call(&command, within(PATIENCE)).await.ok()?;
    let pairs: Vec<String> = redis::from_redis_value(reply).ok()?;
    pairs.into_iter().nth(1)
}
