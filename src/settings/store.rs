//! Where counters live, how much room they have, and how long a decision may take.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Problem, Problems, parse, redis};
use crate::store::memory::Bounds;
use crate::store::redis::{RedisOptions, RedisUrl};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Store")]
pub(super) struct Flags {
    /// Where counters live: memory, redis://HOST, rediss://HOST, redis+unix:///PATH, redis-cluster://HOST,HOST,
    /// redis-sentinel://MASTER@HOST,HOST; rediss-cluster and rediss-sentinel with TLS.
    #[arg(long, env = "TOLLGATE_STORE", value_name = "URL", default_value = "memory", hide_env_values = true)]
    store: String,
    /// Time for a decision where the caller sets none. Envoy waits 20 ms unless told otherwise.
    #[arg(long, env = "TOLLGATE_STORE_TIMEOUT", value_name = "DURATION", default_value = "15ms")]
    store_timeout: String,
    /// How long a denial is remembered at most, without asking Redis again; 0s: not at all.
    #[arg(long, env = "TOLLGATE_DENY_CACHE_MAX", value_name = "DURATION", default_value = "1s")]
    deny_cache_max: String,
    /// Be ready before the store has been reached once, and while it is a replica; on_store_error answers meanwhile.
    #[arg(long, env = "TOLLGATE_READY_WITHOUT_STORE")]
    ready_without_store: bool,
    /// How many processes share the store, for on_store_error: local; default: those heard of in the store.
    #[arg(long, env = "TOLLGATE_REPLICAS", value_name = "N")]
    replicas: Option<NonZeroU32>,
    #[command(flatten)]
    redis: redis::Flags,
    /// Memory for counters. When it is full, a new counter is refused and its limit's on_store_error answers.
    #[arg(long, env = "TOLLGATE_MEMORY_MAX", value_name = "SIZE", default_value = "256MiB")]
    memory_max: String,
    /// The part of it that the counters of one domain may take.
    #[arg(long, env = "TOLLGATE_MEMORY_DOMAIN_SHARE", value_name = "SHARE", default_value = "0.5")]
    memory_domain_share: String,
}

/// Where counters live, how much room they have, and how long a decision may take.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Which store.
    pub place: Place,
    /// The room of the memory store.
    pub memory: Bounds,
    /// Time for a decision where the caller sets none.
    pub timeout: Duration,
    /// How long a denial is remembered at most.
    pub deny_cache_max: Duration,
    /// Whether the service is ready before the store has been reached.
    pub ready_without: bool,
    /// How many processes share the store, where that is given.
    pub replicas: Option<NonZeroU32>,
}

/// Which store.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// This process's memory.
    #[default]
    Memory,
    /// Redis.
    Redis(Box<RedisOptions>),
}

impl Flags {
    pub(super) fn resolve(&self, problems: &mut Problems) -> StoreSettings {
        let max_bytes = problems.read("--memory-max", &self.memory_max, parse::bytes);
        let share = problems.read("--memory-domain-share", &self.memory_domain_share, parse::share);
        let place = problems.read("--store", &self.store, place);
        if (1..1 << 20).contains(&max_bytes) {
            let what = format!("counters need at least 1MiB, found `{}`", self.memory_max);
            problems.0.push(Problem { flag: "--memory-max", what });
        }
        StoreSettings {
            place: self.redis.complete(place).unwrap_or_else(|what| {
                problems.0.push(Problem { flag: "--per-second-store", what });
                Place::Memory
            }),
            memory: Bounds { max_bytes, domain_max_bytes: share.of(max_bytes) },
            timeout: problems.read("--store-timeout", &self.store_timeout, parse::duration),
            deny_cache_max: problems.read("--deny-cache-max", &self.deny_cache_max, parse::duration),
            ready_without: self.ready_without_store,
            replicas: self.replicas,
        }
    }
}

/// Reads a store's URL.
///
/// # Errors
/// What was found and what is allowed.
pub fn place(text: &str) -> Result<Place, String> {
    match (text.trim(), RedisUrl::parse(text.trim())) {
        ("memory", _) => Ok(Place::Memory),
        (_, Some(url)) => Ok(Place::Redis(Box::new(RedisOptions::at(url?)))),
        // What comes after the scheme may have a password in it.
        (other, None) => Err(format!(
            "expected `memory`, or a URL that begins with redis://, rediss://, redis+unix://, redis-cluster:// or redis-sentinel://, found `{}`",
            other.split([':', '@']).next().unwrap_or_default()
        )),
    }
}
