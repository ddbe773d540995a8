//! Options of a store in Redis: address, access, key names, and the clock that decides.

use std::sync::Arc;

use super::access::Access;
use super::url::{RedisUrl, Topology};
use crate::CertainDenials;
use crate::clock::ManualClock;

/// The address and access of Redis, and the names of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// The address.
    pub url: RedisUrl,
    /// Access to the servers.
    pub access: Access,
    /// Access to the sentinels.
    pub sentinel_access: Access,
    /// The prefix of all keys; a `{` in it opens a hash tag that it must close, see
    /// [`check_prefix`](crate::redis::check_prefix).
    pub prefix: Vec<u8>,
    /// Other servers for the limits whose only period is a second; the prefix in these options is
    /// not used.
    pub per_second: Option<Box<RedisOptions>>,
}

impl RedisOptions {
    /// Returns the options for a URL, with defaults for the rest.
    pub fn at(url: RedisUrl) -> Self {
        let access = Access::default();
        let sentinel_access = Access::default();
        Self { url, access, sentinel_access, prefix: Vec::new(), per_second: None }
    }

    /// Returns `true` for a Redis Cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.url.kind, Topology::Cluster(_))
    }

    /// Returns the denials that are certain, unless a proxy shards keys.
    pub(in crate::redis) fn certain_denials(&self) -> CertainDenials {
        match (&self.url.kind, &self.per_second) {
            (Topology::Cluster(_), _) => CertainDenials::IrrevocableOnly,
            (_, None) => CertainDenials::All,
            // Limits of a second are judged first, so that only their charges may be taken back;
            // except while their servers are down and `local` decides for them, after all others.
            (_, Some(_)) => CertainDenials::AllButPerSecond,
        }
    }
}

/// The clock that decides.
#[derive(Clone, Debug)]
pub enum Time {
    /// The server's clock.
    Server,
    /// A clock that is set manually, for traces.
    Given(Arc<ManualClock>),
}
