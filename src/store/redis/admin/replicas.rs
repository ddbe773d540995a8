//! The number of processes that share the limits, counted by periodic heartbeats.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which one arm is meant"
)]

use std::time::{Duration, Instant};

use redis::Value;

use crate::store::redis::RedisStore;
use crate::store::redis::calls::within;
use crate::store::redis::script::slot::slot_of;

/// Timeout for one heartbeat.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// A process without a heartbeat for this long is considered gone.
const REPLICA_TTL: Duration = Duration::from_secs(15);
/// Sorted set of the processes' ids, scored by the time of their last heartbeat.
const REPLICAS: &[u8] = b"tollgate:replicas";
const HEARTBEAT: &str = "\
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[2] / 1000)
    return redis.call('ZCARD', KEYS[1])";

/// The number of processes according to the store, which may have lost those that have yet to
/// report again: a lower count is accepted only after all of them had time to report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaCount {
    believed: u32,
    lower: Option<LowerCount>,
}

/// An unbroken run of counts below the accepted number.
#[derive(Clone, Copy, Debug)]
struct LowerCount {
    since: Instant,
    /// The highest of these counts.
    highest: u32,
}

impl RedisStore {
    /// Sends a heartbeat of the process `id`; returns the store's count of live processes.
    pub async fn heartbeat(&self, id: &str) -> Option<u32> {
        let key = [self.core.prefix.as_slice(), REPLICAS].concat();
        let slot = if self.core.by_slot { slot_of(&key) } else { 0 };
        let mut command = redis::cmd("EVAL");
        let ttl_us = u64::try_from(REPLICA_TTL.as_micros()).unwrap_or(u64::MAX);
        command.arg(HEARTBEAT).arg(1).arg(key).arg(id).arg(ttl_us);
        let counted = self.core.call(slot, &command, within(REPLY_TIMEOUT)).await;
        match counted.inspect_err(|failure| self.core.complain_of(failure)).ok()? {
            Value::Int(count) => u32::try_from(count).ok(),
            _ => None,
        }
    }
}

impl ReplicaCount {
    /// Records the store's count at an instant, `None` if it did not answer; returns the accepted
    /// number, 0 before the first count.
    pub fn report(&mut self, count: Option<u32>, now: Instant) -> u32 {
        match count {
            // While the store is down, no process can report.
            None => self.lower = None,
            Some(count) if count >= self.believed => *self = Self { believed: count, lower: None },
            Some(count) => {
                let LowerCount { since, highest } =
                    self.lower.unwrap_or(LowerCount { since: now, highest: count });
                let highest = highest.max(count);
                *self = if now.saturating_duration_since(since) < REPLICA_TTL {
                    Self { lower: Some(LowerCount { since, highest }), ..*self }
                } else {
                    Self { believed: highest, lower: None }
                };
            }
        }
        self.believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the accepted numbers after counts at these seconds.
    fn numbers(reports: &[(u64, Option<u32>)]) -> Vec<u32> {
        let mut count = ReplicaCount::default();
        let begin = Instant::now();
        reports
            .iter()
            .map(|(at, reported)| {
                count.report(*reported, begin.checked_add(Duration::from_secs(*at)).unwrap())
            })
            .collect()
    }

    #[test]
    fn a_higher_count_of_replicas_applies_at_once() {
        assert_eq!(numbers(&[(0, None), (5, Some(1)), (10, Some(3)), (15, Some(7))]), [0, 1, 3, 7]);
    }

    #[test]
    fn a_store_that_lost_its_data_lowers_nothing_while_all_report_again() {
        assert_eq!(
            numbers(&[(0, Some(3)), (5, Some(1)), (10, Some(2)), (15, Some(3)), (20, Some(3))]),
            [3; 5]
        );
    }

    #[test]
    fn processes_that_are_gone_do_not_count_any_more_after_all_others_had_time_to_report() {
        let reports = [
            (0, Some(4)),
            (5, Some(1)),
            (10, Some(2)),
            (15, Some(2)),
            (20, Some(2)),
            (25, Some(2)),
        ];
        assert_eq!(numbers(&reports), [4, 4, 4, 4, 2, 2]);
    }

    #[test]
    fn the_time_to_report_begins_when_the_store_is_back() {
        let away =
            [(0, Some(3)), (5, Some(1)), (10, None), (60, None), (65, Some(1)), (70, Some(3))];
        assert_eq!(numbers(&away), [3; 6]);
    }
}
