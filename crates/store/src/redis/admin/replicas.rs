//! Heartbeats, by which the processes that share the limits find each other, and descriptions of
//! the processes for operators.
//!
//! The set of heartbeats has only IDs, as in release 0.1.0, which takes each member for a process.
//! Descriptions have keys of their own, which releases without them never read.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Cmd, Value};

use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::within;
use crate::redis::script::slot::slot_of;
use crate::replicas::{REPLICA_TTL, Registered, RegisteredReplica, ReplicaInfo};

/// Timeout for one heartbeat.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Sorted set of the processes' ids, scored by the time of their last heartbeat.
const REPLICAS: &[u8] = b"tollgate:replicas";
/// Prefix of the key of a process's description, a hash. Readers ignore fields that they do not
/// know, and take missing ones for empty.
const REPLICA: &str = "tollgate:replica:";
const NAME: &str = "name";
const BEGUN_AT: &str = "begun_at";
const RELEASE: &str = "release";
const POLICIES: &str = "policies";
const LOADED_AT: &str = "loaded_at";
const RATES: &str = "rates";
/// Maximum size in bytes of a field that is read.
const MAX_FIELD: usize = 256;
/// The same for the rates of rules.
const MAX_RATES: usize = 64 << 10;
const ANNOUNCE: &str = "\
    redis.call('HSET', KEYS[1], unpack(ARGV, 2))
    return redis.call('PEXPIRE', KEYS[1], ARGV[1])";
/// Returns up to a thousand IDs, each followed by the microseconds since its heartbeat.
const LIST: &str = "\
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local all = redis.call('ZRANGE', KEYS[1], 0, 999, 'WITHSCORES')
    for i = 2, #all, 2 do all[i] = now - all[i] end
    return all";
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

    /// Publishes the description of the process `id`.
    pub(in crate::redis) async fn announce(
        &self,
        id: &str,
        info: &ReplicaInfo,
    ) -> Result<(), StoreError> {
        let ReplicaInfo { name, begun_at, release, policies, loaded_at, rates } = info;
        let key = self.key_of_replica(id);
        let mut command = redis::cmd("EVAL");
        command.arg(ANNOUNCE).arg(1).arg(&key).arg(REPLICA_TTL.as_millis());
        command.arg(NAME).arg(name).arg(BEGUN_AT).arg(begun_at).arg(RELEASE).arg(release);
        command.arg(POLICIES).arg(policies).arg(LOADED_AT).arg(loaded_at).arg(RATES).arg(rates);
        self.call_for_replicas(&key, &command).await.map(drop)
    }

    /// Returns the live processes with their descriptions.
    pub(in crate::redis) async fn replicas(&self) -> Result<Vec<RegisteredReplica>, StoreError> {
        let key = [self.core.prefix.as_slice(), REPLICAS].concat();
        let mut command = redis::cmd("EVAL");
        command.arg(LIST).arg(1).arg(&key);
        let reply = self.call_for_replicas(&key, &command).await?;
        let listed: Vec<(String, i64)> =
            redis::from_redis_value(reply).map_err(|_| StoreError::Unreadable)?;
        let live = listed.into_iter().filter_map(|(id, silent_us)| {
            // The clock of a new master may be behind the heartbeats.
            let silent_for = Duration::from_micros(u64::try_from(silent_us).unwrap_or(0));
            (silent_for < REPLICA_TTL).then_some((id, silent_for))
        });
        let described = live.map(async |(id, silent_for)| {
            let info = self.description(&id).await?;
            Ok(RegisteredReplica { id, silent_for, info })
        });
        try_join_all(described).await
    }

    /// Returns the description of a process, if it has published one.
    async fn description(&self, id: &str) -> Result<Option<ReplicaInfo>, StoreError> {
        let key = self.key_of_replica(id);
        let mut command = redis::cmd("HGETALL");
        command.arg(&key);
        read(self.call_for_replicas(&key, &command).await?).ok_or(StoreError::Unreadable)
    }

    fn key_of_replica(&self, id: &str) -> Vec<u8> {
        [self.core.prefix.as_slice(), REPLICA.as_bytes(), id.as_bytes()].concat()
    }

    async fn call_for_replicas(&self, key: &[u8], command: &Cmd) -> Result<Value, StoreError> {
        let slot = if self.core.by_slot { slot_of(key) } else { 0 };
        let reply = self.core.call(slot, command, within(REPLY_TIMEOUT)).await;
        Ok(reply.inspect_err(|failure| self.core.complain_of(failure))?)
    }
}

/// Parses a description: `Some(None)` if there is none, `None` if the value is none.
fn read(reply: Value) -> Option<Option<ReplicaInfo>> {
    let fields: HashMap<String, Vec<u8>> = redis::from_redis_value(reply).ok()?;
    if fields.is_empty() {
        return Some(None);
    }
    let bounded = |name: &str, max: usize| {
        let text = fields.get(name).map(|text| text.get(..max).unwrap_or(text));
        text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
    };
    let field = |name: &str| bounded(name, MAX_FIELD);
    Some(Some(ReplicaInfo {
        name: field(NAME),
        begun_at: field(BEGUN_AT),
        release: field(RELEASE),
        policies: field(POLICIES),
        loaded_at: field(LOADED_AT),
        rates: bounded(RATES, MAX_RATES),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Option<Option<ReplicaInfo>> {
        let texts = pairs.iter().flat_map(|(name, text)| [*name, *text]);
        read(Value::Array(texts.map(|text| Value::BulkString(text.into())).collect()))
    }

    #[test]
    fn fields_of_later_releases_are_ignored_and_missing_ones_are_empty() {
        let info = ReplicaInfo { name: "a".to_owned(), ..ReplicaInfo::default() };
        assert_eq!(of(&[("later", "x"), ("name", "a")]), Some(Some(info)));
        assert_eq!(of(&[]), Some(None), "a process of 0.1.0 has no description");
        let long = of(&[("name", &"n".repeat(1_000))]).flatten().unwrap();
        assert_eq!(long.name.len(), MAX_FIELD);
        assert_eq!(read(Value::Int(1)), None);
    }
}
