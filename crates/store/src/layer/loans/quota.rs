//! Loans to proxies by RLQS: sized by the share of a proxy, and given back by the process itself,
//! which keeps their receipts.

use std::time::Instant;

use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::algorithm::{Charge, Limit, Receipt};
use tollgate_lease::OwnedCheck;

use super::Loans;
use crate::backend::Backend;
use crate::{Check, StoreError};

/// Longest time after which hits are tried again, if it is not known when one fits.
const UNKNOWN_RETRY: Micros = Micros::from_secs(5);

/// Hits that a proxy has admitted without a loan, and the counter to which they are charged.
#[derive(Clone, Debug)]
pub struct UnlentHits {
    check: OwnedCheck,
    hits: u64,
}

impl UnlentHits {
    /// Creates admitted hits. The check's own hits and role are ignored.
    pub fn new(check: &Check<'_>, hits: u64) -> Self {
        Self { check: OwnedCheck::of(check), hits }
    }
}

/// The result of lending to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaLending {
    /// Hits were charged.
    Lent {
        /// The charge.
        receipt: Receipt,
        /// Time from the charge to the end of the shortest window, for limits with windows.
        window_rest: Option<Micros>,
    },
    /// No hits remain, for a time if that is known, or none of them are for this proxy.
    Denied(Option<Micros>),
}

impl<B: Backend> Loans<B> {
    /// Charges up to `wanted` hits, all to one instant, to the counter of a check, whose own hits
    /// and role are ignored. `share` returns the hits for this proxy of those that remain for all,
    /// and the time to the end of the shortest window, if it is known.
    ///
    /// Calls the store once if as many hits remain as are wanted, else twice. The part of a charge
    /// that is not for this proxy is taken back in the background.
    ///
    /// # Errors
    /// The store failed. If the reply was late or lost, hits may have been charged.
    pub async fn lend_quota(
        &self,
        check: &Check<'_>,
        wanted: u32,
        share: impl Fn(u64, Option<Micros>) -> u64 + Send,
        deadline: Instant,
    ) -> Result<QuotaLending, StoreError> {
        let limit = check.limit.of_loans();
        let check = Check { limit: &limit, role: Role::Enforce, ..*check };
        let first = self.charge(&check, wanted, deadline).await?;
        let Some(receipt) = first.receipt else {
            let own = share(first.report.remaining, None).min(wanted.into());
            let own = u32::try_from(own).unwrap_or(u32::MAX);
            if own == 0 {
                let is_used_up = first.report.remaining == 0;
                return Ok(QuotaLending::Denied(
                    is_used_up.then(|| retry(&limit, wanted, first.report.retry_after)).flatten(),
                ));
            }
            let second = self.charge(&check, own, deadline).await?;
            return Ok(match second.receipt {
                Some(receipt) => self.kept(&check, receipt, receipt.hits),
                None => QuotaLending::Denied(retry(&limit, own, second.report.retry_after)),
            });
        };
        let rest = window_rest(&check, receipt);
        let own = share(first.report.remaining.saturating_add(receipt.hits), rest);
        Ok(self.kept(&check, receipt, own))
    }

    /// Runs work that continues after its stream has ended, and is awaited at shutdown. Returns
    /// `false` if too much is under way.
    pub fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        self.under_way.spawn(work)
    }

    /// Charges hits that a proxy has admitted, whether they fit or not.
    ///
    /// # Errors
    /// The store failed. If the reply was late or lost, hits may have been charged.
    pub async fn charge_admitted(
        &self,
        admitted: &UnlentHits,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let hits = u32::try_from(admitted.hits).unwrap_or(u32::MAX);
        let check = admitted.check.check();
        let mode =
            if check.limit.counts_beyond_limit() { Charge::Always } else { Charge::Admitted };
        let limit = check.limit.charged(mode);
        let check = Check { limit: &limit, role: Role::Enforce, ..check };
        let charged = self.charge(&check, hits, deadline).await?;
        let remaining = u32::try_from(charged.report.remaining).unwrap_or(u32::MAX);
        if mode == Charge::Admitted && charged.receipt.is_none() && remaining > 0 {
            self.charge(&check, remaining.min(hits), deadline).await?;
        }
        Ok(())
    }

    /// Keeps a part of a charge, and takes the rest back. Hits of an operator's grant are not lent.
    fn kept(&self, check: &Check<'_>, charged: Receipt, own: u64) -> QuotaLending {
        let own = if charged.of_grant { 0 } else { own.min(charged.hits) };
        let excess = charged.hits.saturating_sub(own);
        self.give_back(check, Receipt { hits: excess, ..charged });
        if own == 0 {
            return QuotaLending::Denied(None);
        }
        let window_rest = window_rest(check, charged);
        QuotaLending::Lent { receipt: Receipt { hits: own, ..charged }, window_rest }
    }
}

/// Returns the time from a charge to the end of the shortest window, for limits with windows.
fn window_rest(check: &Check<'_>, charged: Receipt) -> Option<Micros> {
    check.limit.windows_end_after(charged.at).map(|(first, _)| first)
}

/// Returns the time after which one hit may fit, if a block of `hits` does after `retry_after`.
fn retry(limit: &Limit, hits: u32, retry_after: Option<Micros>) -> Option<Micros> {
    let retry_after = retry_after?;
    let one = limit.retry_of_one(hits, retry_after);
    Some(one.unwrap_or_else(|| retry_after.min(UNKNOWN_RETRY)))
}
