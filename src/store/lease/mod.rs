//! A layer that takes hits of a store in advance, a block at a time, and admits from it in memory.
//!
//! What a block is, how long it is kept, and what that does to a limit: [`crate::algorithm::lease`]. Here is who uses one.
//!
//! - **What is leased**: charges of limits that have a lease and are enforced or in shadow mode. Peeks, refunds, votes, bans, limits
//!   that a request brings along, and a counter that a request asks for twice go to the store. So does what no block has enough hits
//!   for, alone or with the rest of its request: since blocks are charged, the store's answer is as exact as without them.
//! - **A request with more**: hits are taken of blocks first, which allows and so says nothing of the rest; the store judges that.
//!   Where the request is not admitted, the hits go back to the block, unless the limit is charged `always` or `afterwards`.
//! - **Denials are the store's**: no block denies. What they cost under `always` and `blamed`, and their tallies, are written there.
//! - **Size**: a key is worth a block from its eighth request in a ttl on; then a block is what a ttl takes of it. So a cold key
//!   costs one call a request and no more, and a hot one in a ttl as many as it needs blocks, and one to give back.
//! - **The next block** is asked for in the background when a quarter of the last one is left. Until it is there, requests ask for
//!   themselves: nobody waits for a block, and while the store is away a block goes on to its end.
//! - **Reports**: hits left are what the store said last and what is left of the blocks; other processes' hits since are not in it.
//! - **`record`**: a block is charged in the name of the entries that its first request recorded, and serves those. One that does not
//!   fit is tallied as theirs and denied.
//! - **A caller that goes away** while the rest of its request is judged was told nothing: its hits go back likewise.
//! - **The end**: hits that are not used are taken back by receipt, which takes nothing of a later window: of several fixed windows
//!   from those that have not ended with the block. A block of another limit or counter (a changed policy) is not used any more.
//!   At the end of the process all go back.
//!
//! Each worker has blocks of its own: no core waits for another, for a block more each. What the store never told of, and what could
//! not be given back, is lost to the limit until it is free again, and counted.

mod block;
mod book;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::block::Block;
use self::book::{Book, Taken};
use super::background::{Background, until_sent};
use super::owned::OwnedCheck;
use super::{Check, Lender, Outcomes, Store, StoreError};
use crate::algorithm::Charge;
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::{Overall, Prior, Role, combine};
use crate::telemetry::metrics::Metrics;

/// Time for the store to answer where nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A store that is asked for blocks of hits, and then not for each.
pub struct Leases<S> {
    desk: Arc<Desk<S>>,
    under_way: Background,
}

/// What those who take blocks and give them back share.
struct Desk<S> {
    store: S,
    book: Mutex<Book>,
    /// No more blocks, and all go back.
    closing: CancellationToken,
    metrics: Arc<Metrics>,
}

impl<S: Lender> Leases<S> {
    /// `store`, asked for hits in advance where limits say so.
    pub fn new(store: S, metrics: Arc<Metrics>) -> Self {
        let desk = Desk { store, book: Mutex::default(), closing: CancellationToken::new(), metrics };
        Self { desk: Arc::new(desk), under_way: Background::default() }
    }

    /// The store beneath.
    pub fn store(&self) -> &S {
        &self.desk.store
    }

    /// Takes no more blocks, gives back those that it has, and waits until that is done.
    pub async fn settled(&self) {
        self.desk.closing.cancel();
        self.under_way.settled().await;
    }

    /// Takes the hits of a check of a block; asks for a block in the background, where one is wanted.
    fn take(&self, check: &Check<'_>, checks: &[Check<'_>], now: Instant) -> Option<Taken> {
        let lease = check.lease.as_ref().filter(|_| may_lease(check, checks))?;
        let found = self.desk.book.lock().take(check, lease, now);
        if let Some(hits) = found.wanted {
            let limit = check.limit.charged(Charge::Admitted);
            let check = Check { limit: &limit, hits: Hits::Charge(hits), role: Role::Enforce, ..*check };
            let wanted = Arc::new(OwnedCheck::of(&check));
            let work = Arc::clone(&self.desk).hold(Arc::clone(&wanted), lease.ttl);
            if self.desk.closing.is_cancelled() || !self.under_way.spawn(work) {
                self.desk.book.lock().answered(&wanted, Err(&StoreError::Unavailable), None);
            }
        }
        found.taken
    }

    /// Puts hits back that were taken for a request that is not admitted.
    fn put_back(&self, check: &Check<'_>, taken: &mut Taken) {
        let Hits::Charge(hits) = check.hits else { return };
        if matches!(check.limit.charge_mode(), Charge::Always | Charge::Afterwards) {
            return;
        }
        let remaining = &mut taken.outcome.report.remaining;
        *remaining = remaining.saturating_add(hits.into());
        if !taken.block.put_back(hits.into()) {
            let (desk, block, owned) = (Arc::clone(&self.desk), Arc::clone(&taken.block), OwnedCheck::of(check));
            let begun = self.under_way.spawn(async move { desk.give_back(&owned, &block, hits.into()).await });
            if !begun {
                self.desk.metrics.leases.lost.inc_by(hits.into());
            }
        }
    }

    /// Learns from what the store said of checks that no block answered.
    fn learn(&self, checks: &[Check<'_>], outcomes: &Outcomes) {
        for (check, outcome) in checks.iter().zip(outcomes).filter(|(check, _)| check.lease.is_some()) {
            self.desk.book.lock().learn(check, outcome.as_ref());
        }
    }
}

