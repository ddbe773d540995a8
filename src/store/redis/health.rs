//! How the servers are: what this handle knows of each, and what each says of itself. Nothing is written for it.

use std::time::{Duration, Instant};

use super::RedisStore;
use super::calls::within;
use super::node::Node;
use crate::store::clock::{Clock as _, SystemClock};

/// Time for a server to tell of itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a handle knows of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its address.
    pub address: String,
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Whether it does not answer in time, so that calls fail at once until it does.
    pub is_breaker_open: bool,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTold {
    /// Its address.
    pub address: String,
    /// Tells one run of the server from the next.
    pub run: String,
    /// `master` or `slave`.
    pub role: String,
    /// Bytes that its data take.
    pub used_bytes: u64,
    /// Keys that it has evicted since it began.
    pub evicted_keys: u64,
    /// How long it has run.
    pub uptime: Duration,
    /// Microseconds by which its clock is ahead of this process's.
    pub clock_offset_us: i64,
    /// How long it took to answer this.
    pub round_trip: Duration,
}

impl RedisStore {
    /// What this handle knows of the masters.
    pub fn health(&self) -> Vec<NodeHealth> {
        let masters = self.cores().flat_map(|core| core.routes.masters());
        masters.map(|node| node.health()).collect()
    }

    /// What the masters say of themselves; those that do not are left out.
    pub async fn told(&self) -> Vec<ServerTold> {
        let masters: Vec<_> = self.cores().flat_map(|core| core.routes.masters()).collect();
        let told = masters.iter().map(|node| told(node));
        futures_util::future::join_all(told).await.into_iter().flatten().collect()
    }
}

async fn told(node: &Node) -> Option<ServerTold> {
    let (asked, begun) = (SystemClock.now(), Instant::now());
    let reply = node.call(&redis::cmd("INFO"), within(PATIENCE)).await.ok()?;
    let (answered, round_trip) = (SystemClock.now(), begun.elapsed());
    let text: String = redis::from_redis_value(reply).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    // As it was in the middle between question and answer.
    let ours = asked.as_micros().midpoint(answered.as_micros());
    let theirs = number("server_time_usec").unwrap_or(ours);
    Some(ServerTold {
        address: node.address.to_string(),
        run: field("run_id")?.to_owned(),
        role: field("role")?.to_owned(),
        used_bytes: number("used_memory")?,
        evicted_keys: number("evicted_keys")?,
        uptime: Duration::from_secs(number("uptime_in_seconds")?),
        round_trip,
        clock_offset_us: i64::try_from(i128::from(theirs).saturating_sub(i128::from(ours))).unwrap_or_default(),
    })
}
