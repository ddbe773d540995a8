//! Loans: blocks of hits for holders outside of the process, charged before they are handed over.
//!
//! The store below all layers lends: nothing is lent out of what was lent, and nothing while the
//! store is unavailable. The store is called once per loan; near the limit, a block that turns out
//! to be more than its [part](tollgate_core::algorithm::lease::NEAR) of the remaining hits is cut,
//! and the rest is taken back in the background. A process keeps nothing of the loans that it
//! gives.

pub mod quota;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::lease::{LONGEST_DENIAL, Lease};
use tollgate_core::algorithm::quota::Report;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Limit, Receipt};
use tollgate_lease::OwnedCheck;
use tollgate_telemetry::metrics::StoreMetrics;

use crate::backend::Backend;
use crate::background::{Background, until_sent};
use crate::clock::within;
use crate::layer::deny_cache::is_single_fixed_window;
use crate::loan::{LoanReturn, Returned};
use crate::{Check, Lent, StoreError};

/// Timeout for taking back what is not handed over.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The loans of a store.
pub struct Loans<B> {
    store: B,
    under_way: Background,
    metrics: Arc<StoreMetrics>,
}

/// The result of asking for a loan.
#[derive(Clone, Debug)]
pub enum Lending {
    /// A block of hits.
    Block(LoanBlock),
    /// No block: few hits are wanted, or few remain. The store's report, if it was called.
    TooFew(Option<Report>),
    /// A request of one hit is denied now. The holder may deny by itself for this time.
    Denied(Report, Micros),
}

/// A block of hits that was charged for a holder.
#[derive(Clone, Copy, Debug)]
pub struct LoanBlock {
    /// The charge.
    pub receipt: Receipt,
    /// The time for which a holder may admit the hits, from the instant at which it sent its
    /// request.
    pub usable_for: Micros,
    /// The counter after the charge.
    pub report: Report,
}

impl<B: Backend> Loans<B> {
    pub(super) fn new(store: B, metrics: Arc<StoreMetrics>) -> Self {
        Self { store, under_way: Background::default(), metrics }
    }

    /// Waits until all hits that were not handed over are taken back.
    pub(super) async fn settled(&self) {
        self.under_way.settled().await;
    }

    /// Charges a block of up to `wanted` hits, all to one instant, to the counter of a check. The
    /// check's own hits and role are ignored.
    ///
    /// # Errors
    /// The store failed. If the reply was late or lost, a block may have been charged.
    pub async fn lend(
        &self,
        check: &Check<'_>,
        lease: &Lease,
        wanted: u32,
        deadline: Instant,
    ) -> Result<Lending, StoreError> {
        let Some(hits) = lease.block_size(wanted.into(), check.limit.at_once().into()) else {
            return Ok(Lending::TooFew(None));
        };
        let given = check.limit;
        let limit = given.of_loans();
        let check = Check { limit: &limit, role: Role::Enforce, ..*check };
        let lent = self.charge(&check, hits, deadline).await?;
        let Some(receipt) = lent.receipt else {
            let denied = denied_for(given, hits, &lent.report, lease.ttl);
            return Ok(match denied {
                Some(time) => Lending::Denied(lent.report, time),
                None => Lending::TooFew(Some(lent.report)),
            });
        };
        Ok(self.cut(&check, lease, receipt, lent.report))
    }

    /// Takes back the part of a block that is too much, or all of it.
    fn cut(&self, check: &Check<'_>, lease: &Lease, charged: Receipt, report: Report) -> Lending {
        let before = report.remaining.saturating_add(charged.hits);
        let usable_for = check.limit.loan_time(lease.ttl, charged.at);
        // Hits of an operator's grant are not lent on.
        let is_worth_it = !charged.of_grant && usable_for > Micros::ZERO;
        let size = lease.block_size(charged.hits, before).filter(|_| is_worth_it);
        let hits = size.map_or(0, u64::from);
        let excess = charged.hits.saturating_sub(hits);
        self.give_back(check, Receipt { hits: excess, ..charged });
        let remaining = report.remaining.saturating_add(excess);
        let report = Report { remaining, ..report };
        if hits == 0 {
            return Lending::TooFew(Some(report));
        }
        self.metrics.loans.blocks.inc();
        Lending::Block(LoanBlock { receipt: Receipt { hits, ..charged }, usable_for, report })
    }

    /// Charges hits to the counter of a check, whose own hits are ignored, and counts those whose
    /// charge is unknown.
    async fn charge(
        &self,
        check: &Check<'_>,
        hits: u32,
        deadline: Instant,
    ) -> Result<Lent, StoreError> {
        let check = Check { hits: Hits::Charge(hits), ..*check };
        let lent = self.store.lend(&check, deadline).await;
        if let Err(StoreError::Late | StoreError::Lost) = lent {
            self.metrics.loans.lost.inc_by(hits.into());
        }
        lent
    }

    /// Takes back hits that no holder has admitted, in the background.
    pub fn give_back(&self, check: &Check<'_>, receipt: Receipt) {
        if receipt.hits == 0 {
            return;
        }
        let check = OwnedCheck::of(check);
        let store = self.store.clone();
        let metrics = Arc::clone(&self.metrics);
        let begun = self.under_way.spawn(async move {
            let deadline = within(STORE_TIMEOUT);
            let check = check.check();
            let taken = until_sent(deadline, || store.take_back(&check, receipt, deadline)).await;
            if taken.is_err() {
                metrics.loans.lost.inc_by(receipt.hits);
            }
        });
        if !begun {
            self.metrics.loans.lost.inc_by(receipt.hits);
        }
    }

    /// Accepts the return of a loan once. The check's own hits and role are ignored.
    ///
    /// # Errors
    /// The store failed or keeps no numbers of loans: the unused hits then count until they expire,
    /// unless the reply was late or lost.
    pub async fn take_back(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
        deadline: Instant,
    ) -> Result<Returned, StoreError> {
        self.store.return_loan(check, returned, deadline).await
    }
}

/// Returns the time for which a request of one hit is denied, at most `ttl` and [`LONGEST_DENIAL`],
/// if a block of `hits` is; `None` if it is not, if that is not known, or if further requests would
/// be charged and make it longer.
fn denied_for(limit: &Limit, hits: u32, report: &Report, ttl: Micros) -> Option<Micros> {
    if limit.charge_mode().counts_denied() && !is_single_fixed_window(limit) {
        return None;
    }
    let retry_after = report.retry_after.filter(|_| report.remaining == 0)?;
    let time = limit.retry_of_one(hits, retry_after)?;
    (time > Micros::ZERO).then(|| time.min(ttl).min(LONGEST_DENIAL))
}

#[cfg(test)]
mod tests;
