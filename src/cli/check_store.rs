//! `tollgate check-store`: checks that a store is suitable before a service uses it.

use std::process::ExitCode;
use std::time::Duration;

use super::output::print;
use super::{CommandError, try_block_on};
use crate::settings::{RedisFlags, place};
use crate::store::any::AnyStore;
use crate::store::backend::{Backend as _, BackendState};
use crate::store::clock::SystemClock;
use crate::store::servers::{AccessRefusal, Grade, RefusedAccess, StoreFinding};
use crate::telemetry::metrics::Metrics;

/// Timeout for connecting to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Check that a Redis or Valkey server can be used as the store
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checks the version, latency, scripts, permissions, memory and settings of each server, and that a \
key can be written, which it removes at once.

Exit codes: 0 if the store can be used, even with warnings, 1 if it cannot, 2 if it is unreachable.

Examples:
  # Check a single server
  tollgate check-store redis://redis:6379
  # Check all nodes of a cluster, as a Redis user
  tollgate check-store redis-cluster://a:6379,b:6379 --redis-user tollgate --redis-password-file redis.txt")]
pub struct CheckStore {
    /// URL of the store, as for --store of `tollgate serve`.
    #[arg(value_name = "URL")]
    store: String,
    #[command(flatten)]
    redis: RedisFlags,
}

impl CheckStore {
    /// Runs the check and prints the findings.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let findings = try_block_on(self.examine())?;
        print(text(&findings));
        let is_usable = findings.iter().all(|finding| finding.grade < Grade::Problem);
        Ok(if is_usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn examine(self) -> Result<Vec<StoreFinding>, CommandError> {
        let location = self.redis.complete(place(&self.store)?)?;
        let store = AnyStore::<SystemClock>::connect(&location, None, &Metrics::new().store)
            .ok_or("`memory` is part of the service and needs no check; expected a Redis URL")?;
        if tokio::time::timeout(CONNECT_TIMEOUT, store.connected()).await.is_ok() {
            return Ok(store.examine().await?);
        }
        let reason = match store.state() {
            BackendState::Refused(RefusedAccess { address, refusal, text }) => {
                let topic = match refusal {
                    AccessRefusal::Login => "password",
                    AccessRefusal::Commands => "permissions",
                };
                let grade = Grade::Problem;
                return Ok(vec![StoreFinding { server: address, topic, grade, text }]);
            }
            BackendState::Replica(_) => Some("server is a read-only replica".to_owned()),
            BackendState::NotConnected(reason) => reason,
            BackendState::Connected => None,
        };
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        Err(format!("cannot connect to the store within {CONNECT_TIMEOUT:?}{reason}").into())
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
