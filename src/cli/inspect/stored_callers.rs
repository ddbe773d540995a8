//! The callers that used up a counter, read from Redis directly: for a service that does not run,
//! or whose admin port cannot be reached.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::admin::api::queries::TallyView;
use crate::algorithm::tallies::EntryTally;
use crate::cli::counter::CounterArgs;
use crate::cli::output::print;
use crate::cli::{CommandError, load, table, try_block_on};
use crate::descriptor::KeyBuffer;
use crate::printable::escaped;
use crate::settings::{ReadingFlags, RedisFlags, place};
use crate::store::any::AnyStore;
use crate::store::backend::Backend as _;
use crate::store::clock::SystemClock;
use crate::telemetry::journal::key::read_text;
use crate::telemetry::metrics::Metrics;

/// Timeout for connecting to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of entries to list individually.
const SHOWN: usize = 20;

/// Arguments for reading a counter without the service.
#[derive(Debug, clap::Args)]
pub(super) struct StoredCallersArgs {
    /// Redis URL: read only the callers of the counter, from there, instead of querying the running
    /// service.
    #[arg(long, value_name = "URL")]
    pub(super) store: Option<String>,
    /// Policy file or directory, for reading the store directly. May be repeated.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_POLICY", default_value = "config/policies")]
    policy: Vec<PathBuf>,
    /// Show only this entry. Its value is hashed if the rule has `hash_values`.
    #[arg(long, value_name = "KEY=VALUE", requires = "store")]
    only: Option<String>,
    // Last: their help headings apply to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    redis: RedisFlags,
}

impl StoredCallersArgs {
    /// Prints the tallies in the store at a URL. Exits with 0 if there are any, 1 if there are
    /// none, 2 if they are not available.
    pub(super) fn run(self, store: &str, which: &CounterArgs) -> Result<ExitCode, CommandError> {
        let tallies = try_block_on(self.fetch(store, which))?;
        let code = ExitCode::from(u8::from(tallies.is_empty()));
        print(if which.json {
            let views = tallies.into_iter().map(TallyView::from);
            table::json(&views.collect::<Vec<_>>())
        } else {
            text(&tallies)
        });
        Ok(code)
    }

    async fn fetch(
        self,
        store: &str,
        which: &CounterArgs,
    ) -> Result<Vec<EntryTally>, CommandError> {
        let location = self.redis.complete(place(store)?)?;
        let store = AnyStore::<SystemClock>::connect(&location, None, &Metrics::new().store)
            .ok_or("counters of `memory` can only be queried through the service; expected a Redis URL for --store")?;
        let policies = load(&self.reading, &self.policy)?.1.policies;
        let mut keys = KeyBuffer::default();
        let text = &which.descriptor;
        let owned = read_text(text).map_err(|error| format!("descriptor `{text}`: {error}"))?;
        let entries = owned.entries();
        let counter = policies.counter(&which.domain, &entries, &mut keys);
        let (rule, key) = counter.map_err(|error| error.to_string())?;
        if rule.record().is_empty() {
            let path = rule.path();
            return Err(format!(
                "rule `{path}` does not record callers; add `record: [key]` to its rate_limit"
            )
            .into());
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, store.connected()).await;
        connected.map_err(|_| format!("cannot connect to --store within {CONNECT_TIMEOUT:?}"))?;
        let mut tallies = store.tallies(&key).await?;
        if let Some(only) = &self.only
            && let Some(policy) = policies.find(&which.domain)
        {
            let (key, value) = only.split_once('=').unwrap_or((only, ""));
            let entry = [key.as_bytes(), b"=", &policy.shown(rule, value.as_bytes())].concat();
            tallies.retain(|tally| *tally.entry == *entry);
        }
        Ok(tallies)
    }
}

fn text(tallies: &[EntryTally]) -> String {
    if tallies.is_empty() {
        return "no callers recorded for this counter\n".to_owned();
    }
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
