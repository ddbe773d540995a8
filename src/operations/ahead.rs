//! Resets of all counters that were written while the store's clock was ahead.

use std::collections::HashMap;
use std::iter;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::audit::AuditEntry;
use super::workers::WorkerService;
use super::{OperationError, deadline};
use crate::algorithm::amend::Amendment;
use crate::algorithm::time::{Micros, Timestamp};
use crate::descriptor::{Identity, OwnedKey};
use crate::policy::{PolicySet, Rule};
use crate::store::StoreError;
use crate::store::backend::Backend;
pub use crate::store::scan::ScanPosition;
use crate::store::scan::{ScanError, ScannedKeys};

/// Minimum time by which a counter's clock must be ahead. One that is less ahead, as after a
/// failover, goes on by itself within that time.
const MIN_AHEAD: Micros = Micros::from_secs(1);
/// Pause after each group of about a hundred keys, so that the store serves decisions meanwhile: at
/// most 10,000 keys a second.
const PAUSE: Duration = Duration::from_millis(10);
/// Time after which the position is returned at which the next call goes on.
const CALL_TIME: Duration = Duration::from_secs(2);

/// A part of the counters of a store, of which those ahead of its clock were reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResetAhead {
    /// Number of keys that were examined.
    pub examined: u64,
    /// Number of counters that were reset.
    pub reset: u64,
    /// Time by which the farthest of them was ahead of the store's clock.
    pub farthest: Micros,
    /// The position at which to go on; `None` at the end.
    pub next: Option<ScanPosition>,
}

/// The rules with counters.
type RulesByIdentity<'p> = HashMap<Identity, &'p Rule>;

/// Resets the counters of rules in force whose clock is ahead of the store's, from a position on,
/// for [`CALL_TIME`].
pub(super) async fn reset_ahead(
    service: &WorkerService<impl Backend>,
    from: Option<ScanPosition>,
    audit: &AuditEntry,
) -> Result<ResetAhead, OperationError> {
    let snapshot = service.limiter().snapshot();
    let rules = by_identity(snapshot.as_deref().ok_or(OperationError::NoPolicy)?.policies());
    let begun = Instant::now();
    let mut found = ResetAhead { next: from.clone(), ..ResetAhead::default() };
    loop {
        let done = reset_some(service, &rules, &mut found).await;
        if done.is_err() || found.next.is_none() || begun.elapsed() >= CALL_TIME {
            audit.add(&format!(
                "counters ahead of the store's clock: {} keys examined, {} counters reset",
                found.examined, found.reset
            ));
            // The next call goes on at the keys that failed, and returns the error if they fail
            // again.
            return if found.next != from { Ok(found) } else { done.map(|()| found) };
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn by_identity(policies: &PolicySet) -> RulesByIdentity<'_> {
    let all = policies.rules().flat_map(|rule| iter::once(rule).chain(rule.candidate()));
    let limits = all.filter(|rule| rule.limit().is_some_and(|limit| !limit.is_ban()));
    limits.map(|rule| (*rule.identity(), rule)).collect()
}

/// Examines the next keys.
async fn reset_some(
    service: &WorkerService<impl Backend>,
    rules: &RulesByIdentity<'_>,
    found: &mut ResetAhead,
) -> Result<(), OperationError> {
    let store = service.limiter().store().backend();
    let ScannedKeys { keys, at, next } =
        store.scan(found.next.clone()).await.map_err(unavailable)?;
    let counters: Vec<(&Rule, &OwnedKey)> = keys
        .iter()
        .filter_map(|key| Some((*rules.get(&Identity::in_key(key.bytes())?)?, key)))
        .collect();
    let looks = counters.iter().map(|(rule, key)| amend(service, rule, key, Amendment::Look));
    let instants = try_join_all(looks).await?;
    // Read after the counters: those that were just written are not ahead of it.
    let now = store.time_at(&at).await.map_err(unavailable)?;
    for ((rule, key), looked) in counters.iter().zip(instants) {
        found.examined += 1;
        let Some((_, last)) = looked.filter(|(_, last)| last.since(now) >= MIN_AHEAD) else {
            continue;
        };
        if amend(service, rule, key, Amendment::Reset).await?.is_some() {
            found.reset += 1;
            found.farthest = found.farthest.max(last.since(now));
        }
    }
    found.next = next;
    Ok(())
}

/// Amends a counter, and returns its instants before and after; `None` if the value is that of no
/// counter.
async fn amend(
    service: &WorkerService<impl Backend>,
    rule: &Rule,
    key: &OwnedKey,
    amendment: Amendment,
) -> Result<Option<(Timestamp, Timestamp)>, OperationError> {
    let key = key.within(rule.domain());
    match service.limiter().amend(rule, key, amendment, deadline()).await {
        Ok(amended) => Ok(Some((amended.before.at, amended.after.at))),
        Err(StoreError::Unreadable) => Ok(None),
        Err(error) => Err(OperationError::Store(error)),
    }
}

fn unavailable(error: ScanError) -> OperationError {
    match error {
        ScanError::UnknownServer(_) => OperationError::Position(error),
        ScanError::NotSupported => OperationError::Counters(error),
        ScanError::NoServer | ScanError::Server(..) => OperationError::Scan(error),
    }
}
