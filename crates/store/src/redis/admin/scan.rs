//! Iteration over the keys of all masters, and their deletion.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tollgate_core::algorithm::time::Timestamp;

use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::{Core, within};
use crate::redis::script::key::key_in;
use crate::redis::server::Node;
use crate::redis::server::failure::CallFailure;
use crate::scan::{ScanError, ScanPosition, ScannedKeys};

/// Timeout for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Keys at which a server looks for one reply.
const COUNT: u32 = 100;
/// The same for keys that are deleted.
const CLEAR_COUNT: u32 = 1_000;
/// Timeout for one step of deleting keys.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A master whose keys are listed.
struct ScannedMaster {
    /// Set if it is for limits of a second.
    per_second: bool,
    node: Arc<Node>,
}

impl ScannedMaster {
    /// Returns the position of its first keys.
    fn start(&self) -> ScanPosition {
        let address = self.node.address.to_string();
        ScanPosition { per_second: self.per_second, address, cursor: 0 }
    }

    /// Returns `true` if a position is at this master.
    fn has(&self, at: &ScanPosition) -> bool {
        at.per_second == self.per_second && at.address == self.node.address.to_string()
    }
}

impl RedisStore {
    /// Returns about a hundred keys at a position, or those of the first master.
    ///
    /// # Errors
    /// The server failed, or is no master of the store.
    pub(in crate::redis) async fn scan(
        &self,
        at: Option<ScanPosition>,
    ) -> Result<ScannedKeys, ScanError> {
        let masters = self.masters();
        let Some(at) = at.or_else(|| masters.first().map(ScannedMaster::start)) else {
            return Err(ScanError::NoServer);
        };
        let mut from_here = masters.iter().skip_while(|master| !master.has(&at));
        from_here.next().ok_or_else(|| ScanError::UnknownServer(at.address.clone()))?;
        let core = self.core_for(at.per_second);
        let reply = self.call_at(&at, &scan_command(&core.prefix, at.cursor, COUNT)).await?;
        let (cursor, names): (u64, Vec<Vec<u8>>) = read_at(&at, reply)?;
        let next = match cursor {
            0 => from_here.next().map(ScannedMaster::start),
            cursor => Some(ScanPosition { cursor, ..at.clone() }),
        };
        let keys = names.iter().filter_map(|name| key_in(&core.prefix, name)).collect();
        Ok(ScannedKeys { keys, at, next })
    }

    /// Deletes every key that begins with this store's prefix.
    ///
    /// # Errors
    /// Returns the error of the node that failed.
    pub(in crate::redis) async fn clear(&self) -> Result<(), StoreError> {
        for ScannedMaster { node, .. } in self.masters() {
            let mut cursor = 0;
            loop {
                let scan = scan_command(&self.core.prefix, cursor, CLEAR_COUNT);
                let reply = node.call(&scan, within(CLEAR_TIMEOUT)).await?;
                let (next, names): (u64, Vec<Vec<u8>>) =
                    redis::from_redis_value(reply).map_err(|_| StoreError::Refused)?;
                for name in names {
                    node.call(redis::cmd("UNLINK").arg(name), within(CLEAR_TIMEOUT)).await?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the time of the server at a position.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub(in crate::redis) async fn time_at(
        &self,
        at: &ScanPosition,
    ) -> Result<Timestamp, ScanError> {
        let reply = self.call_at(at, &redis::cmd("TIME")).await?;
        let (seconds, us): (u64, u64) = read_at(at, reply)?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(us)))
    }

    async fn call_at(&self, at: &ScanPosition, command: &redis::Cmd) -> Result<Value, ScanError> {
        let core = self.core_for(at.per_second);
        let masters = self.masters();
        let master = masters
            .iter()
            .find(|master| master.has(at))
            .ok_or_else(|| ScanError::UnknownServer(at.address.clone()))?;
        let reply = master.node.call(command, within(REPLY_TIMEOUT)).await;
        reply.map_err(|failure| failed(core, at, failure))
    }

    /// Returns all masters, in the same order each time.
    fn masters(&self) -> Vec<ScannedMaster> {
        let mut all = Vec::new();
        for core in self.cores() {
            let mut masters = core.routes.masters();
            masters.sort_by_cached_key(|node| node.address.to_string());
            let per_second = !Arc::ptr_eq(core, &self.core);
            all.extend(masters.into_iter().map(|node| ScannedMaster { per_second, node }));
        }
        all
    }
}

/// Returns the command for some names with a prefix, at a cursor.
fn scan_command(prefix: &[u8], cursor: u64, count: u32) -> redis::Cmd {
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern(prefix)).arg("COUNT").arg(count);
    command
}

fn failed(core: &Core, at: &ScanPosition, failure: CallFailure) -> ScanError {
    core.complain_of(&failure);
    ScanError::Server(at.address.clone(), failure.into())
}

fn read_at<T: FromRedisValue>(at: &ScanPosition, reply: Value) -> Result<T, ScanError> {
    redis::from_redis_value(reply)
        .map_err(|_| ScanError::Server(at.address.clone(), StoreError::Unreadable))
}

/// Returns the pattern of names that begin with a prefix, each byte of which stands for itself.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len());
    for byte in prefix {
        if b"*?[]\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_of_a_prefix_stands_for_itself() {
        assert_eq!(super::pattern(b"a*[b]\\:"), b"a\\*\\[b\\]\\\\:*");
        assert_eq!(super::pattern(b""), b"*");
    }
}
