//! Texts that the processes of a store publish for each other: one for each process and minute,
//! kept for a while.
#![allow(clippy::wildcard_enum_match_arm, reason = "replies are another crate's enum, of which one arm is meant")]

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::RedisStore;
use super::calls::within;
use super::slot::slot_of;
use crate::store::StoreError;

/// Timeout for one command.
const PATIENCE: Duration = Duration::from_secs(1);
/// TTL of a minute's texts after the last write, in milliseconds.
const KEPT_MS: u64 = 17 * 60 * 1000;
/// Prefix of a minute's key; its hash has a field for each process.
const BOARD: &str = "tollgate:denials:";
const LEAVE: &str = "\
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    return redis.call('PEXPIRE', KEYS[1], ARGV[3])";

/// A text that a process published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Id of the process.
    pub by: String,
    /// Number of the minute since the epoch.
    pub minute: u64,
    /// The text.
    pub text: Vec<u8>,
}

impl RedisStore {
    /// Publishes the text of the process `by` for the minute, replacing an earlier one.
    ///
    /// # Errors
    /// Returns an error if the store is unreachable.
    pub async fn leave(&self, by: &str, minute: u64, text: &str) -> Result<(), StoreError> {
        let key = self.board(minute);
        let mut command = redis::cmd("EVAL");
        command.arg(LEAVE).arg(1).arg(&key).arg(by).arg(text).arg(KEPT_MS);
        self.ask_board(&key, &command).await.map(drop)
    }

    /// Fetches the texts of all processes for these minutes.
    ///
    /// # Errors
    /// Returns an error if the store is unreachable.
    pub async fn left(&self, minutes: impl Iterator<Item = u64>) -> Result<Vec<Left>, StoreError> {
        let asked = join_all(minutes.map(|minute| self.left_for(minute))).await;
        let all: Vec<_> = asked.into_iter().collect::<Result<_, _>>()?;
        Ok(all.concat())
    }

    async fn left_for(&self, minute: u64) -> Result<Vec<Left>, StoreError> {
        let key = self.board(minute);
        let mut command = redis::cmd("HGETALL");
        command.arg(&key);
        let reply = self.ask_board(&key, &command).await?;
        read(reply, minute).ok_or(StoreError::Unreadable)
    }

    fn board(&self, minute: u64) -> Vec<u8> {
        [self.core.prefix.as_slice(), format!("{BOARD}{minute}").as_bytes()].concat()
    }

    async fn ask_board(&self, key: &[u8], command: &Cmd) -> Result<Value, StoreError> {
        let slot = if self.core.by_slot { slot_of(key) } else { 0 };
        let node = self.core.routes.node(slot).ok_or(StoreError::Unavailable)?;
        Ok(node.call(command, within(PATIENCE)).await.inspect_err(|failure| self.core.complain_of(failure))?)
    }
}

/// Parses the hash of a minute.
pub(super) fn read(reply: Value, minute: u64) -> Option<Vec<Left>> {
    let pairs: Vec<(String, Vec<u8>)> = redis::from_redis_value(reply).ok()?;
    Some(pairs.into_iter().map(|(by, text)| Left { by, minute, text }).collect())
}
