//! `tollgate who`: shows who used a counter up, from a running service or directly from the store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::api::ServerArgs;
use super::said::{no_answer, say};
use super::{block_on, load};
use crate::admin::api::ask::{CounterUsers as Answer, TallyView};
use crate::algorithm::tallies::EntryTally;
use crate::descriptor::KeyBuffer;
use crate::journal::key::read_text;
use crate::printable::escaped;
use crate::settings::{ReadingFlags, RedisFlags, StoreLocation, place};
use crate::store::redis::{RedisStore, Time};
use crate::telemetry::metrics::Metrics;

/// Timeout for connecting to the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of entries to list individually.
const SHOWN: usize = 20;

/// Show who used a counter up, if its limit has `record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tollgate who gateway tenant=acme
  tollgate who --policy limits.yaml --store redis://redis:6379 gateway tenant=acme")]
pub struct WhoArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Policy file or directory, to read the store directly instead of through a service. May be
    /// repeated.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_POLICY", default_value = "config/policies")]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Store of the counters; without it, the running service is queried.
    #[arg(long, env = "TOLLGATE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    #[command(flatten)]
    redis: RedisFlags,
    /// Show the tally of this entry only; its value is hashed as the limit hashes its values.
    #[arg(long, value_name = "KEY=VALUE", requires = "store")]
    only: Option<String>,
    /// Domain of the counter.
    domain: String,
    /// Descriptor that leads to the counter: key=value,key=value.
    #[arg(value_name = "KEY=VALUE,...")]
    descriptor: String,
}

impl WhoArgs {
    /// Prints the tallies. Exits with 0 if there are any, 1 if there are none, 2 if they are not
    /// available.
    pub fn run(self) -> ExitCode {
        let told = block_on(self.ask()).map_err(|error| error.to_string());
        match told.and_then(|told| told) {
            Ok(tallies) if tallies.is_empty() => {
                say("nobody has used this counter since it began\n");
                ExitCode::from(1)
            }
            Ok(tallies) => {
                say(text(&tallies));
                ExitCode::SUCCESS
            }
            Err(error) => no_answer(error),
        }
    }

    async fn ask(self) -> Result<Vec<EntryTally>, String> {
        let Some(store) = &self.store else {
            let query = [("domain", self.domain.as_str()), ("descriptor", self.descriptor.as_str())];
            return self
                .server
                .get::<Answer>("who", &query)
                .await
                .map(|who| who.tallies.into_iter().map(tally).collect());
        };
        let StoreLocation::Redis(options) = self.redis.complete(place(store)?)? else {
            return Err("the counters of `memory` are in the serving process; --store must be a Redis URL".to_owned());
        };
        let loaded = load(&self.reading, &self.policy).map_err(|report| report.to_string())?;
        let policies = loaded.1.policies;
        let mut keys = KeyBuffer::default();
        let owned =
            read_text(&self.descriptor).map_err(|wrong| format!("descriptor `{}`: {wrong}", self.descriptor))?;
        let entries = owned.entries();
        let counter = policies.counter(&self.domain, &entries, &mut keys);
        let (rule, key) = counter.map_err(|error| error.to_string())?;
        if rule.record().is_empty() {
            return Err(format!("rule `{}` records nobody; give its rate_limit `record: [key]`", rule.path()));
        }
        let store = RedisStore::connect(*options, Time::Server, Metrics::new());
        let connected = tokio::time::timeout(PATIENCE, store.connected()).await;
        connected.map_err(|_| format!("--store cannot be reached within {PATIENCE:?}"))?;
        let mut tallies = store.tallies(&key).await.map_err(|error| error.to_string())?;
        if let Some(only) = &self.only
            && let Some(policy) = policies.find(&self.domain)
        {
            let (key, value) = only.split_once('=').unwrap_or((only, ""));
            let entry = [key.as_bytes(), b"=", &policy.shown(rule, value.as_bytes())].concat();
            tallies.retain(|tally| *tally.entry == *entry);
        }
        Ok(tallies)
    }
}

fn tally(told: TallyView) -> EntryTally {
    let TallyView { who, charged, denied } = told;
    EntryTally { entry: who.unwrap_or_default().into_bytes().into(), charged, denied }
}

fn text(tallies: &[EntryTally]) -> String {
    let mut text = format!("{:>12} {:>12}  who\n", "charged", "denied");
    let (named, others): (Vec<_>, Vec<_>) = tallies.iter().partition(|tally| !tally.entry.is_empty());
    for tally in named.iter().take(SHOWN) {
        let who = String::from_utf8_lossy(&tally.entry);
        text.push_str(&format!("{:>12} {:>12}  {}\n", tally.charged, tally.denied, escaped(&who)));
    }
    let rest = named.iter().skip(SHOWN).chain(&others);
    let sum = rest.fold((0u64, 0u64), |(charged, denied), tally| {
        (charged.saturating_add(tally.charged), denied.saturating_add(tally.denied))
    });
    if sum != (0, 0) {
        text.push_str(&format!("{:>12} {:>12}  (other)\n", sum.0, sum.1));
    }
    text
}
