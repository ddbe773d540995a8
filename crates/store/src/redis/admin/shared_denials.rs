//! Texts that the processes of a store publish for each other: one for each process and minute,
//! kept for a while.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};

use crate::StoreError;
use crate::backend::PublishedDenials;
use crate::redis::RedisStore;
use crate::redis::calls::within;
use crate::redis::script::slot::slot_of;

/// Timeout for one command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// TTL of a minute's texts after the last write, in milliseconds.
const KEPT_MS: u64 = 17 * 60 * 1000;
/// Prefix of a minute's key; its hash has a field for each process.
const KEY_PREFIX: &str = "tollgate:denials:";
const PUBLISH: &str = "\
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    return redis.call('PEXPIRE', KEYS[1], ARGV[3])";

impl RedisStore {
    /// Publishes the text of the process `by` for the minute, replacing an earlier one.
    ///
    /// # Errors
    /// Returns an error if the store is unreachable.
    pub(in crate::redis) async fn publish_denials(
        &self,
        by: &str,
        minute: u64,
        text: &str,
    ) -> Result<(), StoreError> {
        let key = self.key_of_minute(minute);
        let mut command = redis::cmd("EVAL");
        command.arg(PUBLISH).arg(1).arg(&key).arg(by).arg(text).arg(KEPT_MS);
        self.call_node(&key, &command).await.map(drop)
    }

    /// Fetches the texts of all processes for these minutes.
    ///
    /// # Errors
    /// Returns an error if the store is unreachable.
    pub(in crate::redis) async fn fetch_denials(
        &self,
        minutes: &[u64],
    ) -> Result<Vec<PublishedDenials>, StoreError> {
        let replies = join_all(minutes.iter().map(|minute| self.fetch_minute(*minute))).await;
        let all: Vec<_> = replies.into_iter().collect::<Result<_, _>>()?;
        Ok(all.concat())
    }

    async fn fetch_minute(&self, minute: u64) -> Result<Vec<PublishedDenials>, StoreError> {
        let key = self.key_of_minute(minute);
        let mut command = redis::cmd("HGETALL");
        command.arg(&key);
        let reply = self.call_node(&key, &command).await?;
        read(reply, minute).ok_or(StoreError::Unreadable)
    }

    fn key_of_minute(&self, minute: u64) -> Vec<u8> {
        [self.core.prefix.as_slice(), format!("{KEY_PREFIX}{minute}").as_bytes()].concat()
    }

    async fn call_node(&self, key: &[u8], command: &Cmd) -> Result<Value, StoreError> {
        let slot = if self.core.by_slot { slot_of(key) } else { 0 };
        let reply = self.core.call(slot, command, within(REPLY_TIMEOUT)).await;
        Ok(reply.inspect_err(|failure| self.core.complain_of(failure))?)
    }
}

/// Parses the hash of a minute.
pub(in crate::redis) fn read(reply: Value, minute: u64) -> Option<Vec<PublishedDenials>> {
    let pairs: Vec<(String, Vec<u8>)> = redis::from_redis_value(reply).ok()?;
    Some(pairs.into_iter().map(|(by, text)| PublishedDenials { by, minute, text }).collect())
}
