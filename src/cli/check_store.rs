//! `tollgate check-store`: checks that a store is suitable before a service uses it.

use std::process::ExitCode;
use std::time::Duration;

use super::block_on;
use super::said::{no_answer, say};
use crate::settings::{RedisFlags, StoreLocation, place};
use crate::store::redis::{Grade, RedisStore, StoreFinding, Time};
use crate::telemetry::metrics::Metrics;

/// Timeout for connecting to the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show what a Redis or Valkey supports and what it lacks, before a service uses it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tollgate check-store redis://redis:6379
  tollgate check-store redis-cluster://a:6379,b:6379 --redis-user tollgate --redis-password-file /run/secrets/redis

Exit status 0: limits are decided there, whatever is warned of; 1: they are not; 2: it cannot be reached.")]
pub struct CheckStore {
    /// Store to check, a URL as for --store of serve.
    #[arg(value_name = "URL")]
    store: String,
    #[command(flatten)]
    redis: RedisFlags,
}

impl CheckStore {
    /// Runs the check and prints the findings.
    pub fn run(self) -> ExitCode {
        match block_on(self.examine()).map_err(|error| error.to_string()).and_then(|examined| examined) {
            Ok(findings) => {
                say(text(&findings));
                let is_usable = findings.iter().all(|finding| finding.grade < Grade::Problem);
                if is_usable { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => no_answer(error),
        }
    }

    async fn examine(self) -> Result<Vec<StoreFinding>, String> {
        let StoreLocation::Redis(options) = self.redis.complete(place(&self.store)?)? else {
            return Err("`memory` is in the serving process and needs no check; expected the URL of a Redis".to_owned());
        };
        let store = RedisStore::connect(*options, Time::Server, Metrics::new());
        if tokio::time::timeout(PATIENCE, store.connected()).await.is_ok() {
            return Ok(store.examine().await);
        }
        if let Some((server, text)) = store.missing_rights() {
            return Ok(vec![StoreFinding { server, topic: "rights", grade: Grade::Problem, text }]);
        }
        let why = store.connect_error().map(|error| format!(": {error}")).unwrap_or_default();
        Err(format!("the store cannot be reached within {PATIENCE:?}{why}"))
    }
}

fn text(findings: &[StoreFinding]) -> String {
    let mut text = String::new();
    let mut server = "";
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            text.push_str(&format!("{server}\n"));
        }
        let grade = match finding.grade {
            Grade::Good => "ok",
            Grade::Warning => "warning",
            Grade::Problem => "problem",
        };
        text.push_str(&format!("  {grade:<8} {:<12} {}\n", finding.topic, finding.text));
    }
    text
}
