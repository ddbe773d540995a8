//! The store of counters: its URL, its memory, and the timeout of a decision.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{MemorySettings, Problems, SettingProblem, parse, redis};
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
        hide_env_values = true
    )]
    store: String,
    /// Timeout of a decision if the caller sets no deadline. Envoy waits 20 ms by default.
    #[arg(long, env = "TOLLGATE_STORE_TIMEOUT", value_name = "DURATION", default_value = "15ms")]
    store_timeout: String,
    /// Maximum time to cache a denial without querying Redis again; 0s: disabled.
    #[arg(long, env = "TOLLGATE_DENY_CACHE_MAX", value_name = "DURATION", default_value = "1s")]
    deny_cache_max: String,
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
        help_heading = "Memory"
    )]
    memory_domain_share: String,
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
    pub(super) fn resolve(
        &self,
        memory: &MemorySettings,
        problems: &mut Problems,
    ) -> StoreSettings {
        let max_bytes = memory.counters;
        let share = problems.read("--memory-domain-share", &self.memory_domain_share, parse::share);
        let place = problems.read("--store", &self.store, place);
        StoreSettings {
            place: self.redis.complete(place).unwrap_or_else(|what| {
                problems.0.push(SettingProblem { flag: "--per-second-store", what });
                StoreLocation::Memory
            }),
            memory: Bounds { max_bytes, domain_max_bytes: share.of(max_bytes) },
            timeout: problems.read("--store-timeout", &self.store_timeout, parse::duration),
            deny_cache_max: problems.read(
                "--deny-cache-max",
                &self.deny_cache_max,
                parse::duration,
            ),
            ready_without: self.ready_without_store,
            share: self.share(problems),
        }
    }

    fn share(&self, problems: &mut Problems) -> Option<Share> {
        let replicas = self.replicas?;
        if let Some(index) = self.replica_index
            && index >= replicas.get()
        {
            let what = format!("expected an index below --replicas {replicas}, found {index}");
            problems.0.push(SettingProblem { flag: "--replica-index", what });
        }
        Some(Share::of(replicas, self.replica_index))
    }
}

/// Parses the URL of a store.
///
/// # Errors
/// The URL is invalid; the text has what was found and what is allowed.
pub fn place(text: &str) -> Result<StoreLocation, String> {
    match (text.trim(), RedisUrl::parse(text.trim())) {
        ("memory", _) => Ok(StoreLocation::Memory),
        (_, Some(url)) => {
            let url = url.map_err(|error| error.to_string())?;
            Ok(StoreLocation::Redis(Box::new(RedisOptions::at(url))))
        }
        // The rest of the URL may contain a password.
        (other, None) => Err(format!(
            "expected `memory`, or a URL that begins with redis://, rediss://, redis+unix://, redis-cluster:// or redis-sentinel://, found `{}`",
            other.split([':', '@']).next().unwrap_or_default()
        )),
    }
}
