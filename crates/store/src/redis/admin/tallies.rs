//! The tallies of a counter: hits per recorded request entry, stored beside its state.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::time::Duration;

use redis::Value;
use tollgate_core::algorithm::tallies::{EntryTally, ranked};
use tollgate_core::descriptor::CounterKey;

use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::within;
use crate::redis::script::key::key_of;

/// Timeout for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Flag in a value's first byte: tallies follow.
pub(super) const TALLIED: u8 = 32;
/// Flag in a value's first byte: a grant or a reset follows.
pub(super) const EXTENDED: u8 = 64;

impl RedisStore {
    /// Returns the tallies of a counter, those with the most hits first. Empty if there is no
    /// counter, or if it records nothing.
    ///
    /// # Errors
    /// Returns an error if the store is unreachable, or the value is malformed.
    pub(in crate::redis) async fn tallies(
        &self,
        key: &CounterKey<'_>,
    ) -> Result<Vec<EntryTally>, StoreError> {
        for core in self.cores() {
            let mut command = redis::cmd("GET");
            command.arg(key_of(&core.prefix, key).as_slice());
            match core.call(core.slot(key), &command, within(REPLY_TIMEOUT)).await? {
                // The counter may be on the servers for limits of a second.
                Value::Nil => {}
                Value::BulkString(value) => {
                    return read(&value).map(ranked).ok_or(StoreError::Unreadable);
                }
                _ => return Err(StoreError::Unreadable),
            }
        }
        Ok(Vec::new())
    }
}

pub(in crate::redis) fn read(value: &[u8]) -> Option<Vec<EntryTally>> {
    let (tag, mut rest) = value.split_first()?;
    if *tag & TALLIED == 0 {
        return Some(Vec::new());
    }
    let length = number(&mut rest, 4)?;
    let mut packed = rest.get(..usize::try_from(length).ok()?)?;
    let mut tallies = Vec::new();
    while !packed.is_empty() {
        let length = usize::try_from(number(&mut packed, 2)?).ok()?;
        let (entry, after) = packed.split_at_checked(length)?;
        packed = after;
        let charged = number(&mut packed, 7)?;
        let denied = number(&mut packed, 7)?;
        tallies.push(EntryTally { entry: entry.into(), charged, denied });
    }
    Some(tallies)
}

/// Splits a number of `count` bytes off.
pub(super) fn number(bytes: &mut &[u8], count: usize) -> Option<u64> {
    let (number, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(number.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
}
