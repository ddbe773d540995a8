//! Store layer that leases hits from a store in blocks, and admits requests from them in memory.
//!
//! [`tollgate_core::algorithm::lease`] defines blocks, their lifetime and their effect on a limit.
//! This module decides when they are used:
//!
//! - **Leased**: charges of limits that have a lease and are enforced or in shadow mode. Peeks,
//!   refunds, quota votes, bans, limits from the request and counters that occur twice in a request
//!   go to the store. So do charges for which no block has enough hits, alone or with the rest of
//!   their request: since blocks are charged, the store's reply is as exact as without leases.
//! - **Requests with several descriptors**: hits are taken from blocks first; these are allowed and
//!   do not affect the rest, which the store judges. If the request is not admitted, the hits
//!   return to the block, unless the limit is charged `always` or `afterwards`.
//! - **Denials**: only the store denies. Hits that denied requests cost under `always` and
//!   `blamed`, and their tallies, are written there.
//! - **Size**: a key is worth a block from its eighth request per TTL on; a block then holds the
//!   hits of a TTL. So a cold key costs one call per request and no more, and a hot one per TTL as
//!   many calls as it needs blocks, and one to return hits.
//! - **Next block**: leased in the background when a quarter of the last one is left. Until it
//!   arrives, requests go to the store: none waits for a block, and while the store is unavailable
//!   a block is used to its end.
//! - **Reports**: the remaining hits are those of the store's last reply plus those of the blocks;
//!   hits of other processes since then are not included.
//! - **`record`**: a block is charged for the entries recorded by its first request, and serves
//!   only requests that record the same. A block that does not fit is tallied for them as denied
//!   hits.
//! - **Cancellation**: if a request is cancelled while the store judges the rest of it, its hits
//!   return likewise.
//! - **End**: unused hits are taken back by receipt, which takes nothing from a later window; with
//!   several fixed windows, from those that have not ended with the block. A block of another limit
//!   or counter (after a policy change) is no longer used. At shutdown all unused hits are
//!   returned.
//!
//! Each worker has blocks of its own, so that cores do not contend, at the cost of one more block
//! each. Hits that may have been charged without a reply, and hits that could not be returned, are
//! lost to the limit until they expire, and counted in a metric.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::judge::{Few, Hits};
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::verdict::{Overall, Prior, Role, combine};
use tollgate_lease::{Block, BlockTable, OwnedCheck, TakenHits};
use tollgate_telemetry::metrics::StoreMetrics;

use crate::background::{Background, until_sent};
use crate::clock::{instant, within};
use crate::duplicates::are_alone;
use crate::{Check, Lender, Outcomes, Store, StoreError};

/// Timeout of background store calls.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A store that leases blocks of hits instead of calling another store for each request.
pub struct Leases<S> {
    table: Arc<LeaseTable<S>>,
    under_way: Background,
    is_enabled: bool,
}

/// State shared by requests and the tasks that lease blocks and return hits.
struct LeaseTable<S> {
    store: S,
    leases: Mutex<BlockTable>,
    /// Cancelled at shutdown: nothing is leased any more, and all blocks are returned.
    closing: CancellationToken,
    metrics: Arc<StoreMetrics>,
}

impl<S: Lender> Leases<S> {
    /// Creates a layer that leases hits from `store` for limits with a lease.
    pub fn new(store: S, metrics: Arc<StoreMetrics>) -> Self {
        let table = LeaseTable {
            store,
            leases: Mutex::default(),
            closing: CancellationToken::new(),
            metrics,
        };
        Self { table: Arc::new(table), under_way: Background::default(), is_enabled: true }
    }

    /// Creates a layer that leases nothing: `store` decides every request.
    pub fn disabled(store: S, metrics: Arc<StoreMetrics>) -> Self {
        Self { is_enabled: false, ..Self::new(store, metrics) }
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.table.store
    }

