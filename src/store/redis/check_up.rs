//! What to say at the start: settings of the servers that break a promise.

use std::time::Duration;

use super::RedisStore;
use super::calls::within;
use super::failure::Failure;
use super::node::Node;

/// Time for one question.
const PATIENCE: Duration = Duration::from_secs(2);

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
