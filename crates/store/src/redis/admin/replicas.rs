//! Heartbeats, by which the processes that share the limits find each other.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::time::Duration;

use redis::Value;

use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::within;
use crate::redis::script::slot::slot_of;
use crate::replicas::{REPLICA_TTL, Registered};

/// Timeout for one heartbeat.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Sorted set of the processes' ids, scored by the time of their last heartbeat.
const REPLICAS: &[u8] = b"tollgate:replicas";
const HEARTBEAT: &str = "\
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[2] / 1000)
    local ids = redis.pcall('ZRANGE', KEYS[1], 0, -1)
    if ids.err then return redis.call('ZCARD', KEYS[1]) end
    return ids";

impl RedisStore {
    /// Sends a heartbeat of the process `id`; returns the live processes.
    pub(in crate::redis) async fn heartbeat(&self, id: &str) -> Result<Registered, StoreError> {
        let key = [self.core.prefix.as_slice(), REPLICAS].concat();
        let slot = if self.core.by_slot { slot_of(&key) } else { 0 };
        let mut command = redis::cmd("EVAL");
        command.arg(HEARTBEAT).arg(1).arg(key).arg(id).arg(REPLICA_TTL.as_micros());
        let counted = self.core.call(slot, &command, within(REPLY_TIMEOUT)).await;
        match counted.inspect_err(|failure| self.core.complain_of(failure))? {
            Value::Int(count) => {
                let count = u32::try_from(count).map_err(|_| StoreError::Unreadable)?;
                Ok(Registered::Counted(count))
            }
            Value::Array(ids) => {
                let ids = ids.into_iter().filter_map(|id| match id {
                    Value::BulkString(id) => Some(id),
                    _ => None,
                });
                let ids = ids.collect();
                Ok(Registered::listed(ids, id.as_bytes()))
            }
            _ => Err(StoreError::Unreadable),
        }
    }
}
