//! How to reach Redis, how to name keys there, and whose clock decides.

use std::sync::Arc;

use super::access::Access;
use super::url::{Kind, RedisUrl};
use crate::store::clock::ManualClock;
use crate::store::deny_cache::Learns;

/// How to reach Redis, and how to name keys there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// Where it is.
    pub url: RedisUrl,
    /// As whom.
    pub access: Access,
    /// As whom to ask the sentinels.
    pub sentinel_access: Access,
    /// What all keys begin with; a `{` in it opens a hash tag that it closes, see [`check_prefix`](super::check_prefix).
    pub prefix: Vec<u8>,
    /// Other servers for the limits whose only period is a second; its own prefix is not used.
    pub per_second: Option<Box<RedisOptions>>,
}

impl RedisOptions {
    /// Those of a URL, with nothing besides.
    pub fn at(url: RedisUrl) -> Self {
        let (access, sentinel_access) = (Access::default(), Access::default());
        Self { url, access, sentinel_access, prefix: Vec::new(), per_second: None }
    }

    /// Which denials are certain: not caused by a charge that is taken back.
    pub fn learns(&self) -> Learns {
        match (&self.url.kind, &self.per_second) {
            (Kind::Cluster(_), _) => Learns::WhatIsNeverTakenBack,
            (_, None) => Learns::All,
            // Those of a second are asked first, so that only they charge what may be taken back; but for while they are away
            // and `local` decides for them, after all others.
            (_, Some(_)) => Learns::AllButOfASecond,
        }
    }
}

/// Whose clock decides.
#[derive(Clone, Debug)]
pub enum Time {
    /// The server's.
    Server,
    /// One that is set by hand, for traces.
    Given(Arc<ManualClock>),
}