    /// Stops leasing, returns the unused hits of all blocks, and waits until that is done.
    pub async fn settled(&self) {
        self.table.closing.cancel();
        self.under_way.settled().await;
    }

    /// Takes the hits of a check from a block. Leases a block in the background if needed.
    fn take(&self, check: &Check<'_>, is_alone: bool, now: Instant) -> Option<TakenHits> {
        let lease = check.lease.as_ref().filter(|_| may_lease(check, is_alone))?;
        let found = self.table.leases.lock().take(check, lease, now);
        if let Some(hits) = found.wanted {
            let limit = check.limit.of_loans();
            let check =
                Check { limit: &limit, hits: Hits::Charge(hits), role: Role::Enforce, ..*check };
            let wanted = Arc::new(OwnedCheck::of(&check));
            let work = Arc::clone(&self.table).hold(Arc::clone(&wanted), lease.ttl);
            if self.table.closing.is_cancelled() || !self.under_way.spawn(work) {
                self.table.leases.lock().record_block(&wanted, Err(&StoreError::Unavailable), None);
            }
        }
        found.taken
    }

    /// Puts back hits that were taken for a request that is not admitted.
    fn put_back(&self, check: &Check<'_>, taken: &mut TakenHits) {
        let Hits::Charge(hits) = check.hits else { return };
        if !check.limit.charge_mode().is_revocable() {
            return;
        }
        let remaining = &mut taken.outcome.report.remaining;
        *remaining = remaining.saturating_add(hits.into());
        if !taken.block.put_back(hits.into()) {
            let table = Arc::clone(&self.table);
            let block = Arc::clone(&taken.block);
            let owned = OwnedCheck::of(check);
            let begun = self
                .under_way
                .spawn(async move { table.give_back(&owned, &block, hits.into()).await });
            if !begun {
                self.table.metrics.leases.lost.inc_by(hits.into());
            }
        }
    }

    /// Records the store's outcomes of checks that no block answered.
    fn record(&self, checks: &[Check<'_>], outcomes: &Outcomes) {
        for (check, outcome) in
            checks.iter().zip(outcomes).filter(|(check, _)| check.lease.is_some())
        {
            self.table.leases.lock().record(check, outcome.as_ref());
        }
    }
}

impl<S: Lender> LeaseTable<S> {
    /// Leases a block, holds it to its end, and returns the unused hits.
    async fn hold(self: Arc<Self>, wanted: Arc<OwnedCheck>, ttl: Micros) {
        let sent = instant();
        let lent = self.store.lend(&wanted.check(), within(STORE_TIMEOUT)).await;
        let receipt = lent.as_ref().ok().and_then(|lent| lent.receipt);
        let block = receipt
            .map(|receipt| Arc::new(Block::new(&wanted.limit, receipt, sent..instant(), ttl)));
        let is_held = self.leases.lock().record_block(&wanted, lent.as_ref(), block.as_ref());
        if let Err(StoreError::Late | StoreError::Lost) = &lent
            && let Hits::Charge(hits) = wanted.hits
        {
            self.metrics.leases.lost.inc_by(hits.into());
        }
        let Some(block) = block else { return };
        self.metrics.leases.blocks.inc();
        let hits = i64::try_from(block.hits()).unwrap_or(i64::MAX);
        self.metrics.leases.outstanding.inc_by(hits);
        if is_held {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(block.end().into()) => {}
                () = self.closing.cancelled() => {}
            }
        }
        let unused = block.close();
        self.metrics.leases.outstanding.dec_by(hits);
        self.metrics.leases.used.inc_by(block.hits().saturating_sub(unused));
        self.metrics.leases.unused.inc_by(unused);
        self.give_back(&wanted, &block, unused).await;
    }

