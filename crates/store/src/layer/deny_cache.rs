//! Store layer that caches denials. After a denial of n hits, n hits on the same counter are denied
//! without a store call until they could be admitted again; so are more than n, if their wait is
//! known.
//!
//! A counter regains capacity only by time, by a refund, or by a policy that allows more.
//! `retry_after` covers time. The store judges at some instant between request and reply: an entry
//! expires relative to the instant at which the request was sent, so it never outlives the denial,
//! and the returned times are relative to the arrival of the reply, so no client is advised to
//! retry too early. (For several hits, smaller requests that were admitted since may extend the
//! wait.) A refund through this process (or returned hits of a lease) and a change of the amounts
//! invalidate an entry at once. No entry lives longer than a bound (1 s by default), so that
//! refunds through other replicas take effect. The cache is a direct-mapped table of fixed size, in
//! which a new entry replaces the old one.
//!
//! **Not cached**: denials of limits that write denied hits, since each of those extends the wait;
//! denials that may come from a charge that is taken back later (see [`CertainDenials`]); bans,
//! quota votes and counters that occur twice in a request. A single fixed window is cached even if
//! it writes denied hits, since they do not move its end. Hits denied by the cache are then not
//! written, which shows until the end of the window only in a refund, under another amount for the
//! same counter (an inheriting override, a changed policy), and to an operator who inspects the
//! counter. If the limit records callers, these hits are written in the background.

mod limits;
mod table;

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, FutureExt as _};
use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::judge::{Few, Hits, Outcome};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::{Overall, Prior, Verdict, combine};
use tollgate_lease::OwnedCheck;

pub(super) use self::limits::is_single_fixed_window;
pub use self::table::DenialTable;
use crate::background::Background;
use crate::clock::instant;
use crate::{CertainDenials, Check, Lender, Lent, Outcomes, Store, StoreError, error_behind};

/// A store that answers from cached denials if it can, and calls another store otherwise.
pub struct DenyCache<S> {
    store: Arc<S>,
    /// The cached denials; `None` if none are cached.
    denials: Option<Arc<DenialTable>>,
    owed: Background,
}

impl<S: Store> DenyCache<S> {
    /// Creates a layer over `store`. Without `denials`, the store decides every request.
    pub fn new(store: S, denials: Option<Arc<DenialTable>>) -> Self {
        Self { store: Arc::new(store), denials, owed: Background::default() }
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Waits until pending background charges are written.
    pub async fn settled(&self) {
        self.owed.settled().await;
    }

    /// Charges hits in the background that were denied from the cache but have to be written.
    fn charge_anyway(
        &self,
        denials: &DenialTable,
        checks: &[Check<'_>],
        cached: &[Option<Outcome>],
        deadline: Instant,
    ) {
        let owed =
            checks.iter().zip(cached).filter(|(check, cached)| cached.is_some() && is_owed(check));
        let owed: Few<OwnedCheck> = owed.map(|(check, _)| OwnedCheck::of(check)).collect();
        if owed.is_empty() {
            return;
        }
        let store = Arc::clone(&self.store);
        let metrics = Arc::clone(&denials.metrics);
        let count = owed.len() as u64;
        let begun = self.owed.spawn(async move {
            let checks: Few<Check<'_>> = owed.iter().map(OwnedCheck::check).collect();
            let outcomes = store.decide(&checks, Prior::Denied, deadline).await;
            // The limiter counts errors of outcomes that it receives, and not these.
            let errors = outcomes.iter().filter_map(error_behind);
            errors.for_each(|error| metrics.store_error(error.kind()));
        });
        if !begun {
            denials.metrics.dropped_charges.inc_by(count);
        }
    }

    /// Calls the store for the checks without a cached outcome.
    async fn decide_rest(
        &self,
        denials: &DenialTable,
        checks: &[Check<'_>],
        cached: Vec<Option<Outcome>>,
        prior: Prior,
        sent: Instant,
        deadline: Instant,
    ) -> Outcomes {
        self.charge_anyway(denials, checks, &cached, deadline);
        // Denied if the request would not be admitted even if the store allowed all other checks.
        let verdicts = checks.iter().zip(&cached).map(|(check, cached)| {
            let verdict =
                cached.as_ref().map_or(Verdict::Allowed, |cached| check.verdict(Ok(cached)));
            (check.role, verdict)
        });
        let is_denied = combine(prior, verdicts) == Overall::Denied;
        let rest: Few<Check<'_>> = checks
            .iter()
            .zip(&cached)
            .filter(|(_, cached)| cached.is_none())
            .map(|(check, _)| *check)
            .collect();
        let answers = if rest.is_empty() {
            Outcomes::new()
        } else {
            self.store.decide(&rest, if is_denied { Prior::Denied } else { prior }, deadline).await
        };
        denials.record_all(&rest, &answers, self.certain_denials(), sent);
        let mut answers = answers.into_iter();
        cached
            .into_iter()
            .map(|cached| {
                cached.map_or_else(|| answers.next().unwrap_or(Err(StoreError::Unavailable)), Ok)
            })
            .collect()
    }
}

impl<S: Store> Store for DenyCache<S> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        let Some(denials) = &self.denials else {
            return Either::Left(self.store.decide(checks, prior, deadline));
        };
        let sent = instant();
        let cached = denials.cached(checks, sent);
        Either::Right(if cached.is_empty() {
            let decided = self.store.decide(checks, prior, deadline);
            Either::Left(decided.inspect(move |outcomes| {
                denials.record_all(checks, outcomes, self.certain_denials(), sent);
            }))
        } else {
            // Boxed to keep the future of the common case small.
            Either::Right(Box::pin(
                self.decide_rest(denials, checks, cached, prior, sent, deadline),
            ))
        })
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        let amended = self.store.amend(check, amendment, deadline).await;
        if let Some(denials) = &self.denials
            && amendment != Amendment::Look
        {
            denials.invalidate(check);
        }
        amended
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn certain_denials(&self) -> CertainDenials {
        self.store.certain_denials()
    }
}

/// Leased hits belong to no request and are not cached; returned hits invalidate the entry.
impl<S: Lender> Lender for DenyCache<S> {
    async fn lend(&self, check: &Check<'_>, deadline: Instant) -> Result<Lent, StoreError> {
        self.store.lend(check, deadline).await
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let taken = self.store.take_back(check, receipt, deadline).await;
        if let Some(denials) = &self.denials {
            denials.invalidate(check);
        }
        taken
    }
}

/// Returns `true` if hits must be written despite a cached denial, since they are tallied.
fn is_owed(check: &Check<'_>) -> bool {
    !check.recorded.is_empty() && matches!(check.hits, Hits::Charge(_))
}

#[cfg(test)]
mod tests;