impl<S: Lender> Desk<S> {
    /// Takes a block, holds it to its end, and gives back what was not used.
    async fn hold(self: Arc<Self>, wanted: Arc<OwnedCheck>, ttl: Micros) {
        let asked = Instant::now();
        let lent = self.store.lend(&wanted.check(), within(PATIENCE)).await;
        let receipt = lent.as_ref().ok().and_then(|lent| lent.receipt);
        let block = receipt.map(|receipt| Arc::new(Block::new(&wanted.limit, receipt, asked..Instant::now(), ttl)));
        let is_held = self.book.lock().answered(&wanted, lent.as_ref(), block.as_ref());
        if let (Err(StoreError::Late | StoreError::Lost), Hits::Charge(hits)) = (&lent, wanted.hits) {
            self.metrics.leases.lost.inc_by(hits.into());
        }
        let Some(block) = block else { return };
        self.metrics.leases.blocks.inc();
        let hits = i64::try_from(block.hits()).unwrap_or(i64::MAX);
        self.metrics.leases.outstanding.inc_by(hits);
        if is_held {
            tokio::select! {
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

    /// Gives hits of a block back to their counter, unless they went with their windows.
    async fn give_back(&self, check: &OwnedCheck, block: &Block, hits: u64) {
        if hits == 0 || block.is_gone(Instant::now()) {
            return;
        }
        let (check, receipt, deadline) = (check.check(), block.receipt(hits), within(PATIENCE));
        if until_sent(deadline, || self.store.take_back(&check, receipt, deadline)).await.is_err() {
            self.metrics.leases.lost.inc_by(hits);
        }
    }
}

impl<S: Lender> Store for Leases<S> {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        if checks.iter().all(|check| check.lease.is_none()) {
            return self.desk.store.decide(checks, prior, deadline).await;
        }
        let now = Instant::now();
        let taken = checks.iter().map(|check| self.take(check, checks, now)).collect();
        let mut request = TakenOfBlocks { leases: self, checks, taken };
        let rest = checks.iter().zip(&request.taken).filter(|(_, taken)| taken.is_none());
        let rest: Few<Check<'_>> = rest.map(|(check, _)| *check).collect();
        let mut answers = match rest.is_empty() {
            true => Outcomes::new(),
            false => self.desk.store.decide(&rest, prior, deadline).await,
        };
        self.learn(&rest, &answers);
        // What was taken of blocks is allowed, and enforced or in shadow mode: it changes nothing in what the rest comes to.
        let verdicts = rest.iter().zip(&answers).map(|(check, answer)| (check.role, check.verdict(answer.as_ref())));
        if combine(prior, verdicts) != Overall::Admitted {
            request.put_back();
        }
        let taken = std::mem::take(&mut request.taken);
        let mut answers = answers.drain(..);
        let outcome = |taken: Option<Taken>| match taken {
            Some(taken) => Ok(taken.outcome),
            None => answers.next().unwrap_or(Err(StoreError::Unavailable)),
        };
        taken.into_iter().map(outcome).collect()
    }

    /// Blocks that are held are used to their ends, whatever becomes of their counter.
    async fn amend(&self, check: &Check<'_>, amendment: Amendment, deadline: Instant) -> Result<Amended, StoreError> {
        self.desk.store.amend(check, amendment, deadline).await
    }
}

/// Hits taken of blocks for a request that is not decided yet; if it is dropped before it is, they go back.
struct TakenOfBlocks<'a, S: Lender> {
    leases: &'a Leases<S>,
    checks: &'a [Check<'a>],
    taken: Few<Option<Taken>>,
}

impl<S: Lender> TakenOfBlocks<'_, S> {
    fn put_back(&mut self) {
        let taken = self.checks.iter().zip(&mut self.taken).filter_map(|(check, taken)| Some((check, taken.as_mut()?)));
        taken.for_each(|(check, taken)| self.leases.put_back(check, taken));
    }
}

impl<S: Lender> Drop for TakenOfBlocks<'_, S> {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Whether a check may be answered of a block.
fn may_lease(check: &Check<'_>, checks: &[Check<'_>]) -> bool {
    matches!(check.hits, Hits::Charge(_))
        && matches!(check.role, Role::Enforce | Role::Shadow)
        && !check.limit.is_ban()
        && checks.iter().filter(|other| other.key == check.key).count() == 1
}

/// The instant after so much time.
fn within(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}