    /// Returns hits of a block to their counter, unless their windows have ended.
    async fn give_back(&self, check: &OwnedCheck, block: &Block, hits: u64) {
        if hits == 0 || block.is_gone(instant()) {
            return;
        }
        let check = check.check();
        let receipt = block.receipt(hits);
        let deadline = within(STORE_TIMEOUT);
        if until_sent(deadline, || self.store.take_back(&check, receipt, deadline)).await.is_err() {
            self.metrics.leases.lost.inc_by(hits);
        }
    }
}

impl<S: Lender> Store for Leases<S> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        let is_leased = self.is_enabled && checks.iter().any(|check| check.lease.is_some());
        async move {
            if is_leased {
                let request = TakenOfBlocks::take(self, checks);
                if request.taken.iter().all(Option::is_some) {
                    return request.finish(prior, &[], Outcomes::new());
                }
                if request.taken.iter().any(Option::is_some) {
                    // Boxed, since every call that waits for the store would carry the lists.
                    return Box::pin(request.decide_rest(prior, deadline)).await;
                }
            }
            let outcomes = self.table.store.decide(checks, prior, deadline).await;
            if is_leased {
                self.record(checks, &outcomes);
            }
            outcomes
        }
    }

    /// Amends the counter only. Blocks that are held are still used to their ends.
    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        self.table.store.amend(check, amendment, deadline).await
    }

    fn now(&self) -> Timestamp {
        self.store().now()
    }
}

/// Hits taken from blocks for a request that is not decided yet; they return to the blocks if it is
/// dropped before.
struct TakenOfBlocks<'a, S: Lender> {
    leases: &'a Leases<S>,
    checks: &'a [Check<'a>],
    taken: Few<Option<TakenHits>>,
}

impl<'a, S: Lender> TakenOfBlocks<'a, S> {
    /// Takes the hits of each check from its block, if that has enough.
    fn take(leases: &'a Leases<S>, checks: &'a [Check<'a>]) -> Self {
        let now = instant();
        let taken = checks.iter().zip(are_alone(checks));
        let taken = taken.map(|(check, is_alone)| leases.take(check, is_alone, now)).collect();
        Self { leases, checks, taken }
    }

    /// Calls the store for the checks that no block answers.
    async fn decide_rest(self, prior: Prior, deadline: Instant) -> Outcomes {
        let rest = self.checks.iter().zip(&self.taken).filter(|(_, taken)| taken.is_none());
        let rest: Few<Check<'_>> = rest.map(|(check, _)| *check).collect();
        let answers = self.leases.table.store.decide(&rest, prior, deadline).await;
        self.leases.record(&rest, &answers);
        self.finish(prior, &rest, answers)
    }

    /// Returns the outcomes of all checks, given the store's outcomes of the rest.
    fn finish(mut self, prior: Prior, rest: &[Check<'_>], answers: Outcomes) -> Outcomes {
        // Hits from blocks are allowed, and enforced or in shadow mode: only the rest decides.
        let verdicts = rest
            .iter()
            .zip(&answers)
            .map(|(check, answer)| (check.role, check.verdict(answer.as_ref())));
        if combine(prior, verdicts) != Overall::Admitted {
            self.put_back();
        }
        let mut answers = answers.into_iter();
        let outcomes = std::mem::take(&mut self.taken).into_iter().map(|taken| match taken {
            Some(taken) => Ok(taken.outcome),
            None => answers.next().unwrap_or(Err(StoreError::Unavailable)),
        });
        outcomes.collect()
    }

    fn put_back(&mut self) {
        let taken = self
            .checks
            .iter()
            .zip(&mut self.taken)
            .filter_map(|(check, taken)| Some((check, taken.as_mut()?)));
        taken.for_each(|(check, taken)| self.leases.put_back(check, taken));
    }
}

impl<S: Lender> Drop for TakenOfBlocks<'_, S> {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Returns `true` if a block may answer a check.
fn may_lease(check: &Check<'_>, is_alone: bool) -> bool {
    matches!(check.hits, Hits::Charge(_))
        && matches!(check.role, Role::Enforce | Role::Shadow)
        && !check.limit.is_ban()
        && is_alone
}
