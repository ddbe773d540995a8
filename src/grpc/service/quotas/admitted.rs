//! Hits that proxies have admitted without a loan: charged afterwards, also if the stream ends
//! meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::ready;
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::oneshot;

use super::QuotaSession;
use crate::algorithm::store_error::StoreError;
use crate::grpc::service::Rls;
use crate::http2::CallHold;
use crate::limiter::LoanTarget;
use crate::store::backend::Backend;
use crate::store::clock::instant;
use crate::store::layer::Layered;
use crate::store::layer::loans::quota::UnlentHits;

/// Maximum number of store calls of a stream at once, of each kind.
pub(super) const CONCURRENT_CALLS: usize = 32;
/// Time within which the admitted hits of a message are charged, or not at all. A process that ends
/// waits as long.
const CHARGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Memory of a charge under way in bytes, besides the ID of its bucket.
const CHARGE_COST: usize = 1 << 10;

/// Admitted hits that are not charged yet, with the memory that they hold.
#[derive(Debug)]
pub(super) struct PendingCharge {
    admitted: UnlentHits,
    _hold: CallHold,
}

impl<B: Backend> QuotaSession<B> {
    /// Returns the charge of hits that a proxy has admitted without a loan; `None` for none, or if
    /// the account has no room for it.
    pub(super) fn pending_charge(
        &self,
        id: &[u8],
        target: &LoanTarget<'_>,
        hits: u64,
    ) -> Option<PendingCharge> {
        if hits == 0 {
            return None;
        }
        let hold = self.account.keep(CHARGE_COST + id.len());
        if hold.is_err() {
            self.rls.metrics.loans.quotas.refused.inc();
        }
        let admitted = UnlentHits::new(&target.check(), hits);
        Some(PendingCharge { admitted, _hold: hold.ok()? })
    }

    /// Charges the admitted hits in a task that outlives the stream. The result completes once they
    /// are charged, or [`CHARGE_TIMEOUT`] has passed.
    pub(super) fn charge_admitted(&mut self) -> impl Future<Output = ()> + Send + use<B> {
        let admitted = std::mem::take(&mut self.admitted);
        let (done, charged) = oneshot::channel::<()>();
        let count = admitted.len();
        if count > 0 {
            let rls = Arc::clone(&self.rls);
            let end = instant() + CHARGE_TIMEOUT;
            let charges = stream::iter(admitted).map(move |pending| {
                let rls = Arc::clone(&rls);
                async move { charge(&rls, &pending.admitted, end).await }
            });
            let begun = self.rls.limiter.store().loans().in_background(async move {
                charges.buffer_unordered(CONCURRENT_CALLS).for_each(|()| ready(())).await;
                drop(done);
            });
            if !begun {
                self.rls.metrics.loans.quotas.refused.inc_by(u64::try_from(count).unwrap_or(0));
            }
        }
        async move {
            let _ = charged.await;
        }
    }
}

/// Charges hits that a proxy has admitted without a loan, unless `end` has passed.
async fn charge<B: Backend>(rls: &Rls<Layered<B>>, admitted: &UnlentHits, end: Instant) {
    let now = instant();
    let charged = if now < end {
        let deadline = rls.deadline(now, None).min(end);
        rls.limiter.store().loans().charge_admitted(admitted, deadline).await
    } else {
        Err(StoreError::Late)
    };
    if let Err(error) = charged {
        rls.metrics.store.store_error(error.kind());
    }
}
