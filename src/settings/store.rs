//! The store of counters: its URL, its memory, and the timeout of a decision.

use std::num::NonZeroU32;
use std::time::Duration;

use super::parse::{self, Thousandths};
use super::{FlagError, FlagValue, MemorySettings, Problems, deferred, redis};
use crate::algorithm::share::Share;
pub use crate::store::any::StoreLocation;
use crate::store::memory::Bounds;
use crate::store::redis::{RedisOptions, RedisUrl};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Store")]
pub(super) struct Flags {
    /// Store of counters: memory, redis://HOST, rediss://HOST, redis+unix:///PATH,
    /// redis-cluster://HOST,HOST, redis-sentinel://MASTER@HOST,HOST; rediss-cluster and
    /// rediss-sentinel with TLS.
    #[arg(
        long,
        env = "TOLLGATE_STORE",
        value_name = "URL",
        default_value = "memory",
        hide_env_values = true,
        value_parser = deferred(place)
    )]
    store: FlagValue<StoreLocation>,
    /// Timeout of a decision if the caller sets no deadline. Envoy waits 20 ms by default.
    #[arg(long, env = "TOLLGATE_STORE_TIMEOUT", value_name = "DURATION", default_value = "15ms", value_parser = deferred(parse::duration))]
    store_timeout: FlagValue<Duration>,
    /// Maximum time to cache a denial without querying Redis again; 0s: disabled.
    #[arg(long, env = "TOLLGATE_DENY_CACHE_MAX", value_name = "DURATION", default_value = "1s", value_parser = deferred(parse::duration))]
    deny_cache_max: FlagValue<Duration>,
    /// Report ready even if the store has not been reached yet or is a read-only replica;
    /// meanwhile, on_store_error applies.
    #[arg(long, env = "TOLLGATE_READY_WITHOUT_STORE")]
    ready_without_store: bool,
    /// Number of replicas that share the store, for on_store_error: local; default: those that are
    /// registered in the store.
    #[arg(long, env = "TOLLGATE_REPLICAS", value_name = "N")]
    replicas: Option<NonZeroU32>,
    /// Index of this replica among --replicas, from 0: the number of a StatefulSet's pod. Without
    /// it, the hits of a limit that are left when it is divided by N are admitted by none.
    #[arg(long, env = "TOLLGATE_REPLICA_INDEX", value_name = "I", requires = "replicas")]
    replica_index: Option<u32>,
    #[command(flatten)]
    redis: redis::Flags,
    /// Share of --memory-max that the counters of one domain may use.
    #[arg(
        long,
        env = "TOLLGATE_MEMORY_DOMAIN_SHARE",
        value_name = "SHARE",
        default_value = "0.5",
        help_heading = "Memory",
        value_parser = deferred(parse::share)
    )]
    memory_domain_share: FlagValue<Thousandths>,
}

/// The store of counters: its kind, its memory, and the timeout of a decision.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Kind of the store.
    pub place: StoreLocation,
    /// Bounds of the memory store.
    pub memory: Bounds,
    /// Timeout of a decision if the caller sets no deadline.
    pub timeout: Duration,
    /// Maximum time to cache a denial.
    pub deny_cache_max: Duration,
    /// Set if the service is ready before the store has been reached.
    pub ready_without: bool,
    /// Share of this process under `on_store_error: local`, if the number of replicas is given.
    pub share: Option<Share>,
}

impl Flags {
    pub(super) fn resolve(self, memory: &MemorySettings, problems: &mut Problems) -> StoreSettings {
        let share = share(self.replicas, self.replica_index);
        let max_bytes = memory.counters;
        let domain_max_bytes = problems.take(self.memory_domain_share).of(max_bytes);
        let place = problems.take(self.store);
        StoreSettings {
            place: self.redis.complete(place).unwrap_or_else(|problem| {
                problems.0.push(problem);
                StoreLocation::Memory
            }),
            memory: Bounds { max_bytes, domain_max_bytes },
            timeout: problems.take(self.store_timeout),
            deny_cache_max: problems.take(self.deny_cache_max),
            ready_without: self.ready_without_store,
            share: share.unwrap_or_else(|what| {
                problems.add("--replica-index", what);
                None
            }),
        }
    }
}

/// Returns the share of a replica, if the number of replicas is given.
fn share(replicas: Option<NonZeroU32>, index: Option<u32>) -> Result<Option<Share>, FlagError> {
    let Some(replicas) = replicas else { return Ok(None) };
    match index {
        Some(found) if found >= replicas.get() => {
            let allowed =
                format_args!("expected an index below --replicas {replicas}, found {found}");
            Err(FlagError::refused(allowed))
        }
        index => Ok(Some(Share::of(replicas, index))),
    }
}

/// Parses the URL of a store.
///
/// # Errors
/// The URL is invalid.
pub fn place(text: &str) -> Result<StoreLocation, FlagError> {
    const ALLOWED: &str = "`memory`, or a URL that begins with redis://, rediss://, redis+unix://, redis-cluster:// or redis-sentinel://";
    match (text.trim(), RedisUrl::parse(text.trim())) {
        ("memory", _) => Ok(StoreLocation::Memory),
        (_, Some(Ok(url))) => Ok(StoreLocation::Redis(Box::new(RedisOptions::at(url)))),
        (_, Some(Err(problem))) => Err(FlagError::refused(problem)),
        // The rest of the URL may contain a password.
        (other, None) => {
            let shown = other.split([':', '@']).next().unwrap_or_default();
            Err(FlagError::unexpected(ALLOWED, shown))
        }
    }
}
