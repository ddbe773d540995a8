//! `tollgate who`: shows the callers that used up a counter, from a running service or directly
//! from the store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::api::ServerArgs;
use super::output::{print, report_error};
use super::{block_on, load};
use crate::admin::api::queries::{CounterUsers, TallyView};
use crate::algorithm::tallies::EntryTally;
use crate::descriptor::KeyBuffer;
use crate::journal::key::read_text;
use crate::printable::escaped;
use crate::settings::{ReadingFlags, RedisFlags, place};
use crate::store::any::AnyStore;
use crate::store::backend::Backend as _;
use crate::store::clock::SystemClock;
use crate::telemetry::metrics::Metrics;

/// Timeout for connecting to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of entries to list individually.
const SHOWN: usize = 20;

/// Show which callers used up a counter. Requires `record` in its rate_limit.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if there are callers, 1 if there are none, 2 if they are not available.

Examples:
  # Query the running service
  tollgate who gateway tenant=acme
  # Read the counter directly from Redis
  tollgate who --policy limits.yaml --store redis://redis:6379 gateway tenant=acme")]
pub struct WhoArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Policy file or directory, for reading the store directly. May be repeated.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_POLICY", default_value = "config/policies")]
    policy: Vec<PathBuf>,
    /// Redis URL to read the counter from, instead of querying the running service.
    #[arg(long, env = "TOLLGATE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// Show only this entry. Its value is hashed if the rule has `hash_values`.
    #[arg(long, value_name = "KEY=VALUE", requires = "store")]
    only: Option<String>,
    /// Domain of the counter.
    domain: String,
    /// Descriptor of the counter: key=value,key=value.
    #[arg(value_name = "KEY=VALUE,...")]
    descriptor: String,
    // Last: their help headings apply to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    redis: RedisFlags,
}

impl WhoArgs {
    /// Prints the tallies. Exits with 0 if there are any, 1 if there are none, 2 if they are not
    /// available.
    pub fn run(self) -> ExitCode {
        let tallies = block_on(self.fetch()).map_err(|error| error.to_string());
        match tallies.and_then(|tallies| tallies) {
            Ok(tallies) if tallies.is_empty() => {
                print("no callers recorded for this counter\n");
                ExitCode::from(1)
            }
            Ok(tallies) => {
                print(text(&tallies));
                ExitCode::SUCCESS
            }
            Err(error) => report_error(error),
        }
    }

    async fn fetch(self) -> Result<Vec<EntryTally>, String> {
        let Some(store) = &self.store else {
            let query =
                [("domain", self.domain.as_str()), ("descriptor", self.descriptor.as_str())];
            return self
                .server
                .get::<CounterUsers>("who", &query)
                .await
                .map(|who| who.tallies.into_iter().map(tally).collect());
        };
        let location = self.redis.complete(place(store)?)?;
        let store = AnyStore::<SystemClock>::connect(&location, None, &Metrics::new()).ok_or(
            "counters of `memory` can only be queried through the service; expected a Redis URL for --store",
        )?;
        let loaded = load(&self.reading, &self.policy).map_err(|report| report.to_string())?;
        let policies = loaded.1.policies;
        let mut keys = KeyBuffer::default();
        let owned = read_text(&self.descriptor)
            .map_err(|error| format!("descriptor `{}`: {error}", self.descriptor))?;
        let entries = owned.entries();
        let counter = policies.counter(&self.domain, &entries, &mut keys);
        let (rule, key) = counter.map_err(|error| error.to_string())?;
        if rule.record().is_empty() {
            return Err(format!(
                "rule `{}` does not record callers; add `record: [key]` to its rate_limit",
                rule.path()
            ));
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, store.connected()).await;
        connected.map_err(|_| format!("cannot connect to --store within {CONNECT_TIMEOUT:?}"))?;
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

fn tally(view: TallyView) -> EntryTally {
    let TallyView { who, charged, denied } = view;
    EntryTally { entry: who.unwrap_or_default().into_bytes().into(), charged, denied }
}

fn text(tallies: &[EntryTally]) -> String {
    let mut text = format!("{:>12} {:>12}  caller\n", "charged", "denied");
    let (named, others): (Vec<_>, Vec<_>) =
        tallies.iter().partition(|tally| !tally.entry.is_empty());
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
